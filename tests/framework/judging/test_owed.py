"""A rule that reads absence concludes nothing of a kind that nodes owed and none has printed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from msgspec import Struct

from fencepost import (
    Clause,
    Event,
    Evidence,
    Exercised,
    Findings,
    Owed,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    on,
)
from fencepost.judging.judge import judge
from fencepost.judging.verdicts import Verdict
from fencepost.testing import HistoryBuilder, Outcome

CLAUSE = {"X-1": Clause("X-1", "test", (), "What is acknowledged is stored.")}


class Acknowledged(Struct, frozen=True, tag="test.owed.acknowledged"):
    """A client's word; `certain`: something must have been stored for it."""

    certain: bool = True


class Stored(Struct, frozen=True, tag="test.owed.stored"):
    """A node's word."""


STORED = Owed(Stored, "a write was acknowledged", {Acknowledged: lambda body: body.certain})


@dataclass
class Disk:
    stored: bool = False


class IsStored(Rule[Disk]):
    """Each acknowledgement breaks the promise, unless something was stored before."""

    clause = "X-1"
    state = Disk

    def __init__(self, absence: tuple[Owed, ...] = (STORED,)) -> None:
        super().__init__()
        self.absence = absence

    @on(Stored)
    def _stored(self, state: Disk, event: Event, body: Stored) -> Findings:
        state.stored = True
        return ()

    @on(Acknowledged)
    def _acknowledged(self, state: Disk, event: Event, body: Acknowledged) -> Findings:
        if state.stored:
            return (Exercised(event.ref, Evidence.CLIENT),)
        return (Violated(event.ref, Evidence.CLIENT, "it is not stored"),)

    def end(self, state: Disk, end: RunEnd) -> Findings:
        return () if state.stored else (Undecided("nothing was stored yet"),)


def verdict(h: HistoryBuilder, *rules: IsStored, plane: str = "any") -> Verdict:
    judged = judge(h.events(), rules or [IsStored()], CLAUSE, h.end(), plane, release="acme 1.2")
    return judged.verdicts["X-1"]


def test_a_kind_that_is_owed_and_that_no_node_prints_makes_its_rules_unknown() -> None:
    h = HistoryBuilder()
    h.add("client-1", Acknowledged())
    found = verdict(h)
    assert (found.verdict, found.violated) == (Outcome.UNKNOWN, 0)
    assert found.reason.endswith(
        "acme 1.2 printed no test.owed.stored, though a write was acknowledged"
    )


@pytest.mark.parametrize("first", [True, False])
def test_a_kind_that_any_node_prints_is_heard(first: bool) -> None:
    """Then its absence elsewhere says what it says, whichever came first."""
    h = HistoryBuilder()
    if first:
        h.add("node-2", Stored())
    h.add("client-1", Acknowledged())
    h.add("node-2", Stored())
    assert verdict(h).verdict is (Outcome.HOLDS if first else Outcome.VIOLATED)


def test_a_kind_that_nothing_obliges_is_not_owed() -> None:
    h = HistoryBuilder()
    h.add("client-1", Acknowledged(certain=False))
    assert verdict(h).verdict is Outcome.VIOLATED


def test_where_nodes_never_print_a_kind_it_is_not_owed() -> None:
    """There other rules of the clause judge, such as by the disks."""
    h = HistoryBuilder()
    h.add("client-1", Acknowledged())
    silent = replace(STORED, silent_on=("legacy",))
    rule = IsStored(absence=(silent,))
    assert verdict(h, rule, plane="legacy").verdict is Outcome.VIOLATED
    assert verdict(h, rule, plane="any").verdict is Outcome.UNKNOWN


def test_a_rule_that_does_not_read_the_absence_stays_certain() -> None:
    h = HistoryBuilder()
    h.add("client-1", Acknowledged())
    assert verdict(h, IsStored(absence=())).verdict is Outcome.VIOLATED
    both = verdict(h, IsStored(absence=()), IsStored())
    assert (both.verdict, both.violated) == (Outcome.VIOLATED, 1)
