"""What stalls, and a history that lacks events, leave of a bound that was exceeded."""

from __future__ import annotations

import pytest

from fencepost import (
    HARNESS,
    Deadline,
    Evidence,
    Excused,
    RunEnd,
    Undecided,
    Violated,
    judged,
    process_scope,
)
from fencepost.events import Cause
from fencepost.history.run_end import READ_WITHIN_NS
from fencepost.judging.deadlines import ANEW_NS

BROKEN = Violated(Cause("broker-1#1", 3), Evidence.PEER, "broker 1 is late")
BOUND_NS = 1_000


def late(
    *actors: str,
    due_ns: int | None = None,
    omission: bool = True,
    witnesses: tuple[str, ...] = (),
) -> Deadline:
    """A duty that began at 10,000 and was done at 12,000; it may take 1,000."""
    times = (10_000, 12_000, BOUND_NS)
    return Deadline(BROKEN, actors, *times, due_ns=due_ns, omission=omission, witnesses=witnesses)


def found(one: Deadline, *stalls: tuple[str, int, int], complete: bool = True) -> type:
    (finding,) = judged((one,), RunEnd(complete, 20_000, stalls=stalls))
    return type(finding)


@pytest.mark.parametrize(
    ("stalls", "what"),
    [
        ((), Violated),
        ([("broker-1#1", 10_000, 10_100)], Violated),
        ([("broker-1#1", 10_000, 10_101)], Undecided),
        ([("broker-1#1", 9_000, 10_100)], Violated),  # only what lies within the time counts
        ([("broker-1#1", 11_950, 13_000), ("broker-1#1", 10_500, 10_551)], Undecided),
        ([("broker-2#1", 10_000, 12_000)], Violated),  # nobody waits for broker 2
        ([(HARNESS, 10_000, 12_000)], Violated),
    ],
)  # fmt: skip
def test_more_than_a_tenth_of_the_bound_leaves_it_open(
    stalls: list[tuple[str, int, int]], what: type
) -> None:
    assert found(late("broker-1#1"), *stalls) is what


@pytest.mark.parametrize("actor", ["clients/reader#1", "clients/reader", "clients"])
def test_an_actor_is_a_process_a_slot_or_a_group_of_slots(actor: str) -> None:
    assert found(late(actor), ("clients/reader#1", 10_000, 10_200)) is Undecided
    assert found(late(actor), ("clients-2/reader#1", 10_000, 10_200)) is Violated


def test_stalls_at_the_same_time_count_once() -> None:
    both = [("broker-1#1", 10_000, 10_080), ("broker-2#1", 10_010, 10_090)]
    assert found(late("broker-1", "broker-2"), *both) is Violated
    apart = [("broker-1#1", 10_000, 10_080), ("broker-2#1", 10_080, 10_160)]
    assert found(late("broker-1", "broker-2"), *apart) is Undecided


@pytest.mark.parametrize(
    ("since_ns", "what"), [(11_100, Excused), (11_101, Undecided)], ids=["reason", "none"]
)
def test_a_stall_that_covers_the_delay_is_the_reason_for_it(since_ns: int, what: type) -> None:
    assert found(late("broker-1", due_ns=11_000), ("broker-1#1", since_ns, 12_000)) is what


def test_what_is_seen_when_it_is_due_is_excused_by_no_stall_of_no_length() -> None:
    assert found(late("broker-1", due_ns=12_000)) is Violated


@pytest.mark.parametrize(("due_ns", "what"), [(11_000, Excused), (None, Undecided)])
def test_a_stall_that_explains_a_delay_is_named_as_facts(
    due_ns: int | None, what: type[Excused | Undecided]
) -> None:
    stalls = (("broker-1#1", 11_000, 12_000),)
    (finding,) = judged([late("broker-1", due_ns=due_ns)], RunEnd(True, 20_000, stalls=stalls))
    assert isinstance(finding, what)
    assert finding.why["stalled"] == process_scope("broker-1#1")
    assert finding.why["stalled_ns"] == 1_000


@pytest.mark.parametrize("bound_ns", [BOUND_NS, ANEW_NS])
def test_a_stall_explains_its_own_length_and_what_begins_anew_and_no_more(bound_ns: int) -> None:
    """600 s without a write were undecided, since a standby had stood still for 2 s."""
    stalled_ns = bound_ns // 10 + 1
    stalls = (("broker-1#1", 10_000, 10_000 + stalled_ns),)
    explained_ns = stalled_ns + max(2 * bound_ns, ANEW_NS)
    end = RunEnd(True, 1 << 60, stalls=stalls)
    for took_ns, what in ((explained_ns, Undecided), (explained_ns + 1, Violated)):
        one = Deadline(BROKEN, ("broker-1",), 10_000, 10_000 + took_ns, bound_ns)
        (finding,) = judged([one], end)
        assert type(finding) is what


def test_what_was_late_before_the_history_was_cut_stays_so() -> None:
    """Voters that lost their disks at second 400 took back what nobody could write until then."""
    (finding,) = judged([late("broker-1")], RunEnd(False, 12_000 + READ_WITHIN_NS))
    assert type(finding) is Violated
    (finding,) = judged([late("broker-1")], RunEnd(False, 11_999 + READ_WITHIN_NS))
    assert type(finding) is Undecided
    damaged = RunEnd(False, 12_000 + READ_WITHIN_NS, damage=("a line of broker-1#1 is lost",))
    (finding,) = judged([late("broker-1")], damaged)
    assert type(finding) is Undecided


def test_a_history_that_lacks_events_shows_what_was_done_and_not_what_was_not() -> None:
    assert found(late("broker-1"), complete=False) is Undecided
    assert found(late("broker-1", omission=False), complete=False) is Violated


def test_stalls_of_witnesses_count_once_all_of_them_stalled() -> None:
    one = late("broker-1", "clients", witnesses=("clients/a#1", "clients/b#1"))
    stalled = ("clients/a#1", 10_000, 12_000)
    assert found(one, stalled) is Violated
    assert found(one, stalled, ("clients/b#1", 10_000, 10_101)) is Undecided
    assert found(one, stalled, ("clients/b#1", 10_000, 10_100)) is Violated
