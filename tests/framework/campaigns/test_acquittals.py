"""Lies that acquit: what one false word of the accused makes of a violation.

Two promises of a plugin. A holder grants no lease of more than ten seconds, which only its own word
shows; and what a peer received is what was granted.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random  # noqa: TID251 - seeded here

import pytest
from msgspec import Struct

from fencepost import (
    Clause,
    Event,
    Evidence,
    Excused,
    Findings,
    Key,
    Rule,
    Stalled,
    Undecided,
    on,
    violated,
)
from fencepost.campaigns.acquittals import Acquittals, Became, Charge, charged, end_of, tried
from fencepost.campaigns.lies import WITHHELD, How, Lie, Truth
from fencepost.judging.folder import Promises
from fencepost.testing import HistoryBuilder

HOLDER, PEER = "node-1#1", "node-2#1"


class Granted(Struct, frozen=True, tag="test.granted", kw_only=True):
    lease: str
    seconds: int
    reason: str = ""


class Received(Struct, frozen=True, tag="test.received", kw_only=True):
    lease: str
    seconds: int


def by_lease(event: Event) -> Iterable[Key]:
    body = event.body
    assert isinstance(body, Granted | Received)
    return ((body.lease,),)


class GrantsAreShort(Rule[None]):
    clause = "X-1"
    keys = staticmethod(by_lease)

    @on(Granted)
    def _granted(self, state: None, event: Event, body: Granted) -> Findings:
        if body.seconds <= 10:
            return ()
        broken = violated(event.ref, Evidence.SELF, "{seconds} s", seconds=body.seconds)
        if body.reason == "struck":
            return (Excused(event.ref, broken.message),)
        return (Undecided(broken.message, event.ref),) if body.reason == "unsure" else (broken,)


class Last:
    def __init__(self) -> None:
        self.seconds = -1


class WhatIsReceivedWasGranted(Rule[Last]):
    clause = "X-2"
    keys = staticmethod(by_lease)
    state = Last

    @on(Granted)
    def _granted(self, state: Last, event: Event, body: Granted) -> Findings:
        state.seconds = body.seconds
        return ()

    @on(Received)
    def _received(self, state: Last, event: Event, body: Received) -> Findings:
        if body.seconds == state.seconds:
            return ()
        return (violated(event.ref, Evidence.PEER, "{seconds} s", seconds=body.seconds),)


CLAUSES = {one: Clause(one, "seed", (), "It is kept.") for one in ("X-1", "X-2")}


def truth_of(h: HistoryBuilder) -> Truth:
    return Truth(
        events=h.events(),
        end=h.end(),
        plane="quorum",
        nodes={"node-1", "node-2"},
        promises=Promises((GrantsAreShort(), WhatIsReceivedWasGranted()), CLAUSES),
    )


def history(*, received: bool) -> HistoryBuilder:
    """The lease `a` is granted twice, and `b` once; one grant of `a` is too long. The reasons of
    `b` are words that others could take."""
    h = HistoryBuilder()
    h.add(HOLDER, Granted(lease="a", seconds=8))
    h.add(HOLDER, Granted(lease="a", seconds=11))
    if received:
        h.add(PEER, Received(lease="a", seconds=11))
    h.add(HOLDER, Granted(lease="b", seconds=9, reason="struck"))
    h.add(HOLDER, Granted(lease="b", seconds=9, reason="unsure"))
    return h


def charge_of(h: HistoryBuilder) -> Charge:
    charge = charged(truth_of(h), "X-1")
    assert charge is not None
    return charge


def lie(charge: Charge, place: int, field: str, how: How, value: object = None) -> Lie:
    at = frozenset({charge.truth.events[place].ref})
    return Lie(slot="node-1", kind=Granted, field=field, how=how, value=value, places=at)


@pytest.mark.parametrize(
    ("place", "field", "how", "value", "became"),
    [
        (1, "seconds", "more", None, Became.VIOLATED),
        (0, "seconds", "less", None, Became.VIOLATED),
        (1, "lease", "other", "b", Became.VIOLATED),
        (1, "reason", "other", "unsure", Became.UNDECIDED),
        (1, "reason", "other", "struck", Became.EXCUSED),
        (1, "seconds", "less", None, Became.ACQUITTED),
        (1, WITHHELD, "withheld", None, Became.ACQUITTED),
    ],
)
def test_a_lie_leaves_the_violation_or_takes_it_away_with_or_without_a_word(
    place: int, field: str, how: How, value: object, became: Became
) -> None:
    charge = charge_of(history(received=False))
    assert charge.became(lie(charge, place, field, how, value)) == (became, ())


def test_a_lie_that_a_peer_contradicts_acquits_nobody() -> None:
    charge = charge_of(history(received=True))
    less = lie(charge, 1, "seconds", "less")
    assert charge.became(less) == (Became.CONTRADICTED, ("X-2",))


def test_the_charge_is_about_the_keys_and_the_node_of_the_first_violation() -> None:
    charge = charge_of(history(received=True))
    assert charge.keys == {("a",)}
    assert charge.slots == ["node-1"]
    assert charge.named == {charge.truth.events[1].ref}


def test_a_history_without_a_violation_has_no_charge() -> None:
    assert charged(truth_of(history(received=False)), "X-2") is None
    assert tried(truth_of(history(received=False)), "none", ["X-2"], Random(1), 20) == []


def test_lies_are_told_by_the_accused_within_the_keys_in_what_the_clause_reads() -> None:
    charge = charge_of(history(received=True))
    lies = list(charge.lies(Random(1), 20))
    assert lies == list(charge.lies(Random(1), 20))
    within = {charge.truth.events[place].ref for place in (0, 1)}
    assert {ref for one in lies for ref in one.places} == within
    assert {one.kind for one in lies} == {Granted}
    assert {one.field for one in lies} == {WITHHELD, *Granted.__struct_fields__}
    # Everywhere at once, too.
    assert any(one.places == within for one in lies)


def test_no_more_places_are_altered_than_asked_for_and_those_of_the_violation_come_first() -> None:
    charge = charge_of(history(received=True))
    alone = {ref for one in charge.lies(Random(1), 1) if len(one.places) == 1 for ref in one.places}
    assert alone == charge.named


def test_lies_are_counted_by_the_word_that_they_are_about() -> None:
    truth = truth_of(history(received=False))
    found = Acquittals(tried(truth, "grants-too-long", ["X-1"], Random(1), 20), ["never-seen"])
    printed = found.as_json()
    assert printed["tried"] == len(found.lies)
    assert printed["acquitted"] == len(found.acquitted) > 0
    assert printed["not_found"] == ["never-seen"]
    assert all(not one.place for one in found.consistent.lies)
    assert 0 < len(found.consistent.lies) < len(found.lies)
    assert sum(one.tried for one in found.words()) == len(found.lies)
    withheld = next(one for one in found.words() if one.field == WITHHELD)
    # At each of two places, and everywhere at once.
    assert (withheld.tried, withheld.acquitted) == (3, 2)
    assert withheld.defects == ["grants-too-long"]


def test_a_stall_that_is_claimed_counts_as_long_as_the_lie_says() -> None:
    h = HistoryBuilder()
    h.add(HOLDER, Granted(lease="a", seconds=1))
    h.after(5_000)
    h.add(HOLDER, Stalled(stalled_ns=1_000_000_000))
    claimed = Lie(slot="node-1", kind=Stalled, field="stalled_ns", how="other", value=3_000_000_000)
    said = [claimed.applied(event) for event in h.events()]
    (stall,) = end_of([event for event in said if event is not None], h.end()).stalls
    assert stall[2] - stall[1] == 3_000_000_000
