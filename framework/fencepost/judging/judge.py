"""The judge: every rule over one history.

What it finds becomes verdicts in `fencepost.judging.verdicts`. This module holds nothing that is
read from a file, so that it can be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct

from fencepost.events import Event, FaultInjected, FaultTookEffect, kind_name
from fencepost.history.run_end import RunEnd
from fencepost.judging.rules import Clause, Finding, Key, Rule
from fencepost.judging.verdicts import (
    AT_END,
    VIOLATIONS_KEPT,
    Broken,
    Judgement,
    Outcome,
    Tally,
    Verdict,
    conclude,
    read_verdicts,
    write_verdicts,
)
from fencepost.model.errors import no_such

__all__ = [
    "AT_END",
    "VIOLATIONS_KEPT",
    "Broken",
    "Judge",
    "Judgement",
    "OnFinding",
    "Outcome",
    "Tally",
    "Verdict",
    "judge",
    "read_verdicts",
    "write_verdicts",
]


@final
@dataclass(slots=True)
class _Rule:
    """A rule with its tally."""

    rule: Rule[Any]
    tally: Tally

    @property
    def working(self) -> bool:
        return not self.tally.crashed

    def crash(self, error: Exception, where: str) -> None:
        """Stops the rule; only its first error is reported."""
        if self.tally.crashed:
            return
        name = type(self.rule).__name__
        self.tally.crashed = (
            f"the rule {name} failed {where}: {type(error).__name__}: {error}"
        )  # fmt: skip


@final
@dataclass(slots=True)
class _Group:
    """Rules that share their `keys` function, which is called once per event for all of them.

    `states` holds one state per rule for each key; None until an event of the key reached the rule.
    """

    keys: Callable[[Event], Iterable[Key]]
    rules: list[_Rule]
    states: dict[Key, list[Any]] = field(default_factory=dict)


OnFinding = Callable[[str, Finding, int], None]
_Step = Callable[[Any, Event], tuple[Any, Sequence[Finding]]]
_Steps = list[tuple[int, _Step, _Rule]]
_Route = tuple[Callable[[Event], Iterable[Key]], dict[Key, list[Any]], _Group, _Steps]
"""For one kind of event: a group's keys and states, the group, its steps."""


@final
class Judge:
    """Judges one history: `take` its events in happens-before order, then ask for the `end`.

    `found` is called with each finding, its clause, and the position of the event at which it was
    made, or `AT_END`. Raises UsageError for a rule whose clause is not among `clauses`.
    """

    def __init__(
        self,
        rules: Sequence[Rule[Any]],
        clauses: Mapping[str, Clause],
        plane: str,
        found: OnFinding | None = None,
    ) -> None:
        self._found = found
        for rule in rules:
            if rule.clause not in clauses:
                raise no_such("clause", rule.clause, clauses)
        self._clauses = clauses
        self._judged = sorted({rule.clause for rule in rules})
        self._rules = [_Rule(rule, Tally()) for rule in rules if clauses[rule.clause].binds(plane)]
        self._plane = plane
        self._missed: dict[str, str] = {}
        self._position = 0
        self._groups = _grouped(self._rules)
        self._dispatch: dict[type[Struct], list[_Route]] = {}
        self._route()

    def _route(self) -> None:
        """Finds the groups and steps for each kind of event; called again when a rule has
        crashed."""
        self._dispatch.clear()
        for group in self._groups:
            for kind in {kind for one in group.rules for kind in one.rule.kinds}:
                steps: _Steps = [
                    (number, one.rule.step, one)
                    for number, one in enumerate(group.rules)
                    if one.working and kind in one.rule.kinds
                ]
                if steps:
                    route = (group.keys, group.states, group, steps)
                    self._dispatch.setdefault(kind, []).append(route)

    def take(self, events: Iterable[Event]) -> None:
        """Judges these events too. An exception of a rule stops that rule, never the judge."""
        position = self._position - 1
        dispatch = self._dispatch
        for position, event in enumerate(events, self._position):
            body = event.body
            for ask, group_states, group, steps in dispatch.get(type(body), ()):
                try:
                    keys = ask(event)
                    if type(keys) is not tuple:
                        keys = tuple(keys)
                except Exception as error:  # a plugin's own code may raise anything
                    self._crashed([one for _, _, one in steps], error, event)
                    continue
                for key in keys:
                    states = group_states.get(key)
                    if states is None:
                        states = group_states[key] = [None] * len(group.rules)
                    for number, step, one in steps:
                        try:
                            state = states[number]
                            if state is None:
                                state = one.rule.start(key)
                            states[number], findings = step(state, event)
                            if findings:
                                self._add(one, findings, position, event.at_ns)
                        except Exception as error:
                            self._crashed([one], error, event)
            if type(body) is FaultInjected and not body.receipt:
                self._missed[body.fault_id] = f"{body.fault} ({body.fault_id})"
            elif type(body) is FaultTookEffect:
                self._missed.pop(body.fault_id, None)
        self._position = position + 1

    def _add(self, one: _Rule, findings: Sequence[Finding], position: int, at_ns: int) -> None:
        for finding in findings:
            one.tally.add(finding, position, at_ns)
            if self._found is not None:
                self._found(one.rule.clause, finding, position)

    def _crashed(self, rules: Sequence[_Rule], error: Exception, event: Event) -> None:
        for one in rules:
            one.crash(error, f"on {event.kind} {event.ref}")
        self._route()

    def end(self, end: RunEnd) -> Judgement:
        """The verdicts, once no event is left."""
        ends = {id(one): end.as_read({kind_name(k) for k in one.rule.kinds}) for one in self._rules}
        for group in self._groups:
            for states in group.states.values():
                for one, state in zip(group.rules, states, strict=True):
                    if state is not None and one.working:
                        try:
                            findings = one.rule.end(state, ends[id(one)])
                            self._add(one, findings, AT_END, end.ended_at_ns)
                        except Exception as error:
                            one.crash(error, "at the end of the history")
        tallies: dict[str, Tally] = {}
        for one in self._rules:
            seen = ends[id(one)]
            one.tally.lacks = seen.lacks if seen is not end else ""
            tallies.setdefault(one.rule.clause, Tally()).merge(one.tally)
        return conclude(
            self._judged,
            self._clauses,
            plane=self._plane,
            tallies=tallies,
            end=end,
            missed=tuple(self._missed.values()),
        )


def _grouped(rules: Sequence[_Rule]) -> list[_Group]:
    """Groups rules whose `keys` are one function; a rule with a bound method is a group of its own.

    A group keeps its function, so no two functions here have one id.
    """
    groups: dict[int, _Group] = {}
    for one in rules:
        keys = one.rule.keys
        groups.setdefault(id(keys), _Group(keys, [])).rules.append(one)
    return list(groups.values())


def judge(
    events: Iterable[Event],
    rules: Sequence[Rule[Any]],
    clauses: Mapping[str, Clause],
    end: RunEnd | Callable[[], RunEnd],
    plane: str,
    found: OnFinding | None = None,
) -> Judgement:
    """Judges one history of a system of that plane; `found` is called as by `Judge`.

    `end` may be a function, which is called once all events were read
    (`fencepost.history.merge.Reading.end`).
    """
    judging = Judge(rules, clauses, plane, found)
    judging.take(events)
    return judging.end(end() if callable(end) else end)
