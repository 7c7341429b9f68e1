"""A finding explains the violations of its cause, and leaves the others new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import Struct
from tests.framework.testing.known_finding import FINDING

from fencepost import (
    Event,
    Evidence,
    FaultHealed,
    FaultInjected,
    Findings,
    Rule,
    RunEnd,
    Seen,
    on,
    slot_scope,
    violated,
)
from fencepost.testing import HistoryBuilder, kit


class WriteLost(Struct, frozen=True, kw_only=True, tag="store.write_lost"):
    """The last reading lacks a write that a server had acknowledged."""

    server: str


class KeepsWrites(Rule[None]):
    clause = "STORE-1"

    @on(WriteLost)
    def _lost(self, state: None, event: Event, body: WriteLost) -> Findings:
        lost = "a write that {server} acknowledged is lost"
        return (violated(event.ref, Evidence.CLIENT, lost, server=slot_scope(body.server)),)


def history(cut_off: str, heals_ms: int = 1_000) -> tuple[Sequence[Event], RunEnd]:
    """A fault cuts one server off, and a write that server-1 acknowledged is lost."""
    made = HistoryBuilder()
    cut = FaultInjected(
        fault_id="isolate-1",
        fault="isolate",
        targets=("server-1", "server-2", "server-3"),
        receipt=True,
        evidence="silence",
        arguments=f'{{"node": "{cut_off}"}}',
    )
    made.add("harness", cut)
    made.add("harness", FaultHealed(fault_id="isolate-1", receipt=True, evidence="it answers"))
    made.after(heals_ms).add("clients/reader-1#1", WriteLost(server="server-1"))
    return made.events(), made.end()


def test_a_finding_explains_what_it_caused_and_nothing_else() -> None:
    of_it = history("server-1")
    kit.check_known_finding(FINDING, KeepsWrites(), known=of_it, new=history("server-2"))
    kit.check_known_finding(FINDING, KeepsWrites(), known=of_it, new=history("server-1", 31_000))


def test_a_finding_that_explains_too_much_or_nothing_is_refused() -> None:
    of_it, other = history("server-1"), history("server-2")
    everything = replace(FINDING, caused=lambda scene: True)
    with pytest.raises(AssertionError, match="takes a violation that is new for its own"):
        kit.check_known_finding(everything, KeepsWrites(), known=of_it, new=other)
    with pytest.raises(AssertionError, match="does not explain its own violation: a write that "):
        kit.check_known_finding(FINDING, KeepsWrites(), known=other, new=of_it)
    with pytest.raises(AssertionError, match="has no violation of STORE-1"):
        kit.check_known_finding(FINDING, KeepsWrites(), known=((), of_it[1]), new=other)
    never = replace(FINDING, seen=(Seen("", 0, 22),))
    with pytest.raises(AssertionError, match="is known in no version"):
        kit.check_known_finding(never, KeepsWrites(), known=of_it, new=other)
