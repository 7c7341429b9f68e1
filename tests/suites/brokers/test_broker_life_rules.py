"""The rules of a broker's life, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.brokers.broker_histories import BROKER, MS, grant, record, verdict
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
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted, ProcessExited, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStopping,
    HeartbeatAnswered,
    LeaseGranted,
    RecoveryEnded,
    RecoveryStarted,
    SnapshotLoaded,
)


def answered(h: HistoryBuilder, period_ms: int, incarnation: str = "x") -> None:
    h.add(
        "controller-1#1",
        HeartbeatAnswered(
            client=BROKER,
            broker_id=1,
            incarnation=incarnation,
            request_epoch=5,
            broker_epoch=5,
            error="NONE",
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=period_ms,
            lease_period_ms=period_ms,
            controller_epoch=1,
            active_controller=101,
            active=True,
        ),
    )


# ----------------------------------------------------------------------------------------- REG-01


def test_a_broker_that_is_online_only_in_its_own_report_breaks_reg_01() -> None:
    h = HistoryBuilder()
    record(h, 4, fenced=True)
    change(h, "FENCED", "ACTIVE", said="Online")
    assert verdict(h, "REG-01").violations[0].evidence is Evidence.PEER


@pytest.mark.parametrize(("new", "said"), [("FENCED", "Online"), ("ACTIVE", "Active")])
def test_a_state_under_another_name_breaks_reg_01(new: str, said: str) -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    change(h, "FENCED", new, said=said)
    assert verdict(h, "REG-01").violations[0].evidence is Evidence.SELF


@pytest.mark.parametrize(
    ("named", "registered", "kept"), [("x", "y", False), ("y", "x", True), ("x", "x", True)]
)
def test_controllers_know_the_incarnation_of_a_broker_that_names_another(
    named: str, registered: str, kept: bool
) -> None:
    """The record is that of incarnation x."""
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation=named, log_end=0))
    record(h, 5, fenced=False)
    answered(h, 2_000, incarnation=registered)
    change(h, "FENCED", "ACTIVE", said="Online")
    assert verdict(h, "REG-01").verdict is (Outcome.HOLDS if kept else Outcome.VIOLATED)


def test_a_stopping_broker_that_calls_itself_online_breaks_reg_01() -> None:
    h = HistoryBuilder()
    h.add(BROKER, BrokerStopping(broker_id=1, state="ACTIVE", global_state="Online", limit_ms=6000))
    assert verdict(h, "REG-01").verdict is Outcome.VIOLATED


def test_a_whole_life_with_the_drafts_states_keeps_reg_01() -> None:
    h = HistoryBuilder()
    change(h, "INITIAL", "FENCED", said="Fenced")
    record(h, 5, fenced=False)
    change(h, "FENCED", "ACTIVE", said="Online")
    h.add(
        BROKER, BrokerStopping(broker_id=1, state="ACTIVE", global_state="Stopping", limit_ms=6000)
    )
    change(h, "ACTIVE", "SHUTDOWN", said="Offline")
    found = verdict(h, "REG-01")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)
    assert verdict(h, "REG-01", complete=False).verdict is Outcome.UNKNOWN


# ----------------------------------------------------------------------------------------- REG-06


def test_an_answer_after_the_session_breaks_reg_06() -> None:
    h = HistoryBuilder()
    online(h)
    h.after(4000)
    probe(h, "answered", 3900)
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    assert verdict(h, "REG-06").violations[0].evidence is Evidence.CLIENT


def test_a_broker_that_stays_online_to_the_end_breaks_reg_06() -> None:
    h = HistoryBuilder()
    online(h)
    h.after(4000)
    assert verdict(h, "REG-06").violations[0].evidence is Evidence.SELF


@pytest.mark.parametrize(
    ("given_ms", "outcome"), [(None, Outcome.NOT_EXERCISED), (3000, Outcome.VIOLATED)]
)
def test_the_period_of_a_session_is_the_controllers_word(
    given_ms: int | None, outcome: Outcome
) -> None:
    """A broker whose session lasts as long as it says is Online for ever."""
    h = HistoryBuilder()
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    if given_ms is not None:
        answered(h, given_ms)
    said = LeaseGranted(
        broker_id=1,
        broker_epoch=5,
        next_state="ACTIVE",
        lease_start_ms=0,
        lease_end_ms=90_000,
        ends_at_ns=h.now_ns + 90_000 * MS,
        controller_epoch=1,
    )
    h.add(BROKER, said)
    change(h, "FENCED", "ACTIVE")
    h.after(4000)
    assert verdict(h, "REG-06").verdict is outcome


def test_a_broker_that_fences_itself_at_the_end_keeps_reg_06() -> None:
    h = HistoryBuilder()
    online(h)
    change(h.after(3100), "ACTIVE", "FENCED", "lease_expired")
    refuse(h)
    probe(h, "refused", 3104)
    found = verdict(h, "REG-06")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


def test_a_session_renewed_before_the_answer_keeps_reg_06() -> None:
    h = HistoryBuilder()
    online(h)
    grant(h.after(2900))
    probe(h.after(600), "answered", 3450)
    assert verdict(h, "REG-06").verdict is Outcome.NOT_EXERCISED


def test_a_killed_broker_owes_nothing_to_reg_06() -> None:
    h = HistoryBuilder()
    online(h)
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    h.after(9000)
    assert verdict(h, "REG-06").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("own", [True, False])
def test_a_broker_online_until_it_was_killed_long_after_its_session_breaks_reg_06(
    own: bool,
) -> None:
    h = HistoryBuilder()
    online(h)
    h.after(9000)
    if not own:
        h.add("harness", Stalled(stalled_ns=8_900 * MS, of=BROKER))
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    outcome = Outcome.VIOLATED if own else Outcome.NOT_EXERCISED
    assert verdict(h, "REG-06").verdict is outcome


def test_a_broker_that_stalled_when_its_session_ran_out_does_not_break_reg_06() -> None:
    h = HistoryBuilder()
    online(h)
    h.after(4000)
    h.add(BROKER, Stalled(stalled_ns=3900 * MS))
    change(h, "ACTIVE", "FENCED", "lease_expired")
    assert verdict(h, "REG-06").verdict is Outcome.NOT_EXERCISED


# ----------------------------------------------------------------------------------------- REG-07


def test_a_fenced_broker_named_to_a_client_breaks_reg_07() -> None:
    h = HistoryBuilder()
    knows_fenced(h)
    probe(h, "answered", 2, (1, 2))
    found = verdict(h, "REG-07")
    assert found.violations[0].evidence is Evidence.CLIENT
    assert stated(found, "broker") == "broker 2"


def test_a_fenced_broker_left_out_keeps_reg_07() -> None:
    h = HistoryBuilder()
    knows_fenced(h)
    probe(h, "answered", 2, (1, 3))
    assert verdict(h, "REG-07").verdict is Outcome.HOLDS
    assert verdict(h, "REG-07", complete=False).verdict is Outcome.UNKNOWN


def test_later_knowledge_of_the_broker_does_not_count_for_reg_07() -> None:
    h = HistoryBuilder()
    knows_fenced(h)
    probe(h, "answered", 0, (1, 2))  # sent before it knew
    h.add(
        BROKER,
        BrokerCommitted(offset=8, broker_id=2, broker_epoch=8, fenced=False, incarnation="y"),
    )
    probe(h, "answered", 2, (1, 2))  # and unfenced before it answered
    assert verdict(h, "REG-07").verdict is Outcome.NOT_EXERCISED


def test_records_from_a_snapshot_do_not_count_against_a_broker() -> None:
    h = HistoryBuilder()
    knows_fenced(h)
    h.add(BROKER, SnapshotLoaded(offset=9, epoch=1, digest="d"))
    probe(h, "answered", 2, (1, 2))
    assert verdict(h, "REG-07").verdict is Outcome.NOT_EXERCISED


# --------------------------------------------------------------------------------- REG-08, REG-09


def test_a_broker_that_ends_before_an_answer_allows_it_breaks_reg_08() -> None:
    h = HistoryBuilder()
    asked(h)
    tell(h, "ACTIVE")
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_granted")
    found = verdict(h, "REG-08")
    assert found.violations[0].evidence is Evidence.PEER
    assert stated(found, "places") == ("orders-0",)


def test_a_broker_that_ends_after_an_answer_allowed_it_keeps_reg_08() -> None:
    h = HistoryBuilder()
    asked(h)
    tell(h)
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_granted")
    assert verdict(h, "REG-08").verdict is Outcome.HOLDS
    assert verdict(h, "REG-08", complete=False).verdict is Outcome.UNKNOWN


def test_a_broker_that_led_nothing_or_got_no_answer_does_not_exercise_reg_08() -> None:
    h = HistoryBuilder()
    asked(h, leading=False)
    tell(h)
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_granted")
    assert verdict(h, "REG-08").verdict is Outcome.NOT_EXERCISED
    h = HistoryBuilder()
    asked(h)
    h.after(6000)
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_timeout")
    assert verdict(h, "REG-08").verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_hangs_breaks_reg_09() -> None:
    h = HistoryBuilder()
    asked(h)
    h.after(9000)
    assert verdict(h, "REG-09").verdict is Outcome.VIOLATED
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-9, signal=9, expected=True))
    assert verdict(h, "REG-09").violated == 1


def test_a_broker_that_goes_at_its_limit_keeps_reg_09() -> None:
    h = HistoryBuilder()
    asked(h)
    change(h.after(6100), "ACTIVE", "SHUTDOWN", "shutdown_timeout")
    h.add("harness", ProcessExited(ended=BROKER, exit_code=0, signal=0, expected=True))
    found = verdict(h.after(9000), "REG-09")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_a_run_that_ends_before_the_limit_does_not_exercise_reg_09() -> None:
    h = HistoryBuilder()
    asked(h)
    assert verdict(h.after(3000), "REG-09").verdict is Outcome.NOT_EXERCISED
    assert verdict(h, "REG-09", complete=False).verdict is Outcome.UNKNOWN


# ----------------------------------------------------------------------------------------- REG-02


def test_a_broker_that_registers_while_it_recovers_breaks_reg_02() -> None:
    h = HistoryBuilder()
    h.add(BROKER, RecoveryStarted(node_id=1))
    register(h)
    h.add(BROKER, RecoveryEnded(node_id=1, logs=3, batches=9))
    assert verdict(h, "REG-02").violated == 1


def test_a_broker_that_registers_again_and_again_breaks_reg_02_once() -> None:
    h = HistoryBuilder()
    h.add(BROKER, RecoveryStarted(node_id=1))
    for _ in range(3):
        register(h)
    assert verdict(h, "REG-02").violated == 1


def test_a_broker_that_recovers_first_keeps_reg_02() -> None:
    h = HistoryBuilder()
    h.add(BROKER, RecoveryStarted(node_id=1))
    h.add(BROKER, RecoveryEnded(node_id=1, logs=3, batches=9))
    register(h)
    assert verdict(h, "REG-02").evidence is Evidence.PEER
    assert verdict(h, "REG-02", complete=False).verdict is Outcome.UNKNOWN


def test_an_empty_disk_does_not_exercise_reg_02() -> None:
    h = HistoryBuilder()
    h.add(BROKER, RecoveryStarted(node_id=1))
    h.add(BROKER, RecoveryEnded(node_id=1, logs=0, batches=0))
    register(h)
    assert verdict(h, "REG-02").verdict is Outcome.NOT_EXERCISED
