"""Promises about formats, defaults and surfaces. No event shows them, so a test checks them itself
and records the result. The rule judges that record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Exercised,
    Finding,
    Key,
    PromiseObserved,
    RunEnd,
    violated,
    whole_run,
)


def observed(event: Event, clause: str) -> Sequence[Finding]:
    """A test's own observation of a clause."""
    body = event.body
    if not isinstance(body, PromiseObserved) or body.clause != clause:
        return NOTHING
    source = Evidence(body.seen_by)
    if body.held:
        return (Exercised(event.ref, source),)
    return (violated(event.ref, source, "{seen}", seen=body.evidence),)


@final
class SeenByTest(Struct, frozen=True):
    """One such clause: exercised each time a test saw it hold, violated each time a test saw it
    broken."""

    clause: str
    kinds: frozenset[type[Struct]] = frozenset({PromiseObserved})
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> None:
        return None

    def step(self, state: None, event: Event) -> tuple[None, Sequence[Finding]]:
        return state, observed(event, self.clause)

    def end(self, state: None, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
