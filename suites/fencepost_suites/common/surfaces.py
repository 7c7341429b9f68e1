"""Promises about formats, defaults and surfaces. No event shows them, so a test checks them itself
and records the result. The rule judges that record."""

from __future__ import annotations

from typing import final

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Exercised,
    Findings,
    PromiseObserved,
    Rule,
    on,
    violated,
)


def observed(event: Event, clause: str) -> Findings:
    """A test's own observation of a clause."""
    body = event.body
    if not isinstance(body, PromiseObserved) or body.clause != clause:
        return NOTHING
    source = Evidence(body.seen_by)
    if body.held:
        return (Exercised(event.ref, source),)
    return (violated(event.ref, source, "{seen}", seen=body.evidence),)


@final
class SeenByTest(Rule[None]):
    """One such clause: exercised each time a test saw it hold, violated each time a test saw it
    broken."""

    @on(PromiseObserved)
    def step(self, state: None, event: Event, body: PromiseObserved) -> Findings:
        return observed(event, self.clause)
