"""RP-06, before anybody leads: whoever may lead by the newest record holds what is committed."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import (
    ALL3,
    B1,
    B2,
    B3,
    follow,
    lead,
    partition,
    stated,
    verdict,
    why,
)
from tests.suites.replication.replication_histories import mark, store, truncate

from fencepost import FaultInjected
from fencepost.testing import HistoryBuilder, Outcome


def led(isr: tuple[int, ...] = ALL3) -> HistoryBuilder:
    """Broker 1 leads; the others follow it with empty logs."""
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, isr=isr, role="controller")
    lead(h, B1, 1)
    for process in (B2, B3):
        follow(h, process, log_end=0, mark=0)
    return h


def commits(h: HistoryBuilder, *others: str) -> None:
    """The leader and others store a message, which it commits."""
    store(h, B1, 0, as_leader=True)
    for process in others:
        store(h, process, 0)
    mark(h, B1, 1)


def test_a_member_of_the_isr_that_lacks_a_committed_message_breaks_rp_06() -> None:
    h = led()
    commits(h, B2)
    found = verdict(h, "RP-06")
    assert stated(found, "process", "log_end", "committed") == (B3, 0, 1)
    mark(h, B1, 1)
    assert verdict(h, "RP-06").violated == 1
    store(h, B1, 1, as_leader=True)
    mark(h, B1, 2)
    assert verdict(h, "RP-06").violated == 3


@pytest.mark.parametrize(
    ("isr", "eligible", "broken"),
    [((1, 2), (), False), (ALL3, (), True), ((1, 2), (3,), True), ((1,), (2,), False)],
)
def test_a_record_that_lets_such_a_replica_lead_breaks_rp_06(
    isr: tuple[int, ...], eligible: tuple[int, ...], broken: bool
) -> None:
    h = led(isr=(1, 2))
    commits(h, B2)
    assert verdict(h, "RP-06").violated == 0
    partition(h, 4, leader=1, epoch=2, isr=isr, eligible=eligible, role="controller")
    found = verdict(h, "RP-06")
    assert (found.verdict is Outcome.VIOLATED) is broken
    if broken:
        assert stated(found, "process", "offset") == (B3, 4)


def test_an_older_record_lets_nobody_lead() -> None:
    h = led(isr=(1, 2))
    partition(h, 2, leader=1, epoch=0, process=B2, role="broker")
    commits(h, B2)
    assert verdict(h, "RP-06").violated == 0


def test_a_member_that_truncates_what_is_committed_breaks_rp_06() -> None:
    h = led(isr=(1, 2))
    commits(h, B2)
    truncate(h, 0, 1, 0)
    assert stated(verdict(h, "RP-06"), "process", "log_end") == (B2, 0)


def test_a_watermark_that_a_follower_has_learnt_is_not_the_leaders_word() -> None:
    h = led()
    store(h, B1, 0, as_leader=True)
    mark(h, B2, 1)
    assert verdict(h, "RP-06").violated == 0


@pytest.mark.parametrize("silent", [True, False])
def test_a_replica_that_says_nothing_may_have_it(silent: bool) -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, role="controller")
    lead(h, B1, 1)
    if not silent:
        follow(h, B3, log_end=0, mark=0)
    commits(h, B2)
    assert verdict(h, "RP-06").violated == (not silent)


@pytest.mark.parametrize("base", [1, 2])
def test_a_replica_that_stores_behind_what_it_has_told_is_not_judged(base: int) -> None:
    """A line of its log is missing: by the next one it had stored offset 1 before."""
    h = led()
    commits(h, B2, B3)
    for process in (B1, B2):
        store(h, process, 1, as_leader=process == B1)
    mark(h, B1, 2)
    store(h.after(2_000), B3, base)
    mark(h, B1, 2)
    assert (verdict(h, "RP-06").violated > 0) is (base == 1)


@pytest.mark.parametrize(("ms", "violated"), [(999, 0), (1_001, 1)])
def test_a_replica_may_tell_a_moment_later_that_it_has_stored_it(ms: int, violated: int) -> None:
    h = led()
    commits(h, B2)
    store(h.after(ms - 1), B3, 0)
    assert verdict(h, "RP-06").violated == violated


@pytest.mark.parametrize(("log_end", "violated"), [(0, 1), (1, 0)])
def test_a_replica_whose_next_process_has_more_had_told_too_little(
    log_end: int, violated: int
) -> None:
    h = led()
    commits(h, B2)
    follow(h.after(5_000), "broker-3#2", log_end=log_end, mark=0)
    found = verdict(h, "RP-06").violations
    assert sum(stated(one, "process") == B3 for one in found) == violated


def test_where_nobody_tells_what_is_stored_nobody_lacks_it() -> None:
    h = led()
    mark(h, B1, 1)
    assert verdict(h, "RP-06").violated == 0


def test_a_replica_with_a_second_process_may_have_either_disk() -> None:
    h = led()
    follow(h, "broker-3-duplicate#1", log_end=0, mark=0)
    commits(h, B2)
    assert verdict(h, "RP-06").violated == 0


def test_what_a_fault_has_taken_from_a_disk_is_excused() -> None:
    h = led()
    commits(h, B2, B3)
    struck = FaultInjected(
        fault_id="lose-1", fault="lose_power", targets=(B3,), receipt=True, evidence=""
    )
    h.add("harness", struck)
    follow(h, "broker-3#2", log_end=0, mark=0)
    found = verdict(h, "RP-06")
    assert (found.violated, found.excused) == (0, 1)
    assert why(found, "fault") == "lose-1"
