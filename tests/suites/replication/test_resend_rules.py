"""The rules of writes that outlast their leader, each with a violation, a near miss and an
undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import (
    B1,
    B2,
    B3,
    CLIENT,
    follow,
    lead,
    partition,
    stated,
    verdict,
)
from tests.suites.replication.replication_histories import mark
from tests.suites.replication.resend_histories import (
    ASKED,
    answer,
    completed,
    sought,
    step_down,
    store,
)

from fencepost import Cause, Evidence, FaultHealed, FaultInjected, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import LogTruncated, ProduceInvoked

# ------------------------------------------------------------------------------------------ RP-11


def test_a_write_that_never_reaches_the_new_leader_breaks_rp_11() -> None:
    h = HistoryBuilder()
    sought(h)
    h.after(11_000)
    completed(h, "unknown", -1)
    assert stated(verdict(h, "RP-11"), "outcome", "leader") == ("unknown", B2)


def test_a_late_replay_of_the_leaders_own_election_does_not_depose_it() -> None:
    h = HistoryBuilder()
    sought(h)
    h.after(1_000)
    partition(h, 9, leader=2, epoch=2)
    h.after(10_000)
    completed(h, "unknown", -1)
    assert verdict(h, "RP-11").verdict is Outcome.VIOLATED


def test_a_leader_is_deposed_by_the_first_later_epoch_that_is_stored() -> None:
    h = HistoryBuilder()
    sought(h)
    h.after(1_000)
    partition(h, 9, leader=1, epoch=3)
    h.after(10_000)
    partition(h, 10, leader=1, epoch=4)
    completed(h, "unknown", -1)
    assert verdict(h, "RP-11").verdict is Outcome.NOT_EXERCISED


def test_a_write_still_open_when_an_unreached_leader_leaves_breaks_rp_11() -> None:
    h = HistoryBuilder()
    sought(h)
    step_down(h.after(11_000), B2, 2)
    assert stated(verdict(h, "RP-11"), "open_ns", "leader") == (11_001_000_000, B2)


@pytest.mark.parametrize(
    ("led_ms", "expected"), [(1_000, Outcome.NOT_EXERCISED), (9_000, Outcome.VIOLATED)]
)
def test_a_leader_whose_process_has_ended_serves_nothing(led_ms: int, expected: Outcome) -> None:
    """Without a controller, or with one that does not notice, nothing takes its place."""
    h = HistoryBuilder()
    sought(h)
    h.after(led_ms).add("harness", ProcessExited(ended=B2, exit_code=0, signal=9, expected=True))
    h.after(11_000)
    completed(h, "unknown", -1)
    assert verdict(h, "RP-11").verdict is expected


@pytest.mark.parametrize(
    ("broker", "cut_ms", "expected"),
    [
        ("broker-2", 9_000, Outcome.NOT_EXERCISED),
        ("broker-2", 1_000, Outcome.VIOLATED),
        ("broker-1", 9_000, Outcome.VIOLATED),
    ],
)
def test_a_leader_that_a_fault_keeps_from_the_clients_need_not_be_reached(
    broker: str, cut_ms: int, expected: Outcome
) -> None:
    h = HistoryBuilder()
    sought(h)
    cut = FaultInjected(
        fault_id="f",
        fault="cut",
        targets=("clients", broker),
        receipt=True,
        evidence="",
        directions=(f"clients -> {broker}", f"{broker} -> clients"),
    )
    h.after(500).add("harness", cut)
    h.after(cut_ms).add("harness", FaultHealed(fault_id="f", receipt=True, evidence=""))
    h.after(11_500 - cut_ms)
    completed(h, "unknown", -1)
    assert verdict(h, "RP-11").verdict is expected


def test_a_leader_that_was_dead_during_a_cut_from_the_clients_is_excused_for_that_time_once() -> (
    None
):
    h = HistoryBuilder()
    sought(h)
    cut = FaultInjected(
        fault_id="f",
        fault="cut",
        targets=("clients", "broker-2"),
        receipt=True,
        evidence="",
        directions=("clients -> broker-2",),
    )
    h.add("harness", cut)
    h.after(9_000)
    h.add("harness", ProcessExited(ended=B2, exit_code=0, signal=9, expected=True))
    h.after(1_000).add("harness", FaultHealed(fault_id="f", receipt=True, evidence=""))
    h.after(7_000)
    completed(h, "unknown", -1)
    assert verdict(h, "RP-11").verdict is Outcome.NOT_EXERCISED


def test_a_leader_that_steps_down_just_after_its_successor_began_is_judged_too() -> None:
    h = HistoryBuilder()
    sought(h)
    lead(h.after(11_000), B3, 3, log_end=3)
    step_down(h.after(3), B2, 2)
    assert stated(verdict(h, "RP-11"), "open_ns", "leader") == (11_005_000_000, B2)


def test_a_leader_that_steps_down_long_after_its_successor_began_proves_nothing() -> None:
    h = HistoryBuilder()
    sought(h)
    lead(h.after(11_000), B3, 3, log_end=3)
    step_down(h.after(2_000), B2, 2)
    assert verdict(h, "RP-11").verdict is not Outcome.VIOLATED


def test_a_former_leader_that_a_client_reached_until_the_end_keeps_rp_11() -> None:
    h = HistoryBuilder()
    sought(h)
    lead(h.after(11_000), B3, 3, log_end=3)
    answer(h, B2, 4, error="NOT_ENOUGH_REPLICAS")
    step_down(h, B2, 2)
    assert verdict(h, "RP-11").verdict is not Outcome.VIOLATED


def test_a_dead_leader_that_was_not_found_proves_nothing() -> None:
    h = HistoryBuilder()
    sought(h)
    lead(h.after(11_000), B3, 3, log_end=3)
    assert verdict(h, "RP-11").verdict is not Outcome.VIOLATED


def test_a_resend_stored_by_the_new_leader_keeps_rp_11() -> None:
    h = HistoryBuilder()
    sought(h)
    completed(h, "ok", 3)
    found = verdict(h, "RP-11")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.CLIENT)


def test_a_write_whose_client_reached_the_new_leader_or_had_no_time_does_not_break_rp_11() -> None:
    h = HistoryBuilder()
    sought(h)
    completed(h, "unknown", -1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    answer(h, B2, 4, error="NOT_ENOUGH_REPLICAS")
    h.after(11_000)
    completed(h, "unknown", -1)
    assert verdict(h, "RP-11").verdict is Outcome.NOT_EXERCISED
    assert verdict(h, "RP-11", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-12


def test_one_write_committed_twice_breaks_rp_12() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, sequence=0)
    mark(h, B1, 1)
    store(h, B2, 0, sequence=0, leads=False)
    store(h, B2, 1, sequence=0, epoch=2)
    mark(h, B2, 2)
    assert stated(verdict(h, "RP-12"), "offset", "other_offset") == (0, 1)


def test_a_write_that_a_later_leader_stores_again_is_explained_by_its_leadership() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, sequence=0)
    store(h, B2, 0, sequence=0, leads=False)
    mark(h, B1, 1)
    lead(h, B2, 2)
    began = h.events()[-1]
    store(h, B2, 1, sequence=0, epoch=2)
    mark(h, B2, 2)
    assert verdict(h, "RP-12").violations[0].because == (began.ref,)


def test_a_write_that_one_leader_stores_twice_is_explained_by_no_leadership() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, sequence=0)
    mark(h, B1, 1)
    store(h, B1, 1, sequence=0)
    mark(h, B1, 2)
    assert verdict(h, "RP-12").violations[0].because == ()


def test_a_write_that_some_replicas_kept_and_others_did_not_breaks_rp_12() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, sequence=0)
    mark(h, B1, 1)
    store(h, B2, 0, sequence=1, crc="bb")
    mark(h, B2, 1)
    assert stated(verdict(h, "RP-12"), "other", "offset") == (B1, 0)


def test_a_resend_known_to_the_new_leader_and_one_cut_off_and_stored_anew_keep_rp_12() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, sequence=0)
    store(h, B1, 1, sequence=1, crc="bb")
    store(h, B2, 0, sequence=0, leads=False)
    answer(h, B2, 1, duplicate=True)
    store(h, B2, 1, sequence=1, crc="bb", epoch=2)
    h.add(
        B1,
        LogTruncated(
            topic="orders",
            partition=0,
            to_offset=1,
            from_log_end=2,
            high_watermark=0,
            leader_epoch=2,
            reason="leader_epoch",
        ),
    )
    mark(h, B2, 2)
    found = verdict(h, "RP-12")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)
    assert verdict(h, "RP-12", complete=False).verdict is Outcome.UNKNOWN


def test_a_new_write_at_the_offset_of_a_lost_one_does_not_exercise_rp_12() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, sequence=0)
    store(h, B2, 0, sequence=1, crc="bb", epoch=2)
    answer(h, B2, 1)
    assert verdict(h, "RP-12").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-31


def test_a_waiting_write_acknowledged_on_stepping_down_breaks_rp_31() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    step_down(h, B1, 1)
    answer(h, B1, 1, cause=ASKED)
    assert stated(verdict(h, "RP-31"), "offset", "high_watermark") == (1, 0)


def test_a_waiting_write_below_the_high_watermark_may_be_acknowledged_on_stepping_down() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    step_down(h, B1, 1)
    answer(h, B1, 1, marked=1, cause=ASKED)
    assert verdict(h, "RP-31").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("marked", "violated"), [(0, 1), (1, 0)])
def test_a_write_of_which_its_leader_told_nothing_is_held_to_what_its_answer_says(
    marked: int, violated: int
) -> None:
    h = HistoryBuilder()
    step_down(h, B1, 1)
    answer(h, B1, 1, marked=marked, cause=ASKED)
    assert verdict(h, "RP-31").violated == violated


def test_a_leader_that_follows_has_stepped_down_also_if_it_does_not_say_so() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    follow(h, B1, 1, 0, leader=2)
    answer(h, B1, 1, cause=ASKED)
    assert stated(verdict(h, "RP-31"), "offset") == 1


@pytest.mark.parametrize(
    ("reported", "violated"), [(None, 0), (0, 1), (1, 0)], ids=["nothing", "less", "so much"]
)
def test_an_answer_is_held_to_the_high_watermark_that_its_leader_had_reported(
    reported: int | None, violated: int
) -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    if reported is not None:
        mark(h, B1, reported)
    step_down(h, B1, 1)
    answer(h, B1, 1, marked=36, cause=ASKED)
    assert verdict(h, "RP-31").violated == violated


@pytest.mark.parametrize(
    ("asked", "violated"), [((), 0), ((-1,), 1), ((-1, 1), 0)], ids=["unknown", "all", "any"]
)
def test_for_which_acknowledgements_a_client_asked_is_its_own_word(
    asked: tuple[int, ...], violated: int
) -> None:
    h = HistoryBuilder()
    for acks in asked:
        body = ProduceInvoked(operation=f"op-{acks}", topic="orders", partition=0, acks=acks)
        h.add(CLIENT, body)
    store(h, B1, 0, cause=ASKED)
    step_down(h, B1, 1)
    answer(h, B1, 1, cause=ASKED, acks=1)
    assert verdict(h, "RP-31").violated == violated


def test_an_answer_is_held_to_the_end_of_the_write_that_was_stored() -> None:
    h = HistoryBuilder()
    for offset in (0, 1):
        store(h, B1, offset, cause=Cause(CLIENT, offset, True))
    step_down(h, B1, 1)
    answer(h, B1, 1, marked=1, cause=Cause(CLIENT, 1, True))
    assert stated(verdict(h, "RP-31"), "offset", "high_watermark") == (2, 1)


def test_a_waiting_write_that_is_never_answered_breaks_rp_31() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    step_down(h, B1, 1)
    follow(h.after(6_000), B1, 1, 0, leader=2)
    assert stated(verdict(h, "RP-31"), "writes") == 1


def test_a_waiting_write_refused_on_stepping_down_keeps_rp_31() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    step_down(h, B1, 1)
    answer(h, B1, 1, error="NOT_LEADER_OR_FOLLOWER", cause=ASKED)
    assert verdict(h, "RP-31").verdict is Outcome.HOLDS


def test_rp_31_is_undecided_if_the_leader_died_at_once() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    step_down(h, B1, 1)
    assert verdict(h, "RP-31").verdict is Outcome.UNKNOWN
