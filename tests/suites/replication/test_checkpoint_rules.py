"""The rules of checkpoints, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.partition_histories import B1, follow, lead, stated, verdict
from tests.suites.replication.replication_histories import mark, store

from fencepost import FaultInjected
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import LogTruncated, ReplicaCheckpointed, ReplicaRemoved

B1_AGAIN = "broker-1#2"


# ------------------------------------------------------------------------------------------ RP-08


def test_a_high_watermark_that_the_node_never_reported_breaks_rp_08() -> None:
    h = HistoryBuilder()
    follow(h, B1, 0, 0, leader=2)
    mark(h, B1, 3)
    follow(h, B1_AGAIN, 5, 5, leader=2)
    assert stated(verdict(h, "RP-08"), "slot", "reported") == ("broker-1", 3)


def test_a_broken_rp_08_names_the_first_report_of_the_highest_high_watermark() -> None:
    h = HistoryBuilder()
    mark(h, B1, 3)
    first = h.events()[-1]
    mark(h, B1, 3)
    follow(h, B1_AGAIN, 5, 5, leader=2)
    assert verdict(h, "RP-08").violations[0].because == (first.ref,)


def test_a_high_watermark_above_the_log_breaks_rp_08() -> None:
    h = HistoryBuilder()
    mark(h, B1, 9)
    follow(h, B1_AGAIN, 5, 9, leader=2)
    assert stated(verdict(h, "RP-08"), "log_end") == 5


def test_a_checkpointed_high_watermark_below_the_log_keeps_rp_08() -> None:
    h = HistoryBuilder()
    mark(h, B1, 3)
    follow(h, B1_AGAIN, 5, 2, leader=2)
    assert verdict(h, "RP-08").verdict is Outcome.HOLDS
    assert verdict(h, "RP-08", complete=False).verdict is Outcome.UNKNOWN


def test_a_log_that_ends_at_its_high_watermark_does_not_exercise_rp_08() -> None:
    h = HistoryBuilder()
    mark(h, B1, 3)
    follow(h, B1_AGAIN, 3, 3, leader=2)
    assert verdict(h, "RP-08").verdict is Outcome.NOT_EXERCISED


def test_a_high_watermark_of_nothing_does_not_exercise_rp_08() -> None:
    h = HistoryBuilder()
    follow(h, B1, 5, 0, leader=2)
    assert verdict(h, "RP-08").verdict is Outcome.NOT_EXERCISED


def test_only_the_beginning_of_a_process_is_judged_by_rp_08() -> None:
    h = HistoryBuilder()
    follow(h, B1, 0, 0, leader=2)
    lead(h, B1, 2, log_end=5, mark=3)
    assert verdict(h, "RP-08").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-26


@pytest.mark.parametrize(("begins_with", "violated"), [(0, 1), (1, 0), (2, 0)])
def test_a_process_that_begins_below_its_checkpoint_breaks_rp_08(
    begins_with: int, violated: int
) -> None:
    """Of two checkpoints, the newest may not have been on the disk as the process ended."""
    h = HistoryBuilder()
    mark(h, B1, 2, end=4)
    for high_watermark in (1, 2):
        body = ReplicaCheckpointed(
            topic="orders", partition=0, high_watermark=high_watermark, flushed=4
        )
        h.add(B1, body)
    follow(h, B1_AGAIN, 4, begins_with, leader=2)
    assert verdict(h, "RP-08").violated == violated


def flushed(h: HistoryBuilder, to: int, process: str = B1) -> None:
    for offset in range(4):
        store(h, process, offset)
    checkpoints(h, process, to)


def checkpoints(h: HistoryBuilder, process: str, to: int) -> None:
    body = ReplicaCheckpointed(topic="orders", partition=0, high_watermark=2, flushed=to)
    h.add(process, body)


def removed(h: HistoryBuilder) -> None:
    h.add(B1, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))


def wiped(h: HistoryBuilder) -> None:
    fault = FaultInjected(fault_id="f", fault="wipe_disk", targets=(B1,), receipt=True, evidence="")
    h.add("harness", fault)


def test_flushed_messages_that_are_gone_break_rp_26() -> None:
    h = HistoryBuilder()
    flushed(h, 3)
    follow(h, B1_AGAIN, 2, 2, leader=2)
    assert stated(verdict(h, "RP-26"), "flushed") == 3


def test_recovery_drops_nothing_that_was_flushed() -> None:
    h = HistoryBuilder()
    flushed(h, 3)
    h.add(
        B1_AGAIN,
        LogTruncated(
            topic="orders",
            partition=0,
            to_offset=1,
            from_log_end=4,
            high_watermark=1,
            leader_epoch=1,
            reason="recovery",
        ),
    )
    follow(h, B1_AGAIN, 1, 1, leader=2)
    assert stated(verdict(h, "RP-26"), "log_end", "flushed") == (1, 3)


@pytest.mark.parametrize(
    ("fault", "broken"), [("wipe_disk", False), ("damage_disk", False), ("kill", True)]
)
def test_only_a_fault_that_harms_the_disk_takes_what_had_been_flushed(
    fault: str, broken: bool
) -> None:
    h = HistoryBuilder()
    flushed(h, 3)
    h.add(
        "harness",
        FaultInjected(fault_id="f", fault=fault, targets=(B1,), receipt=True, evidence=""),
    )
    follow(h, B1_AGAIN, 0, 0, leader=2)
    assert (verdict(h, "RP-26").verdict is Outcome.VIOLATED) == broken


def test_the_loss_of_unflushed_messages_keeps_rp_26() -> None:
    h = HistoryBuilder()
    flushed(h, 3)
    follow(h, B1_AGAIN, 3, 2, leader=2)
    assert verdict(h, "RP-26").verdict is Outcome.HOLDS
    assert verdict(h, "RP-26", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("gone", ["truncated", "removed"])
def test_truncated_messages_need_not_be_found_again(gone: str) -> None:
    h = HistoryBuilder()
    flushed(h, 3)
    if gone == "truncated":
        h.add(
            B1,
            LogTruncated(
                topic="orders",
                partition=0,
                to_offset=0,
                from_log_end=4,
                high_watermark=0,
                leader_epoch=2,
                reason="leader_epoch",
            ),
        )
    else:
        removed(h)
    follow(h, B1_AGAIN, 0, 0, leader=2)
    assert verdict(h, "RP-26").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("empty", [removed, wiped])
def test_a_log_that_begins_anew_has_lost_nothing_by_rp_26(
    empty: Callable[[HistoryBuilder], None],
) -> None:
    """Its checkpoint may be stored before it has a leader."""
    h = HistoryBuilder()
    flushed(h, 3)
    empty(h)
    checkpoints(h, B1_AGAIN, 0)
    follow(h, B1_AGAIN, 0, 0, leader=2)
    assert verdict(h, "RP-26").verdict is Outcome.NOT_EXERCISED


def test_what_had_been_flushed_survives_though_its_process_led_in_between() -> None:
    h = HistoryBuilder()
    follow(h, B1, 0, 0, leader=2)
    flushed(h, 3)
    lead(h, B1, 2, log_end=4)
    follow(h, B1_AGAIN, 2, 2, leader=2)
    assert verdict(h, "RP-26").verdict is Outcome.VIOLATED


def test_one_loss_of_unflushed_messages_exercises_rp_26_once() -> None:
    h = HistoryBuilder()
    flushed(h, 3)
    for process in (B1_AGAIN, "broker-1#3"):
        follow(h, process, 3, 2, leader=2)
        checkpoints(h, process, 3)
    assert verdict(h, "RP-26").exercised == 1


@pytest.mark.parametrize(
    ("slot", "outcome"),
    [("broker-1", Outcome.VIOLATED), ("broker-1-duplicate", Outcome.NOT_EXERCISED)],
)
def test_the_disk_of_a_second_process_with_an_id_may_be_empty(slot: str, outcome: Outcome) -> None:
    h = HistoryBuilder()
    flushed(h, 3, f"{slot}#1")
    follow(h, f"{slot}#2", 0, 0, leader=2)
    assert verdict(h, "RP-26").verdict is outcome


def test_a_loss_of_messages_of_which_none_was_flushed_does_not_exercise_rp_26() -> None:
    h = HistoryBuilder()
    store(h, B1, 0)
    follow(h, B1_AGAIN, 0, 0, leader=2)
    assert verdict(h, "RP-26").verdict is Outcome.NOT_EXERCISED
