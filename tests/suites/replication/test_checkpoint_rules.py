"""The rules of checkpoints, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import B1, follow, verdict
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
    assert "broker-1 never reported one above 3" in verdict(h, "RP-08").violations[0].message


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
    assert "above its log end 5" in verdict(h, "RP-08").violations[0].message


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


# ------------------------------------------------------------------------------------------ RP-26


def flushed(h: HistoryBuilder, to: int) -> None:
    for offset in range(4):
        store(h, B1, offset)
    h.add(B1, ReplicaCheckpointed(topic="orders", partition=0, high_watermark=2, flushed=to))


def test_flushed_messages_that_are_gone_break_rp_26() -> None:
    h = HistoryBuilder()
    flushed(h, 3)
    follow(h, B1_AGAIN, 2, 2, leader=2)
    assert "of which 3 had been flushed" in verdict(h, "RP-26").violations[0].message


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
        h.add(B1, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))
    follow(h, B1_AGAIN, 0, 0, leader=2)
    assert verdict(h, "RP-26").verdict is Outcome.NOT_EXERCISED
