"""The rule that a follower which does not keep up leaves the ISR (RP-09)."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated
from tests.suites.replication.watermark_histories import (
    ALL3,
    B1,
    MS,
    ask,
    lead,
    mark,
    refuse,
    store,
    stored_isr,
    time_out,
    verdict,
)

from fencepost import Evidence, FaultHealed, FaultInjected, PhaseStarted, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import LeadershipStarted, LeaseGranted

TRIED = ("tried", "times")

# ------------------------------------------------------------------------------------------ RP-09


def test_a_leader_that_lets_writes_wait_forever_breaks_rp_09() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    h.after(6000)
    time_out(h)
    assert stated(verdict(h, "RP-09"), *TRIED) == ("", 0)


@pytest.mark.parametrize(("others", "broken"), [((), 0), ((2_000,), 1), ((2_000, 10**9), 0)])
def test_a_leader_has_no_more_time_than_all_others_name(
    others: tuple[int, ...], broken: int
) -> None:
    h = HistoryBuilder()
    for broker, keep_ms in enumerate(others, 2):
        h.add(f"broker-{broker}#1", LeadershipStarted(
            topic="others", partition=0, leader_epoch=1, isr=(1, 2, 3), log_start=0, log_end=0,
            high_watermark=0, keep_in_sync_ms=keep_ms,
        ))  # fmt: skip
    lead(h, keep_ms=10**9)
    store(h, B1, 0)
    h.after(60_000)
    time_out(h)
    assert verdict(h, "RP-09").violated == broken


def test_a_leader_breaks_rp_09_once_for_each_time_in_which_writes_wait() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(60_000)
    time_out(h)
    time_out(h)
    assert verdict(h, "RP-09").violated == 1
    store(h, B1, 1)
    h.after(60_000)
    time_out(h)
    assert verdict(h, "RP-09").violated == 2


def test_a_leader_that_reports_no_time_is_held_to_kafkas_default() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=0)
    store(h, B1, 0)
    h.after(61_000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    h.after(1000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_a_laggard_dropped_and_commits_that_go_on_keep_rp_09() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(2000)
    ask(h, (1, 2))
    stored_isr(h, 4, 2, (1, 2))
    lead(h, epoch=2)
    mark(h, 1, 1, counted=(1, 2), isr=(1, 2), epoch=2)
    found = verdict(h, "RP-09")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_a_leader_that_asked_without_an_answer_keeps_rp_09() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(2000)
    ask(h, (1, 2))
    h.after(20_000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


def refused_for_a_minute(error: str, old: tuple[int, ...] = ALL3) -> HistoryBuilder:
    """A leader asks again and again for the ISR (1, 2), and is refused."""
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    for _ in range(20):
        h.after(3000)
        ask(h, (1, 2), old=old)
        refuse(h, error)
        time_out(h)
    return h


def test_a_laggard_that_is_never_dropped_since_that_is_refused_breaks_rp_09() -> None:
    h = refused_for_a_minute("INVALID_REQUEST")
    assert stated(verdict(h, "RP-09"), *TRIED) == ("refused", 2)


def test_a_leader_that_asks_for_more_members_only_breaks_rp_09() -> None:
    h = refused_for_a_minute("INVALID_REQUEST", old=(1,))
    assert stated(verdict(h, "RP-09"), *TRIED) == ("", 0)


def test_a_leader_whose_request_to_add_a_follower_has_no_answer_can_drop_none() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    h.after(1000)
    ask(h, ALL3, old=(1, 2))
    h.after(20_000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    refuse(h, "NOT_CONTROLLER")
    h.after(4500)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    h.after(600)
    time_out(h)
    assert stated(verdict(h, "RP-09"), "since_ns") == 6_103_000_000


def test_a_leader_that_finds_no_controller_cannot_store_that_and_keeps_rp_09() -> None:
    h = refused_for_a_minute("NOT_CONTROLLER")
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


def test_a_request_behind_one_without_an_answer_was_refused_by_no_controller() -> None:
    """No controller is active; the leader knows new metadata, and asks again."""
    h = refused_for_a_minute("OPERATION_NOT_ATTEMPTED")
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    for _ in range(3):
        ask(h, (1, 2))
        refuse(h, "INVALID_REQUEST")
        h.after(3000)
        time_out(h)
    assert stated(verdict(h, "RP-09"), "since_ns", *TRIED) == (6_005_000_000, "refused", 2)


def test_a_refusal_for_a_newer_epoch_that_is_not_stored_breaks_rp_09() -> None:
    h = refused_for_a_minute("FENCED_LEADER_EPOCH")
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_a_leader_that_is_refused_for_a_newer_epoch_has_its_time_anew() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    h.after(3000)
    ask(h, (1, 2))
    refuse(h, "FENCED_LEADER_EPOCH")
    stored_isr(h, 4, 2, ALL3)
    h.after(5000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


def test_a_stall_of_the_leader_leaves_rp_09_undecided() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(6000)
    h.add(B1, Stalled(stalled_ns=3000 * MS))
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.UNKNOWN


def test_refusals_before_a_commit_are_not_counted_for_a_later_write() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    ask(h, (1, 2))
    refuse(h, "INVALID_REQUEST")
    mark(h, 1, 1)
    store(h, B1, 1)
    h.after(7000)
    time_out(h)
    assert stated(verdict(h, "RP-09"), *TRIED) == ("", 0)


def test_a_leader_that_is_alone_in_its_isr_has_none_to_drop() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    stored_isr(h, 4, 1, (1,))
    h.after(60_000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    # A node that replays an older record late changes nothing.
    stored_isr(h, 3, 1, ALL3)
    store(h, B1, 1)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    stored_isr(h, 5, 1, (1, 2))
    h.after(7_000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_a_write_that_is_committed_too_late_breaks_rp_09() -> None:
    """Nothing else comes in meanwhile, by which it would be judged."""
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(60_000)
    mark(h, 1, 1)
    assert stated(verdict(h, "RP-09"), *TRIED) == ("", 0)


def test_a_request_that_comes_too_late_breaks_rp_09() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(60_000)
    ask(h, (1, 3))
    refuse(h, "NONE")
    mark(h, 1, 1)
    assert verdict(h, "RP-09").violated == 1


def test_a_high_watermark_that_does_not_grow_commits_nothing() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    for _ in range(30):
        h.after(2_000)
        mark(h, 0, 1)
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("seconds", "in_touch", "violated"), [(60, True, True), (60, False, False), (20, True, False)]
)
def test_a_leader_that_controllers_answer_is_not_told_for_long_to_ask_elsewhere(
    seconds: int, in_touch: bool, violated: bool
) -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    for _ in range(seconds // 2):
        if in_touch:
            h.add(
                B1,
                LeaseGranted(
                    broker_id=1,
                    broker_epoch=5,
                    next_state="ACTIVE",
                    lease_start_ms=0,
                    lease_end_ms=3_000,
                    ends_at_ns=0,
                    controller_epoch=1,
                ),
            )
        ask(h, (1, 3))
        refuse(h, "NOT_CONTROLLER")
        h.after(2_000)
        time_out(h)
    found = verdict(h, "RP-09")
    assert (found.violated > 0) == violated
    if violated:
        assert stated(found, "tried") == "elsewhere"


@pytest.mark.parametrize(("waits_ms", "violated"), [(5_000, 0), (7_000, 1)])
@pytest.mark.parametrize("faults", [1, 2])
def test_a_pause_of_the_leader_is_no_time_in_which_a_write_waits(
    waits_ms: int, violated: int, faults: int
) -> None:
    """Apache Kafka says nothing of its stalls. Two faults that stop it at once are one pause."""
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    for number in range(faults):
        body = FaultInjected(
            fault_id=f"p-{number}", fault="pause", targets=(B1,), receipt=True, evidence=""
        )
        h.add("harness", body)
    h.after(9_000)
    for number in range(faults):
        h.add("harness", FaultHealed(fault_id=f"p-{number}", receipt=True, evidence=""))
    store(h.after(waits_ms), B1, 1)
    assert verdict(h, "RP-09").violated == violated


@pytest.mark.parametrize("before", [True, False])
def test_the_first_event_of_a_paused_leader_may_come_before_its_healing_is_told(
    before: bool,
) -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    began = FaultInjected(fault_id="p", fault="pause", targets=(B1,), receipt=True, evidence="")
    h.add("harness", began)
    h.after(9_000)
    if before:
        store(h, B1, 1)
    h.add("harness", FaultHealed(fault_id="p", receipt=True, evidence=""))
    if not before:
        store(h, B1, 1)
    assert verdict(h, "RP-09").violated == 0


@pytest.mark.parametrize(("healed", "violated"), [(False, 0), (True, 1)])
def test_a_leader_that_is_paused_until_the_end_lets_nothing_wait(
    healed: bool, violated: int
) -> None:
    """It never reports that it stood still."""
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    pause = FaultInjected(fault_id="p", fault="pause", targets=(B1,), receipt=True, evidence="")
    h.add("harness", pause)
    if healed:
        h.add("harness", FaultHealed(fault_id="p", receipt=True, evidence=""))
    h.after(60_000)
    h.add("harness", PhaseStarted(phase="end"))
    assert verdict(h, "RP-09").violated == violated
