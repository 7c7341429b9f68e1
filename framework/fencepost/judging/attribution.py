"""Separates the violations of a run that are known findings of its system from new ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import msgspec

from fencepost.events import Cause, Event, FaultHealed, FaultInjected
from fencepost.events.traits import has_concerns
from fencepost.judging.known_findings import KnownFinding, Mark, Match, Spread, Trigger, matched
from fencepost.judging.verdicts import Broken, Judgement, Outcome, Verdict
from fencepost.model.clock import MS


@dataclass(slots=True)
class _Fault:
    """A fault, from the beginning of its injection until it was healed, if it was."""

    kind: str
    arguments: Mapping[str, Any]
    targets: Collection[str]
    began_ns: int
    healed_ns: int | None = None

    def acts(self, trigger: Trigger, process: str, at_ns: int) -> bool:
        """Whether it is that trigger, aimed at the process, and may have acted at that time."""
        until_ns = None if self.healed_ns is None else self.healed_ns + trigger.within_ms * MS
        return (
            self.kind == trigger.fault
            and (self.aims_at(process) or (trigger.outlives and self.aimed_in_slot_of(process)))
            and trigger.arguments.items() <= self.arguments.items()
            and self.began_ns <= at_ns
            and (until_ns is None or at_ns <= until_ns)
        )

    def aims_at(self, process: str) -> bool:
        """Whether it was aimed at the process, or at its slot, as the faults of links are."""
        return process in self.targets or process.partition("#")[0] in self.targets

    def aimed_in_slot_of(self, process: str) -> bool:
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
    """The events of violations."""
    faults: dict[str, _Fault] = field(default_factory=dict)
    marks: dict[Mark, list[tuple[_Place, Match]]] = field(default_factory=dict)
    spreads: dict[Spread, list[tuple[_Place, Match]]] = field(default_factory=dict)


def attributed(
    judgement: Judgement, findings: Sequence[KnownFinding], events: Iterable[Event]
) -> Judgement:
    """The same verdicts. A verdict whose violations are all known findings gets their ids.

    `events` are the run's, in the order of its history.
    """
    if not findings:
        return judgement
    attribution = _Attribution(findings, _scenes(judgement, findings, events))
    for clause, verdict in judgement.verdicts.items():
        for broken in verdict.violations:
            attribution.note(clause, broken)
    attribution.spread()
    return Judgement({c: _marked(v, c, attribution) for c, v in judgement.verdicts.items()})


def _scenes(
    judgement: Judgement, findings: Sequence[KnownFinding], events: Iterable[Event]
) -> _Scenes:
    wanted = {v.at for verdict in judgement.verdicts.values() for v in verdict.violations}
    of_kind: dict[str, list[Mark]] = {}
    for mark in {mark for finding in findings for mark in finding.marks}:
        of_kind.setdefault(mark.kind, []).append(mark)
    spreads = {spread for finding in findings for spread in finding.spreads}
    scenes = _Scenes()
    for position, event in enumerate(events):
        body = event.body
        if event.ref in wanted:
            scenes.places[event.ref] = _place(position, event)
        for mark in of_kind.get(event.kind, ()):
            match = matched(mark.sentence, _sentence(event))
            if match is not None:
                scenes.marks.setdefault(mark, []).append((_place(position, event), match))
        for spread in spreads:
            if spread.kind == event.kind:
                match = matched(spread.sentence, _sentence(event))
                if match is not None:
                    scenes.spreads.setdefault(spread, []).append((_place(position, event), match))
        if isinstance(body, FaultInjected):
            scenes.faults[body.fault_id] = _Fault(
                body.fault,
                msgspec.json.decode(body.arguments) if body.arguments else {},
                body.targets,
                body.began_at_ns or event.at_ns,
            )
        elif isinstance(body, FaultHealed) and body.fault_id in scenes.faults:
            scenes.faults[body.fault_id].healed_ns = event.at_ns
    return scenes


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
        """Whether the finding's trigger and marks are there."""
        trigger = finding.trigger
        if trigger is None:
            return True
        place = self._scenes.places.get(broken.at)
        if place is None:
            return False
        return any(
            fault.acts(trigger, match.process or place.process, place.at_ns)
            and all(self._left(mark, finding, fault, place, match) for mark in finding.marks)
            for fault in self._scenes.faults.values()
        )

    def _left(
        self, mark: Mark, finding: KnownFinding, fault: _Fault, place: _Place, broken: Match
    ) -> bool:
        """Whether the mechanism has left this mark before the violation."""
        return any(
            fault.aims_at(one.process)
            and fault.began_ns <= one.at_ns
            and one.position < place.position
            and (not mark.there or bool(_in_wake(finding, one) & _in_wake(finding, place)))
            and named.meets(broken)
            for one, named in self._scenes.marks.get(mark, ())
        )

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
    # Violations that were counted but not kept may be new, so they are not treated as known.
    if verdict.verdict is not Outcome.VIOLATED or verdict.violated > len(verdict.violations):
        return verdict
    ids = {attribution.finding(clause, broken) for broken in verdict.violations}
    if "" in ids:
        return verdict
    return msgspec.structs.replace(verdict, known=tuple(sorted(ids)))
