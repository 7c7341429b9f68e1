"""Separates the violations of a run that are known findings of its system from new ones.

The problem. A soak of a system with a known weakness violates clauses in most runs. Somebody must
see at once whether anything new is among them. Two mistakes are possible, and only one of them is
bad: a new violation that is called known is lost for good. A finding that matched by the sentence
of a violation, and by a fault that had ever struck the process, called all violations of its
partition known for the rest of the run. So whatever fits only partly is new.

The rules:

* A violation is a finding itself if the finding's function says so (`KnownFinding.caused`).
* It follows from a finding if it is in a scope that the finding has affected, and of numbers, such
  as offsets, that it has affected there. Nearness in time is no reason. But what was
  written long after the finding is not of its wake (`Wake.within_ms`): an hour later, other writes
  with the same offsets were lost at another failover, and were "known".
* So all violations are seen twice: at first those that are findings themselves, with what they
  affect; then the others. In one pass, what stands before the finding would be new: the
  acknowledgement of a message comes before the truncation that loses it (`Follows.earlier`).
* A clause is known only if each of its violations is. Those that were counted and not kept
  (`VIOLATIONS_KEPT`) may be new.
* A finding that only other versions have is named beside the violation, which stays new.

What is not done. Numbers are one range for a scope, from the lowest to the highest: a hole in it
counts as affected. Nothing here changes an outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import msgspec

from fencepost.events import Event
from fencepost.events.traits import tells_operations
from fencepost.judging.known_findings import KnownFinding, Numbers, both
from fencepost.judging.scene import Place, Scenes
from fencepost.judging.verdicts import AsKnown, Broken, Judgement, Outcome, Verdict
from fencepost.model.clock import MS


@dataclass(slots=True)
class _Touched:
    """What a finding has affected in one scope."""

    position: int
    """That of its first violation there: from it on, or up to it, others may follow."""
    numbers: Numbers
    """From the lowest to the highest. None: the finding states none, and only what is of any
    numbers follows."""
    last_ns: int
    """When its last violation there was."""


def attributed(
    judgement: Judgement,
    findings: Sequence[KnownFinding],
    events: Iterable[Event],
    elsewhere: Sequence[KnownFinding] = (),
    version: str = "",
) -> Judgement:
    """The same verdicts. A verdict whose violations are all known findings gets their ids.

    `events` are the run's, in the order of its history. `elsewhere` are findings that other
    versions have: a violation that would be one of them is new, and names it. A finding that stands
    in for one of the run's own `version` is named with its own versions.
    """
    if not findings and not elsewhere:
        return judgement
    scenes = _scenes(judgement, [*findings, *elsewhere], events)
    # Two separate runs over the same scenes: what follows from a finding of another version must
    # not become known here.
    here, there = (_Attribution(judgement, some, scenes) for some in (findings, elsewhere))
    versions = {finding.id: finding.versions for finding in (*findings, *elsewhere)}
    marked = {}
    for clause, verdict in judgement.verdicts.items():
        known = _marked(verdict, clause, here)
        violations = tuple(
            msgspec.structs.replace(one, as_known=AsKnown(found, versions[found]))
            if (found := one.known or there.finding(clause, one))
            # What is known here needs no other name.
            and not (one.known and version in ("", *versions[found]))
            else one
            for one in known.violations
        )
        marked[clause] = msgspec.structs.replace(known, violations=violations)
    return replace(judgement, verdicts=marked)


def _scenes(
    judgement: Judgement, findings: Sequence[KnownFinding], events: Iterable[Event]
) -> Scenes:
    broken = [one for verdict in judgement.verdicts.values() for one in verdict.violations]
    wakes = [finding.wake for finding in findings if finding.wake is not None]
    kinds = {kind for finding in findings for kind in finding.reads}
    scenes = Scenes(
        # Only these events are kept, and those of the kinds that findings read: a history may have
        # a million.
        wanted={ref for one in broken for ref in (one.at, *one.because)},
        kinds=kinds.union(*(wake.spreads for wake in wakes)),
    )
    for position, event in enumerate(events):
        scenes.take(position, event)
    return scenes


@final
class _Attribution:
    """Which violations are known."""

    def __init__(
        self, judgement: Judgement, findings: Sequence[KnownFinding], scenes: Scenes
    ) -> None:
        self._findings = findings
        self._scenes = scenes
        self._touched: dict[tuple[str, str], _Touched] = {}
        """(finding, scope) -> what it has affected there."""
        # 1. Every violation that is a finding itself, with all that it affects. 2. What spreads
        # from there. Only then `finding` may be asked: a violation may follow from one that stands
        # behind it.
        for clause, verdict in judgement.verdicts.items():
            for broken in verdict.violations:
                self._note(clause, broken)
        self._spread()

    def finding(self, clause: str, broken: Broken) -> str:
        """The id of the finding that a violation is, or follows from; empty if it is new."""
        # To be a finding is stronger than to follow from one: a violation that both fit is counted
        # once.
        found = self._itself(clause, broken)
        if found is not None:
            return found.id
        return next((f.id for f in self._findings if self._follows(f, clause, broken)), "")

    def _itself(self, clause: str, broken: Broken) -> KnownFinding | None:
        scene = self._scenes.around(broken)
        # The history lacks the violation's own event, so nothing about it can be known: it stays
        # new.
        if scene is None:
            return None
        return next((f for f in self._findings if clause in f.clauses and f.caused(scene)), None)

    def _note(self, clause: str, broken: Broken) -> None:
        """Notes what a violation affects, if it is a finding itself."""
        finding = self._itself(clause, broken)
        if finding is None or finding.wake is None:
            return
        place, wake = self._scenes.places[broken.at], finding.wake
        numbers = None if wake.numbers is None else wake.numbers(broken.facts)
        for scope in _in_wake(finding, place):
            # The earliest position and the widest range of all violations in the scope that are
            # this finding.
            last_ns = place.event.at_ns
            known = self._touched.setdefault(
                (finding.id, scope), _Touched(place.position, numbers, last_ns)
            )
            known.position = min(known.position, place.position)
            known.numbers = both(known.numbers, numbers)
            known.last_ns = max(known.last_ns, last_ns)

    def _spread(self) -> None:
        """Notes what findings have affected by other events after their violations."""
        for finding in self._findings:
            for kind, numbers in finding.wake.spreads.items() if finding.wake else ():
                for place in self._scenes.of_kind.get(kind, ()):
                    for scope in _in_wake(finding, place):
                        known = self._touched.get((finding.id, scope))
                        # Only behind the finding's own violation, and only where that affected
                        # something: the same kind of event occurs without it, too.
                        if known is not None and known.position < place.position:
                            known.numbers = both(known.numbers, numbers(place.event.body))

    def _follows(self, finding: KnownFinding, clause: str, broken: Broken) -> bool:
        """Whether a violation is a consequence of the finding's own."""
        place, wake = self._scenes.places.get(broken.at), finding.wake
        if place is None or wake is None:
            return False
        evidence = (self._scenes.places.get(ref) for ref in broken.because)
        written_ns = max((_written_ns(one.event) for one in evidence if one), default=0)
        touched = [
            self._touched[finding.id, scope]
            for scope in _in_wake(finding, place)
            if (finding.id, scope) in self._touched
        ]
        return any(
            # On the right side of the finding: `earlier` for what stands before its violation,
            # since it is lost only later.
            (place.position < one.position) is then.earlier
            # What was written long after the finding is lost by something else, though it has the
            # same numbers.
            and written_ns <= one.last_ns + wake.within_ms * MS
            and then.affected(broken.facts, one.numbers)
            for then in wake.follows
            if then.clause == clause
            for one in touched
        )


def _written_ns(event: Event) -> int:
    """When a client was told of something that it had asked for, such as a write; 0: not so."""
    body = event.body
    return event.at_ns if tells_operations(body) and any(body.client_operations()) else 0


def _in_wake(finding: KnownFinding, place: Place) -> set[str]:
    """The scopes of an event that the finding may affect."""
    assert finding.wake is not None
    # With the space: a scope of the kind `lease` is none of the kind `lease-holder`.
    return {scope for scope in place.scopes if scope.startswith(f"{finding.wake.scope} ")}


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
