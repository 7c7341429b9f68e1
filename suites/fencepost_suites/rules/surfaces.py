"""Promises about formats, defaults and surfaces: seen by a test that looks, since no event shows
them. The rule judges what the test says it saw, by whose word it saw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from msgspec import Struct

from fencepost import (
    Event,
    Exercised,
    Finding,
    Key,
    PromiseWitnessed,
    RunEnd,
    Violated,
    Witness,
)
from fencepost_suites.rules.keys import NOTHING, whole_run


@final
@dataclass(frozen=True, slots=True)
class SeenByTest:
    """One such clause: exercised each time a test saw it hold, violated when it saw it broken."""

    clause: str
    kinds: frozenset[type[Struct]] = frozenset({PromiseWitnessed})
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> None:
        return None

    def step(self, state: None, event: Event) -> tuple[None, Sequence[Finding]]:
        body = event.body
        if not isinstance(body, PromiseWitnessed) or body.clause != self.clause:
            return state, NOTHING
        witness = Witness(body.witness)
        if body.held:
            return state, (Exercised(event.ref, witness),)
        return state, (Violated(event.ref, witness, body.evidence),)

    def end(self, state: None, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
