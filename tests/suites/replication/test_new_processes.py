"""RP-10: a place in the ISR is that of the process that has caught up, and not of the next one."""

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
)
from tests.suites.replication.replication_histories import fetched, mark, store

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerCommitted, IsrChangeAsked

FIRST = {1: 1, 2: 2, 3: 3}
"""broker -> its broker epoch at first."""


def registered(
    h: HistoryBuilder, offset: int, broker: int, process: int, *, active: bool = False
) -> None:
    """A process registers; `active`: it goes on under another broker epoch."""
    h.add(
        "controller-1#1",
        BrokerCommitted(
            offset=offset,
            broker_id=broker,
            broker_epoch=offset,
            fenced=not active,
            incarnation=f"process-{broker}-{process}",
        ),
    )


def led(isr: tuple[int, ...]) -> HistoryBuilder:
    h = HistoryBuilder()
    for broker, offset in FIRST.items():
        registered(h, offset, broker, 1)
    partition(h, 4, leader=1, epoch=1, isr=isr, role="controller")
    lead(h, B1, 1)
    return h


def asked(h: HistoryBuilder, new: tuple[int, ...], end: int = 0) -> None:
    h.add(
        B1,
        IsrChangeAsked(
            topic="orders",
            partition=0,
            leader_epoch=1,
            broker_epoch=1,
            old_isr=(1, 2),
            new_isr=new,
            ends=(end,) * len(new),
            high_watermark=0,
            epoch_start=0,
            lag_ns=0,
        ),
    )


@pytest.mark.parametrize(
    ("leader", "isr", "broken"),
    [(1, (1, 2), False), (1, ALL3, True), (1, (1, 3), True), (3, (3,), True), (3, (2, 3), True)],
)
def test_a_process_that_keeps_its_predecessors_place_breaks_rp_10(
    leader: int, isr: tuple[int, ...], broken: bool
) -> None:
    h = led(ALL3)
    registered(h, 5, 3, 2)
    partition(h, 6, leader=leader, epoch=2, isr=isr, role="controller")
    found = verdict(h, "RP-10")
    assert (found.verdict is Outcome.VIOLATED) is broken
    if broken:
        assert stated(found, "broker", "record", "registered") == ("broker 3", 6, 5)


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("active", [True, False])
def test_a_process_that_is_active_in_its_predecessors_place_breaks_rp_10(
    active: bool, removed: bool
) -> None:
    """The record that takes its place away comes too late: it might have been elected."""
    h = led(ALL3)
    registered(h, 5, 3, 2)
    if active:
        registered(h, 6, 3, 2, active=True)
    if removed:
        partition(h, 7, leader=1, epoch=2, isr=(1, 2), role="controller")
    found = verdict(h, "RP-10")
    assert (found.verdict is Outcome.VIOLATED) is active
    if active:
        assert stated(found, "broker", "record", "registered") == ("broker 3", 6, 5)


def test_the_last_member_stays_in_the_isr_whichever_process_it_is() -> None:
    h = led((1,))
    registered(h, 5, 1, 2)
    partition(h, 6, leader=-1, epoch=2, isr=(1,), role="controller")
    registered(h, 7, 1, 2, active=True)
    partition(h, 8, leader=1, epoch=3, isr=(1,), role="controller")
    assert verdict(h, "RP-10").violated == 0


def test_a_process_that_goes_on_under_another_broker_epoch_keeps_its_place() -> None:
    h = led(ALL3)
    registered(h, 5, 3, 1, active=True)
    partition(h, 6, leader=1, epoch=2, isr=(1, 3), role="controller")
    assert verdict(h, "RP-10").violated == 0


def test_a_process_that_registers_after_the_record_is_not_in_it() -> None:
    h = led(ALL3)
    registered(h, 7, 3, 2)
    partition(h, 6, leader=1, epoch=2, isr=(1, 3), role="controller")
    partition(h, 8, leader=1, epoch=3, isr=(1,), role="controller")
    assert verdict(h, "RP-10").violated == 0


def test_between_states_that_were_not_read_the_process_may_have_joined() -> None:
    h = led(ALL3)
    registered(h, 5, 3, 2)
    partition(h, 9, leader=1, epoch=4, isr=ALL3, role="controller", skipped=2)
    assert verdict(h, "RP-10").violated == 0


def test_a_broker_whose_first_registration_was_not_read_may_be_the_same_process() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, role="controller")
    registered(h, 5, 3, 1)
    partition(h, 6, leader=1, epoch=2, isr=(1, 3), role="controller")
    assert verdict(h, "RP-10").violated == 0


@pytest.mark.parametrize(("counted", "broken"), [((), False), ((3,), True), ((3, 6), False)])
def test_a_join_of_another_process_than_the_leader_counted_breaks_rp_10(
    counted: tuple[int, ...], broken: bool
) -> None:
    """The leader counts a process at the high watermark, and asks for it; the next one registers,
    perhaps with an empty disk, and the request is stored all the same."""
    h = led((1, 2))
    for epoch in counted:
        fetched(h, 3, B3 if epoch == 3 else "broker-3#2", 0, epoch=epoch)
    asked(h, ALL3)
    registered(h, 6, 3, 2)
    registered(h, 7, 3, 2, active=True)
    partition(h, 8, leader=1, epoch=2, role="controller")
    found = verdict(h, "RP-10")
    assert (found.verdict is Outcome.VIOLATED) is broken
    if broken:
        assert stated(found, "broker", "record", "registered") == ("broker 3", 8, 6)


@pytest.mark.parametrize("stored", [True, False])
def test_a_leader_may_ask_for_a_process_of_whose_end_it_has_not_heard(stored: bool) -> None:
    """It has counted that one. The next has begun, with an empty disk, and the controller knows."""
    h = led((1, 2))
    store(h, B1, 0, as_leader=True)
    for process in (B2, B3):
        store(h, process, 0)
    mark(h, B1, 1)
    fetched(h, 3, B3, 1, epoch=3)
    registered(h, 6, 3, 2)
    follow(h, "broker-3#2", log_end=0, mark=0)
    asked(h, ALL3, end=1)
    if stored:
        partition(h, 8, leader=1, epoch=2, role="controller")
    found = verdict(h, "RP-10")
    assert [stated(one, "registered") for one in found.violations] == [6] * stored


def test_a_leader_that_has_heard_of_the_next_process_asks_for_that_one() -> None:
    h = led((1, 2))
    store(h, B1, 0, as_leader=True)
    for process in (B2, B3):
        store(h, process, 0)
    mark(h, B1, 1)
    fetched(h, 3, B3, 1, epoch=3)
    follow(h, "broker-3#2", log_end=0, mark=0)
    fetched(h, 3, "broker-3#2", 0, epoch=6)
    asked(h, ALL3, end=1)
    assert stated(verdict(h, "RP-10"), "broker", "offset") == ("broker 3", 0)


def test_a_record_without_controllers_word_is_judged_by_its_offset() -> None:
    h = led(ALL3)
    registered(h, 5, 3, 2)
    partition(h, 6, leader=1, epoch=2, isr=(1, 3), process=B2, role="broker")
    partition(h, 4, leader=1, epoch=1, process=B2, role="broker")
    assert verdict(h, "RP-10").violated == 1
