"""Verdicts: every rule over one history, and the outcome of each clause.

A clause holds only if it was exercised and no finding or fault speaks against it. In order of
weight: one violation makes it violated, unless all were found while a link may have been broken
without a fault; then it is unknown. A crashed rule, an undecided finding or an incomplete
history makes it unknown; so does a fault without a receipt if nothing else exercised the clause. A
clause that binds another plane is not applicable, and a clause without a rule has no verdict.

`verdicts.json` in a run's folder is one object, clause id -> `Verdict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, final

import msgspec
from msgspec import Struct

from fencepost.events import Cause, Event, FaultInjected, FaultTookEffect, kind_name
from fencepost.history.files import content, decoded, write_whole
from fencepost.history.run_end import NEVER_NS, RunEnd
from fencepost.judging.rules import (
    Clause,
    Evidence,
    Excused,
    Exercised,
    Finding,
    Key,
    Rule,
    Violated,
)
from fencepost.model.errors import UsageError, no_such

VIOLATIONS_KEPT = 200
MOST_VERDICTS_BYTES = 64 << 20
"""The largest verdicts.json that is read."""
MESSAGES_KEPT = 5
_STRENGTH = (Evidence.CLIENT, Evidence.PEER, Evidence.SELF)
AT_END = 1 << 62
"""The position of findings that were made after the last event."""


class Outcome(StrEnum):
    """The outcome of a clause; only `holds` is a pass."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    NOT_EXERCISED = "not-exercised"
    NOT_APPLICABLE = "not-applicable"


class Broken(Struct, frozen=True):
    """One violation: the event, the kind of evidence, what happened, and the events that prove it.

    `explanation` holds the lines that lead from changes of epochs and fencing to the violation. It
    is empty until the explainer has filled it in.
    """

    at: Cause
    evidence: Evidence
    message: str
    because: tuple[Cause, ...] = ()
    explanation: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """The verdict on one clause in one run.

    `exercised` is how often the clause was exercised. `evidence` is the strongest kind of evidence
    for a violation, or else for an exercise: client before peer before self; None if there is none.
    `sentence` is the clause's own. `reason` says why the verdict is unknown or not applicable, and
    of other verdicts what was excused. `excused` counts what faults excused.
    `violated` counts all violations; `violations` keeps the first `VIOLATIONS_KEPT`. `known` are
    the ids of known findings (`fencepost.judging.known_findings`); it is empty if any violation is
    new.
    """

    verdict: Outcome
    exercised: int
    evidence: Evidence | None
    sentence: str
    reason: str = ""
    violated: int = 0
    violations: tuple[Broken, ...] = ()
    known: tuple[str, ...] = ()
    excused: int = 0


@dataclass(slots=True)
class Tally:
    """The findings about one clause so far, bounded; tallies of one clause can be merged.

    Violations are kept with the position, in the history, of the event at which they were found.
    """

    exercised: dict[Evidence, int] = field(default_factory=dict)
    violated: int = 0
    violations: list[tuple[int, Broken]] = field(default_factory=list)
    first_ns: int = NEVER_NS
    """When the first violation was found."""
    undecided: int = 0
    messages: list[str] = field(default_factory=list)
    excused: int = 0
    excuses: list[str] = field(default_factory=list)
    crashed: str = ""
    lacks: str = ""
    """Which events of those that the rules read are missing, if only such events are."""

    def add(self, finding: Finding, position: int, at_ns: int = 0) -> None:
        """Adds one finding that was made at this position and time; neither ever decreases."""
        if isinstance(finding, Exercised):
            by = finding.evidence
            self.exercised[by] = self.exercised.get(by, 0) + 1
        elif isinstance(finding, Violated):
            self.violated += 1
            self.first_ns = min(self.first_ns, at_ns)
            if len(self.violations) < VIOLATIONS_KEPT:
                broken = Broken(finding.at, finding.evidence, finding.message, finding.because)
                self.violations.append((position, broken))
        elif isinstance(finding, Excused):
            self.excused += 1
            if finding.message not in self.excuses and len(self.excuses) < MESSAGES_KEPT:
                self.excuses.append(finding.message)
        else:
            self.undecided += 1
            if len(self.messages) < MESSAGES_KEPT:
                self.messages.append(finding.message)

    def merge(self, other: Tally) -> None:
        """Adds another tally of the same clause."""
        for by, count in other.exercised.items():
            self.exercised[by] = self.exercised.get(by, 0) + count
        self.violated += other.violated
        self.first_ns = min(self.first_ns, other.first_ns)
        both = sorted([*self.violations, *other.violations], key=_place)
        self.violations = both[:VIOLATIONS_KEPT]
        self.undecided += other.undecided
        self.messages = sorted({*self.messages, *other.messages})[:MESSAGES_KEPT]
        self.excused += other.excused
        self.excuses = sorted({*self.excuses, *other.excuses})[:MESSAGES_KEPT]
        self.crashed = min(filter(None, (self.crashed, other.crashed)), default="")
        self.lacks = min(filter(None, (self.lacks, other.lacks)), default="")


