"""The rules of a broker's life at their exact bounds, and what does not count for them."""

from __future__ import annotations

import pytest
from tests.suites.brokers.broker_histories import BROKER, LEASE_MS, MS, grant, verdict
from tests.suites.brokers.life_histories import (
    asked,
    change,
    knows_fenced,
    online,
    probe,
    refuse,
    register,
    tell,
)

from fencepost import Evidence, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    HeartbeatRefused,
    HeartbeatSent,
    PartitionCommitted,
    RecoveryEnded,
    RecoveryStarted,
    TopicCommitted,
)


def exits(h: HistoryBuilder) -> None:
    h.add("harness", ProcessExited(ended=BROKER, exit_code=0, signal=0, expected=True))


# ----------------------------------------------------------------------------------------- REG-02


def test_a_broker_that_asks_twice_while_it_recovers_breaks_reg_02_once() -> None:
    h = HistoryBuilder()
    h.add(BROKER, RecoveryStarted(node_id=1))
    for correlation in (1, 2):
        h.add(
            BROKER,
            HeartbeatSent(
                broker_id=1,
                broker_epoch=-1,
                controller=102,
                correlation=correlation,
                target_state="ACTIVE",
                lease_start_ms=0,
                metadata_offset=-1,
            ),
        )
    assert verdict(h, "REG-02").violated == 1


def test_a_broker_that_registers_twice_exercises_reg_02_once() -> None:
    h = HistoryBuilder()
    h.add(BROKER, RecoveryStarted(node_id=1))
    h.add(BROKER, RecoveryEnded(node_id=1, logs=3, batches=9))
    register(h)
    register(h)
    assert verdict(h, "REG-02").exercised == 1


# ----------------------------------------------------------------------------------------- REG-06


@pytest.mark.parametrize(("over_ms", "outcome"), [(400, Outcome.HOLDS), (401, Outcome.VIOLATED)])
def test_a_broker_may_notice_late_by_a_tenth_of_its_session_and_100_ms(
    over_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    online(h)
    h.after(LEASE_MS + over_ms - 2)
    change(h, "ACTIVE", "FENCED", "lease_expired")
    found = verdict(h, "REG-06")
    assert found.verdict is outcome
    granted = h.events()[1].ref
    assert [one.because for one in found.violations] == [(granted,)][: found.violated]


def test_a_session_renewed_after_it_ran_out_breaks_reg_06() -> None:
    h = HistoryBuilder()
    online(h)
    h.after(LEASE_MS + 500)
    grant(h)
    assert verdict(h, "REG-06").violated == 1


def test_an_answer_after_the_session_names_the_answer_that_granted_it() -> None:
    h = HistoryBuilder()
    online(h)
    h.after(4000)
    probe(h, "answered", 3900)
    exits(h)
    (found,) = verdict(h, "REG-06").violations
    assert found.because == (h.events()[1].ref,)


@pytest.mark.parametrize(("by_broker", "exercised"), [(True, 2), (False, 1)])
def test_a_probe_that_the_broker_did_not_refuse_does_not_exercise_reg_06(
    by_broker: bool, exercised: int
) -> None:
    h = HistoryBuilder()
    online(h)
    change(h.after(3100), "ACTIVE", "FENCED", "lease_expired")
    if by_broker:
        refuse(h)
    probe(h, "refused", 3104)
    assert verdict(h, "REG-06").exercised == exercised


@pytest.mark.parametrize(("sent_ms", "exercised"), [(3103, 1), (3104, 2)])
def test_a_refused_probe_counts_if_it_was_sent_after_the_fence(
    sent_ms: int, exercised: int
) -> None:
    h = HistoryBuilder()
    online(h)
    change(h.after(3100), "ACTIVE", "FENCED", "lease_expired")
    refuse(h)
    probe(h, "refused", sent_ms)
    assert verdict(h, "REG-06").exercised == exercised


def test_a_broker_online_at_the_last_event_of_a_cut_history_leaves_reg_06_undecided() -> None:
    h = HistoryBuilder()
    online(h)
    h.after(4000)
    assert verdict(h, "REG-06", complete=False).verdict is Outcome.UNKNOWN


# ----------------------------------------------------------------------------------------- REG-07


@pytest.mark.parametrize(
    ("sent_ms", "outcome"), [(0, Outcome.NOT_EXERCISED), (1, Outcome.VIOLATED)]
)
def test_a_probe_counts_from_the_moment_at_which_the_broker_knows(
    sent_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    knows_fenced(h)
    probe(h, "answered", sent_ms, (1, 2))
    assert verdict(h, "REG-07").verdict is outcome


# ----------------------------------------------------------------------------------------- REG-08


def test_a_broker_that_led_only_deleted_partitions_does_not_exercise_reg_08() -> None:
    h = HistoryBuilder()
    h.add(
        BROKER,
        PartitionCommitted(
            offset=4,
            topic="gone",
            partition=0,
            leader=1,
            leader_epoch=1,
            isr=(1, 2),
            replicas=(1, 2),
        ),
    )
    h.add(BROKER, TopicCommitted(offset=5, topic="gone", topic_id="t", deleted=True))
    asked(h, leading=False)
    tell(h)
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_granted")
    assert verdict(h, "REG-08").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("how", ["refused", "taken over", "never asked"])
def test_a_broker_that_lost_its_id_or_was_not_asked_may_go_without_an_answer(how: str) -> None:
    h = HistoryBuilder()
    if how != "never asked":
        asked(h)
    if how == "refused":
        h.add(
            BROKER,
            HeartbeatRefused(
                broker_id=1, broker_epoch=5, error="DUPLICATE_BROKER_REGISTRATION", controller=101
            ),
        )
    if how == "taken over":
        change(h, "ACTIVE", "FENCED", "taken_over")
    change(h, "ACTIVE", "SHUTDOWN", "x")
    assert verdict(h, "REG-08").verdict is Outcome.NOT_EXERCISED


# ----------------------------------------------------------------------------------------- REG-09


@pytest.mark.parametrize(("took_ms", "outcome"), [(7600, Outcome.HOLDS), (7601, Outcome.VIOLATED)])
def test_a_stop_may_take_a_tenth_of_its_limit_and_a_second_more(
    took_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    asked(h)
    since_ns = h.now_ns - MS
    change(h.after(6100), "ACTIVE", "SHUTDOWN", "shutdown_timeout")
    h.after((since_ns - h.now_ns) // MS + took_ms)
    exits(h)
    found = verdict(h.after(9000), "REG-09")
    assert found.verdict is outcome
    assert (found.violated, found.exercised) == ((0, 1) if outcome is Outcome.HOLDS else (1, 0))


def test_a_broker_that_is_granted_its_stop_in_time_does_not_exercise_reg_09() -> None:
    h = HistoryBuilder()
    asked(h)
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_granted")
    exits(h)
    assert verdict(h.after(9000), "REG-09").verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_is_asked_again_must_end_in_time_after_the_first_request() -> None:
    h = HistoryBuilder()
    asked(h)
    h.after(5000)
    asked(h)
    h.after(4000)
    assert verdict(h, "REG-09").violations[0].evidence is Evidence.PEER
