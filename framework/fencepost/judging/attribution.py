"""Separates the violations of a run that are known findings of its system from new ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import msgspec

from fencepost.events import (
    Administered,
    Cause,
    Event,
    FaultHealed,
    FaultInjected,
    FaultTookEffect,
)
from fencepost.events.traits import has_concerns
from fencepost.judging.known_findings import (
    PROCESS,
    KnownFinding,
    Mark,
    Match,
    Names,
    Spread,
    Trigger,
    fits,
    joined,
    matched,
)
from fencepost.judging.verdicts import AsKnown, Broken, Judgement, Outcome, Verdict
from fencepost.model.clock import MS


@dataclass(slots=True)
class _Cause:
    """A fault, from the beginning of its injection until it was healed, if it was; or an operation
    that the schedule asked for, which began and ended at once."""

    arguments: Mapping[str, Any]
    targets: Collection[str]
    began_ns: int
    ended_ns: int | None = None
    fault: str = ""
    operation: str = ""
    effective: bool = True
    """Whether it took effect, by a receipt; an operation needs none."""

    def named(self, trigger: Trigger, names: Names, from_ns: int, until_ns: int) -> Iterator[Names]:
        """What is known if it is that trigger and may have acted between these times, once for each
        way in which it fits; `names` are known before."""
        wanted, kind = (
            (trigger.fault, self.fault) if trigger.fault else (trigger.operation, self.operation)
        )
        over = self.ended_ns is not None and self.ended_ns + trigger.within_ms * MS < from_ns
        acts = self.effective and self.began_ns <= until_ns and not over
        match = matched(wanted, kind) if acts and kind else None
        both = None if match is None else joined(names, match.names)
        if both is not None:
            for aimed in self._aimed(trigger, both):
                yield from fits(trigger.arguments, self.arguments, aimed)

    def _aimed(self, trigger: Trigger, names: Names) -> Iterator[Names]:
        if trigger.at:
            for target in self.targets:
                match = matched(trigger.at, target)
                both = None if match is None else joined(names, match.names)
                if both is not None:
                    yield both
        elif (
            trigger.operation
            or self.aims_at(names[PROCESS])
            or (trigger.outlives and self._aimed_in_slot_of(names[PROCESS]))
        ):
            yield names

    def aims_at(self, process: str) -> bool:
        """Whether it was aimed at the process, or at its slot, as the faults of links are."""
        return process in self.targets or process.partition("#")[0] in self.targets

    def _aimed_in_slot_of(self, process: str) -> bool:
        """Whether it was aimed at any process of the slot in which the process runs."""
        slot = process.partition("#")[0]
        return any(target.partition("#")[0] == slot for target in self.targets)


@dataclass(frozen=True, slots=True)
class _Place:
    """An event: its position in the history, its time, and the scopes that it concerns."""

    position: int
    at_ns: int
    process: str
    scopes: Collection[str]


@dataclass(frozen=True, slots=True)
class _Search:
    """What the marks of a violation are looked for with: what caused it (None: anything may), its
    event, the last event of its evidence, and what its message names."""

    cause: _Cause | None
    place: _Place
    last: _Place
    broken: Match

    def may_be(self, mark: Mark, one: _Place) -> bool:
        """Whether an event comes after the cause, no later than the evidence, and from a process
        that may have left the mark. The violation is no mark of itself."""
        cause, age_ns = self.cause, self.last.at_ns - one.at_ns
        if one.position > self.last.position or one.position == self.place.position:
            return False
        if mark.within_ms and age_ns > mark.within_ms * MS:
            return False
        if cause is None:
            return True
        aimed = bool(mark.by or cause.operation) or cause.aims_at(one.process)
        return aimed and cause.began_ns <= one.at_ns


@dataclass(slots=True)
class _Touched:
    """What a finding has affected in one scope: the numbers, and the position of its first
    violation there."""

    position: int
    low: int | None
    high: int | None

    def add(self, match: Match) -> None:
        """Affects these numbers, too."""
        if match.low is not None and match.high is not None:
            self.low = match.low if self.low is None else min(self.low, match.low)
            self.high = match.high if self.high is None else max(self.high, match.high)


@final
@dataclass(slots=True)
class _Scenes:
    """What attribution has to know of a history."""

    places: dict[Cause, _Place] = field(default_factory=dict)
    """The events of violations, and those that they name as evidence."""
    faults: dict[str, _Cause] = field(default_factory=dict)
    operations: list[_Cause] = field(default_factory=list)
    marks: dict[Mark, list[tuple[_Place, Match]]] = field(default_factory=dict)
    spreads: dict[Spread, list[tuple[_Place, Match]]] = field(default_factory=dict)


def attributed(
    judgement: Judgement,
    findings: Sequence[KnownFinding],
    events: Iterable[Event],
    elsewhere: Sequence[KnownFinding] = (),
) -> Judgement:
    """The same verdicts. A verdict whose violations are all known findings gets their ids.

    `events` are the run's, in the order of its history. `elsewhere` are findings that other
    versions have: a violation that would be one of them is new, and names it.
    """
    if not findings and not elsewhere:
        return judgement
    scenes = _scenes(judgement, [*findings, *elsewhere], events)
    here, there = (_attribution(judgement, some, scenes) for some in (findings, elsewhere))
    versions = {finding.id: finding.versions for finding in elsewhere}
    marked = {}
    for clause, verdict in judgement.verdicts.items():
        known = _marked(verdict, clause, here)
        violations = tuple(
            msgspec.structs.replace(one, as_known=AsKnown(found, versions[found]))
            if not one.known and (found := there.finding(clause, one))
            else one
            for one in known.violations
        )
        marked[clause] = msgspec.structs.replace(known, violations=violations)
    return replace(judgement, verdicts=marked)


def _attribution(
    judgement: Judgement, findings: Sequence[KnownFinding], scenes: _Scenes
) -> _Attribution:
    attribution = _Attribution(findings, scenes)
    for clause, verdict in judgement.verdicts.items():
        for broken in verdict.violations:
            attribution.note(clause, broken)
    attribution.spread()
    return attribution


def _scenes(
    judgement: Judgement, findings: Sequence[KnownFinding], events: Iterable[Event]
) -> _Scenes:
    broken = [one for verdict in judgement.verdicts.values() for one in verdict.violations]
    wanted = {ref for one in broken for ref in (one.at, *one.because)}
    every_mark = {mark for finding in findings for mark in finding.marks}
    of_kind: dict[str, list[Mark]] = {}
    spreads = {spread for finding in findings for spread in finding.spreads}
    scenes = _Scenes()
    for position, event in enumerate(events):
        if event.ref in wanted:
            scenes.places[event.ref] = _place(position, event)
        marks = of_kind.get(event.kind)
        if marks is None:
            marks = of_kind[event.kind] = [m for m in every_mark if matched(m.kind, event.kind)]
        for mark in marks:
            match = _mark(mark, event)
            if match is not None:
                scenes.marks.setdefault(mark, []).append((_place(position, event), match))
        for spread in spreads:
            if spread.kind == event.kind:
                match = matched(spread.sentence, _sentence(event))
                if match is not None:
                    scenes.spreads.setdefault(spread, []).append((_place(position, event), match))
        _learn_cause(scenes, event)
    return scenes


def _mark(mark: Mark, event: Event) -> Match | None:
    """What an event names, if it has the words of a mark and comes from such a process."""
    by = matched(mark.by or ".*", event.process)
    match = None if by is None else matched(mark.sentence, _sentence(event))
    if by is None or match is None:
        return None
    names = joined(by.names, match.names)
    return None if names is None else replace(match, names=names)


def _learn_cause(scenes: _Scenes, event: Event) -> None:
    match event.body:
        case FaultInjected() as body:
            scenes.faults[body.fault_id] = _Cause(
                fault=body.fault,
                arguments=_arguments(body.arguments),
                targets=body.targets,
                began_ns=body.began_at_ns or event.at_ns,
                effective=body.receipt,
            )
        case FaultTookEffect() as body if body.fault_id in scenes.faults:
            scenes.faults[body.fault_id].effective = True
        case FaultHealed() as body if body.fault_id in scenes.faults:
            scenes.faults[body.fault_id].ended_ns = event.at_ns
        case Administered() as body:
            scenes.operations.append(
                _Cause(
                    operation=body.operation,
                    arguments=_arguments(body.arguments),
                    targets=body.targets,
                    began_ns=event.at_ns,
                    ended_ns=event.at_ns,
                )
            )


def _arguments(text: str) -> Mapping[str, Any]:
    return msgspec.json.decode(text) if text else {}


def _place(position: int, event: Event) -> _Place:
    scopes = event.body.concerns() if has_concerns(event.body) else ()
    return _Place(position, event.at_ns, event.process, scopes)


def _sentence(event: Event) -> str:
    sentence = getattr(event.body, "sentence", None)
    return sentence() if sentence is not None else ""


@final
class _Attribution:
    """Which violations are known: `note` all of them first, since one may explain another."""

    def __init__(self, findings: Sequence[KnownFinding], scenes: _Scenes) -> None:
        self._findings = findings
        self._scenes = scenes
        self._touched: dict[tuple[str, str], _Touched] = {}
        """(finding, scope) -> what it has affected there."""

    def note(self, clause: str, broken: Broken) -> None:
        """Notes what a violation affects, if it is a finding itself."""
        place = self._scenes.places.get(broken.at)
        found = self._itself(clause, broken)
        if place is None or found is None:
            return
        finding, match = found
        for scope in place.scopes:
            known = self._touched.setdefault(
                (finding.id, scope), _Touched(place.position, match.low, match.high)
            )
            known.position = min(known.position, place.position)
            known.add(match)

    def spread(self) -> None:
        """Notes what findings have affected by other events after their violations."""
        for finding in self._findings:
            for spread in finding.spreads:
                for place, match in self._scenes.spreads.get(spread, ()):
                    for scope in _in_wake(finding, place):
                        known = self._touched.get((finding.id, scope))
                        if known is not None and known.position < place.position:
                            known.add(match)

    def finding(self, clause: str, broken: Broken) -> str:
        """The id of the finding that a violation is, or follows from; empty if it is new."""
        found = self._itself(clause, broken)
        if found is not None:
            return found[0].id
        return next((f.id for f in self._findings if self._follows(f, clause, broken)), "")

    def _itself(self, clause: str, broken: Broken) -> tuple[KnownFinding, Match] | None:
        for finding in self._findings:
            match = matched(finding.message, broken.message)
            if clause not in finding.clauses or match is None:
                continue
            if self._caused(finding, match, broken):
                return finding, match
        return None

    def _caused(self, finding: KnownFinding, match: Match, broken: Broken) -> bool:
        """Whether the finding's trigger and marks are there, and about the same things."""
        place = self._scenes.places.get(broken.at)
        if place is None:
            return False
        evidence = [
            self._scenes.places[one] for one in broken.because if one in self._scenes.places
        ]
        last = max((place, *evidence), key=lambda one: one.position)
        names = {PROCESS: place.process, **match.names}
        trigger = finding.trigger
        if trigger is None:
            return self._left(finding, _Search(None, place, last, match), finding.marks, names)
        causes = self._scenes.faults.values() if trigger.fault else self._scenes.operations
        return any(
            self._left(finding, _Search(cause, place, last, match), finding.marks, both)
            for cause in causes
            for both in cause.named(trigger, names, place.at_ns, last.at_ns)
        )

    def _left(
        self, finding: KnownFinding, search: _Search, marks: Sequence[Mark], names: Names
    ) -> bool:
        """Whether the mechanism has left these marks, which agree on the names in them."""
        if not marks:
            return True
        mark, *others = marks
        found = self._fitting(finding, search, mark, names)
        if mark.absent:
            return not any(True for _ in found) and self._left(finding, search, others, names)
        tried: list[Names] = []
        for both in found:
            if both not in tried:
                if self._left(finding, search, others, both):
                    return True
                tried.append(both)
        return False

    def _fitting(
        self, finding: KnownFinding, search: _Search, mark: Mark, names: Names
    ) -> Iterator[Names]:
        """What is known by each event that fits a mark."""
        for one, named in self._scenes.marks.get(mark, ()):
            both = joined(names, named.names)
            if both is None or not search.may_be(mark, one):
                continue
            here = not mark.there or _in_wake(finding, one) & _in_wake(finding, search.place)
            if here and named.meets(search.broken):
                yield both

    def _follows(self, finding: KnownFinding, clause: str, broken: Broken) -> bool:
        """Whether a violation is a consequence of the finding's own."""
        place = self._scenes.places.get(broken.at)
        if place is None:
            return False
        touched = [
            self._touched[finding.id, scope]
            for scope in _in_wake(finding, place)
            if (finding.id, scope) in self._touched
        ]
        for then in finding.then:
            match = matched(then.message, broken.message) if then.clause == clause else None
            if match is not None and any(
                (place.position < one.position) is then.earlier and match.within(one.low, one.high)
                for one in touched
            ):
                return True
        return False


def _in_wake(finding: KnownFinding, place: _Place) -> set[str]:
    return {scope for scope in place.scopes if scope.startswith(f"{finding.wake} ")}


def _marked(verdict: Verdict, clause: str, attribution: _Attribution) -> Verdict:
    if verdict.verdict is not Outcome.VIOLATED:
        return verdict
    violations = tuple(
        msgspec.structs.replace(broken, known=attribution.finding(clause, broken))
        for broken in verdict.violations
    )
    ids = {broken.known for broken in violations}
    # Violations that were counted but not kept may be new, so they are not treated as known.
    all_known = "" not in ids and verdict.violated == len(violations)
    known = tuple(sorted(ids)) if all_known else ()
    return msgspec.structs.replace(verdict, violations=violations, known=known)