def _place(kept: tuple[int, Broken]) -> tuple[int, str, int, str]:
    position, broken = kept
    return position, broken.at.process, broken.at.seq, broken.message


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one run, by clause, in the order of their ids."""

    verdicts: Mapping[str, Verdict]

    def of(self, outcome: Outcome) -> tuple[str, ...]:
        """The clauses with that outcome."""
        return tuple(c for c, verdict in self.verdicts.items() if verdict.verdict is outcome)

    @property
    def broken(self) -> tuple[str, ...]:
        """The violated clauses with at least one violation that is not known."""
        return tuple(c for c in self.of(Outcome.VIOLATED) if not self.verdicts[c].known)


def verdict_of(clause: Clause, tally: Tally, end: RunEnd, missed: Sequence[str]) -> Verdict:
    """The verdict for a tally; `missed` are the ids of faults without a receipt."""
    outcome, reason = _weigh(tally, end, missed)
    violations: tuple[Broken, ...] = ()
    if outcome is Outcome.VIOLATED:
        violations = tuple(broken for _, broken in sorted(tally.violations, key=_place))
        words = {broken.evidence for broken in violations}
    else:
        words = set(tally.exercised)
    return Verdict(
        verdict=outcome,
        exercised=sum(tally.exercised.values()),
        evidence=next((by for by in _STRENGTH if by in words), None),
        sentence=clause.says,
        reason=reason,
        violated=tally.violated if violations else 0,
        violations=violations,
        excused=tally.excused,
    )


def _excuses(tally: Tally) -> str:
    """What faults excused, in one sentence; empty if they excused nothing."""
    if not tally.excused:
        return ""
    return f"{tally.excused} excused: {'; '.join(sorted(set(tally.excuses)))}"


def _weigh(tally: Tally, end: RunEnd, missed: Sequence[str]) -> tuple[Outcome, str]:
    if tally.violated and tally.first_ns < end.doubtful_from_ns:
        return Outcome.VIOLATED, _excuses(tally)
    if tally.violated:
        return Outcome.UNKNOWN, (
            f"{tally.violated} violations were found since a link may have failed: {end.lacks}"
        )
    if tally.crashed:
        return Outcome.UNKNOWN, tally.crashed
    if not end.complete:
        return Outcome.UNKNOWN, f"the history is not complete: {end.lacks}"
    if tally.lacks:
        return Outcome.UNKNOWN, f"the history is not complete: {tally.lacks}"
    if tally.undecided:
        return Outcome.UNKNOWN, "; ".join(sorted(set(tally.messages)))
    if tally.exercised:
        return Outcome.HOLDS, _excuses(tally)
    if missed:
        return Outcome.UNKNOWN, f"a fault missed: {', '.join(missed)} has no receipt"
    return Outcome.NOT_EXERCISED, _excuses(tally)


# ------------------------------------------------------------------------------------ the machine


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


def conclude(
    judged: Iterable[str],
    clauses: Mapping[str, Clause],
    *,
    plane: str,
    tallies: Mapping[str, Tally],
    end: RunEnd,
    missed: Sequence[str],
) -> Judgement:
    """The verdict of every judged clause; a clause without a tally had no event."""
    verdicts: dict[str, Verdict] = {}
    for clause_id in sorted(judged):
        clause = clauses[clause_id]
        if clause.binds(plane):
            verdicts[clause_id] = verdict_of(
                clause, tallies.get(clause_id, Tally()), end, missed
            )  # fmt: skip
        else:
            why = clause.unbound(plane) if clause.applies_on(plane) else ""
            verdicts[clause_id] = Verdict(Outcome.NOT_APPLICABLE, 0, None, clause.says, why)
    return Judgement(verdicts)


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


# ------------------------------------------------------------------------------------------ a file


def write_verdicts(path: Path, verdicts: Mapping[str, Verdict]) -> None:
    """Writes verdicts.json, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(dict(verdicts))) + b"\n")


def _present(written: bytes) -> bytes:
    """verdicts.json with the present names of fields: `evidence` was `witness` at first."""
    if b'"witness"' not in written:
        return written
    found = decoded(written, dict[str, dict[str, Any]])
    for verdict in found.values():
        for one in (verdict, *verdict.get("violations", ())):
            if "witness" in one:
                one["evidence"] = one.pop("witness")
    return msgspec.json.encode(found)


def read_verdicts(path: Path) -> Mapping[str, Verdict]:
    """The verdicts that `write_verdicts` wrote; raises UsageError if there are none."""
    try:
        written = content(path.parent, path, MOST_VERDICTS_BYTES)
        return decoded(_present(written), dict[str, Verdict])
    except FileNotFoundError:
        raise UsageError(f"{path.parent} was not judged: it has no {path.name}") from None
    except msgspec.DecodeError as broken:
        raise UsageError(f"{path} cannot be read: {broken}") from broken
