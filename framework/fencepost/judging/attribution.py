"""Separates the violations of a run that are known findings of its system from new ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from fencepost.events import Cause, Event, FaultInjected
from fencepost.events.traits import has_concerns
from fencepost.judging.judge import Broken, Judgement, Outcome, Verdict
from fencepost.judging.known_findings import KnownFinding


@dataclass(frozen=True, slots=True)
class _Scene:
    """The scopes of authority that the event of a violation concerns, and the faults that had been
    injected at its process before it."""

    scopes: Collection[str]
    faults: Collection[str]


_NOWHERE = _Scene((), ())


def attributed(
    judgement: Judgement, findings: Sequence[KnownFinding], events: Iterable[Event]
) -> Judgement:
    """The same verdicts. A verdict whose violations are all known findings gets their ids.

    `events` are the run's, in any order.
    """
    if not findings:
        return judgement
    scenes = _scenes(judgement, events)

    def itself(clause: str, broken: Broken) -> str:
        """The id of the finding that a violation matches; empty if none."""
        scene = scenes.get(broken.at, _NOWHERE)
        matching = (f.id for f in findings if f.matches(clause, broken.message, scene.faults))
        return next(matching, "")

    showed = {
        (itself(clause, broken), scope)
        for clause, verdict in judgement.verdicts.items()
        for broken in verdict.violations
        for scope in scenes.get(broken.at, _NOWHERE).scopes
    }

    def known(clause: str, broken: Broken) -> str:
        """The id of the finding that a violation matches, or is a consequence of; empty if none."""
        scopes = scenes.get(broken.at, _NOWHERE).scopes
        wake = (
            f.id
            for f in findings
            if clause in f.then
            and any(s.startswith(f"{f.wake} ") and (f.id, s) in showed for s in scopes)
        )
        return itself(clause, broken) or next(wake, "")

    return Judgement({c: _marked(v, c, known) for c, v in judgement.verdicts.items()})


def _scenes(judgement: Judgement, events: Iterable[Event]) -> Mapping[Cause, _Scene]:
    """The scene of every violation's event."""
    wanted = {v.at for verdict in judgement.verdicts.values() for v in verdict.violations}
    found: dict[Cause, Event] = {}
    injected: list[tuple[int, FaultInjected]] = []
    for event in events:
        if event.ref in wanted:
            found[event.ref] = event
        if isinstance(event.body, FaultInjected):
            injected.append((event.body.began_at_ns or event.at_ns, event.body))
    return {
        at: _Scene(
            event.body.concerns() if has_concerns(event.body) else (),
            {s.fault for t, s in injected if at.process in s.targets and t <= event.at_ns},
        )
        for at, event in found.items()
    }


def _marked(verdict: Verdict, clause: str, known: Callable[[str, Broken], str]) -> Verdict:
    # Violations that were counted but not kept may be new, so they are not treated as known.
    if verdict.verdict is not Outcome.VIOLATED or verdict.violated > len(verdict.violations):
        return verdict
    ids = {known(clause, broken) for broken in verdict.violations}
    return verdict if "" in ids else structs.replace(verdict, known=tuple(sorted(ids)))
