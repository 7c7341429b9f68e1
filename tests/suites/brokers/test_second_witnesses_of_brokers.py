"""Histories in which a broker's word for itself stands alone, or a record speaks against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.brokers.broker_histories import (
    BROKER,
    NEW,
    OLD,
    PEER,
    PROBE,
    grant,
    record,
    verdict,
)
from tests.suites.brokers.life_histories import asked, change, register

from fencepost import (
    Evidence,
    FaultInjected,
    NodeStarted,
    ProcessAsked,
    ProcessExited,
    process_scope,
)
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStopping,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatRefused,
    ProbeCompleted,
    RecoveryEnded,
    RecoveryStarted,
)

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
DUPLICATE = "broker-1-duplicate#1"


def begins(h: HistoryBuilder, process: str, incarnation: str) -> None:
    h.add(process, NodeStarted(role="broker", node_id=1, incarnation=incarnation, log_end=0))


def answer(
    error: str = "NONE",
    *,
    client: str = BROKER,
    broker: int = 1,
    incarnation: str = "x",
    next_state: str = "ACTIVE",
    active: bool = True,
    active_controller: int = -1,
    metadata_offset: int = -1,
    most_behind: int = -1,
) -> HeartbeatAnswered:
    return HeartbeatAnswered(
        client=client,
        broker_id=broker,
        incarnation=incarnation,
        request_epoch=5,
        broker_epoch=5,
        error=error,
        next_state=next_state,
        lease_start_ms=0,
        lease_end_ms=3000,
        lease_period_ms=3000,
        controller_epoch=1,
        active_controller=active_controller,
        active=active,
        metadata_offset=metadata_offset,
        most_behind=most_behind,
    )


# ----------------------------------------------------------------------------------------- REG-01


@pytest.mark.parametrize(("incarnation", "outcome"), [("x", HOLDS), ("y", VIOLATED)])
def test_a_broker_is_online_by_a_record_of_its_own_incarnation(
    incarnation: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begins(h, BROKER, incarnation)
    record(h, 5, fenced=False)
    change(h, "FENCED", "ACTIVE", said="Online")
    found = verdict(h, "REG-01")
    assert found.verdict is outcome
    assert all(one.facts["process"] == process_scope(BROKER) for one in found.violations)


def test_a_process_that_nobody_knows_has_no_record_of_its_own() -> None:
    h = HistoryBuilder()
    begins(h, DUPLICATE, "x")
    record(h, 5, fenced=False)
    change(h, "FENCED", "ACTIVE", said="Online")
    assert verdict(h, "REG-01").verdict is VIOLATED


def test_a_broker_without_a_record_is_not_online_whatever_it_calls_itself() -> None:
    h = HistoryBuilder()
    change(h, "FENCED", "ACTIVE")
    assert verdict(h, "REG-01").verdict is VIOLATED


def fence(h: HistoryBuilder) -> None:
    record(h, 9, fenced=True)


def delete(h: HistoryBuilder) -> None:
    h.add(PEER, BrokerDeleted(offset=9, broker_id=1))


def take_over(h: HistoryBuilder) -> None:
    taken = BrokerCommitted(
        offset=9, broker_id=1, broker_epoch=9, fenced=False, incarnation="another"
    )
    h.add(PEER, taken)


@pytest.mark.parametrize("end", [fence, delete, take_over])
@pytest.mark.parametrize(("after_ms", "outcome"), [(2_999, HOLDS), (3_000, VIOLATED)])
def test_a_broker_becomes_online_within_a_lease_of_the_record_that_ends_that(
    end: Callable[[HistoryBuilder], None], after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    register(h)
    record(h, 5, fenced=False)
    end(h)
    ended = h.events()[-1].ref
    h.after(after_ms)
    change(h, "FENCED", "ACTIVE", said="Online")
    found = verdict(h, "REG-01")
    assert found.verdict is outcome
    assert all(one.because == (ended,) for one in found.violations)


def test_a_record_that_a_node_replays_late_ends_nothing() -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    record(h, 4, fenced=True, process=NEW)
    h.after(60_000)
    change(h, "FENCED", "ACTIVE", said="Online")
    assert verdict(h, "REG-01").verdict is HOLDS


# ----------------------------------------------------------------------------------------- QC-22


def names(h: HistoryBuilder, process: str, controller: int, error: str = "NOT_CONTROLLER") -> None:
    """A controller answers a heartbeat, and names the active controller."""
    h.add(process, answer(error=error, active=error == "NONE", active_controller=controller))


@pytest.mark.parametrize(
    ("controller", "outcome"),
    [
        pytest.param(-1, HOLDS, id="nobody"),
        pytest.param(101, HOLDS, id="the one that was elected"),
        pytest.param(102, VIOLATED, id="itself"),
        pytest.param(103, VIOLATED, id="one that never was"),
        pytest.param(-7, VIOLATED, id="no id at all"),
    ],
)
def test_an_inactive_controller_names_one_that_was_elected(
    controller: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    for number, process in ((101, OLD), (102, NEW), (103, PEER)):
        h.add(process, NodeStarted(role="controller", node_id=number))
    names(h, NEW, controller)
    # That it was elected may be told later than that others know it.
    h.add(OLD, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    found = verdict(h, "QC-22")
    assert found.verdict is outcome
    assert all(one.facts["process"] == process_scope(NEW) for one in found.violations)


@pytest.mark.parametrize(("controller", "outcome"), [(101, NOT_EXERCISED), (102, VIOLATED)])
def test_the_active_controller_names_itself(controller: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    h.add(OLD, NodeStarted(role="controller", node_id=101))
    h.add(OLD, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    names(h, OLD, controller, error="NONE")
    assert verdict(h, "QC-22").verdict is outcome


def test_a_controller_of_unknown_id_may_be_the_one_that_is_named() -> None:
    h = HistoryBuilder()
    h.add(NEW, NodeStarted(role="controller", node_id=102))
    h.add(OLD, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    names(h, NEW, 101)
    assert verdict(h, "QC-22").verdict is HOLDS


# ------------------------------------------------------------------------------- REG-08 and REG-09


def exits(h: HistoryBuilder, code: int = 0, signal: int = 0) -> None:
    h.add(
        "harness", ProcessExited(ended=BROKER, exit_code=code, signal=signal, expected=signal != 0)
    )


@pytest.mark.parametrize(
    ("code", "signal", "outcome"),
    [
        pytest.param(0, 0, VIOLATED, id="in order"),
        pytest.param(0, 15, VIOLATED, id="by the signal that asked it"),
        pytest.param(0, 9, NOT_EXERCISED, id="killed"),
        pytest.param(1, 0, NOT_EXERCISED, id="crashed"),
    ],
)
def test_a_broker_that_ends_without_a_word_goes_offline(
    code: int, signal: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    asked(h)
    exits(h, code, signal)
    assert verdict(h, "REG-08").verdict is outcome


@pytest.mark.parametrize(("has_lease", "outcome"), [(True, VIOLATED), (False, NOT_EXERCISED)])
def test_a_broker_that_never_says_that_it_stops_was_asked_by_the_harness(
    has_lease: bool, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    if has_lease:
        grant(h)
    h.add("harness", ProcessAsked(asked=BROKER, signal="SIGTERM"))
    exits(h)
    assert verdict(h, "REG-08").verdict is outcome


@pytest.mark.parametrize(("after_ms", "outcome"), [(5_399, VIOLATED), (5_400, NOT_EXERCISED)])
def test_the_time_to_stop_is_over_when_it_is(after_ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    asked(h)
    grant(h)
    h.after(after_ms - 3)
    h.add("harness", ProcessAsked(asked=BROKER, signal="SIGTERM"))
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_timeout")
    assert verdict(h, "REG-08").verdict is outcome


@pytest.mark.parametrize(("after_ms", "outcome"), [(5_399, NOT_EXERCISED), (5_400, HOLDS)])
def test_a_broker_that_ends_before_its_time_is_over_exercises_nothing(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    asked(h)
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_timeout")
    h.after(after_ms - 2)
    exits(h)
    assert verdict(h, "REG-09").verdict is outcome


def test_a_broker_that_got_its_id_back_has_leaderships_to_move() -> None:
    h = HistoryBuilder()
    error = "DUPLICATE_BROKER_REGISTRATION"
    h.add(BROKER, HeartbeatRefused(broker_id=1, broker_epoch=-1, error=error, controller=101))
    grant(h)
    asked(h)
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_requested")
    assert verdict(h, "REG-08").verdict is VIOLATED


@pytest.mark.parametrize("next_state", ["SHUTDOWN", "ACTIVE"])
def test_an_answer_that_names_nobody_allows_the_broker_that_took_it(next_state: str) -> None:
    h = HistoryBuilder()
    asked(h)
    h.add(NEW, answer(client="", next_state=next_state))
    grant(h, next_state="SHUTDOWN")
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_granted")
    outcome = HOLDS if next_state == "SHUTDOWN" else VIOLATED
    assert verdict(h, "REG-08").verdict is outcome


def test_an_answer_that_the_broker_did_not_take_allows_nothing() -> None:
    h = HistoryBuilder()
    grant(h)
    asked(h)
    h.add(NEW, answer(next_state="SHUTDOWN"))
    change(h, "ACTIVE", "SHUTDOWN", "shutdown_granted")
    assert verdict(h, "REG-08").verdict is VIOLATED


@pytest.mark.parametrize(("after_ms", "outcome"), [(23_000, NOT_EXERCISED), (23_001, VIOLATED)])
@pytest.mark.parametrize("says", [False, True])
def test_no_broker_sets_itself_more_time_than_any_node_may_take(
    says: bool, after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begins(h, BROKER, "x")
    h.add("harness", ProcessAsked(asked=BROKER, signal="SIGTERM"))
    if says:
        h.add(
            BROKER,
            BrokerStopping(broker_id=1, state="ACTIVE", global_state="Stopping", limit_ms=10**9),
        )
    h.after(after_ms - 1 - says)
    exits(h, signal=9)
    assert verdict(h, "REG-09").verdict is outcome


# ----------------------------------------------------------------------------------------- REG-02


def test_a_broker_that_recovers_its_logs_after_it_has_registered_breaks_reg_02() -> None:
    h = HistoryBuilder()
    register(h)
    h.add(BROKER, RecoveryStarted(node_id=1))
    h.add(BROKER, RecoveryEnded(node_id=1, logs=5, batches=9))
    register(h)
    found = verdict(h, "REG-02")
    assert (found.violated, found.exercised) == (1, 0)
    assert found.violations[0].because == (h.events()[0].ref,)


@pytest.mark.parametrize("tells", [False, True])
def test_a_process_that_is_answered_while_it_recovers_breaks_reg_02(tells: bool) -> None:
    """It never tells of a request. Of one that does, the controller's word alone proves nothing."""
    h = HistoryBuilder()
    h.add(BROKER, RecoveryStarted(node_id=1))
    h.add(NEW, answer())
    h.add(BROKER, RecoveryEnded(node_id=1, logs=3, batches=9))
    if tells:
        register(h)
    found = verdict(h, "REG-02")
    assert found.violated == (0 if tells else 1)
    if not tells:
        assert found.violations[0].evidence is Evidence.PEER
        assert found.violations[0].facts["process"] == process_scope(BROKER)


def test_an_answer_to_the_former_process_says_nothing_of_the_one_that_recovers() -> None:
    h = HistoryBuilder()
    h.add("broker-1#2", RecoveryStarted(node_id=1))
    h.add(NEW, answer())
    h.add("broker-1#2", RecoveryEnded(node_id=1, logs=3, batches=9))
    assert verdict(h, "REG-02").violated == 0


# ----------------------------------------------------------------------------------------- REG-07


def fenced_for(h: HistoryBuilder, after_ms: int) -> None:
    """Broker 1 is fenced by a record that this node tells; then broker 2 names it to a client."""
    h.add("broker-2#1", NodeStarted(role="broker", node_id=2, incarnation="z", log_end=0))
    record(h, 5, fenced=False)
    record(h, 9, fenced=True)
    record(h, 10, fenced=True)
    h.after(after_ms - 2)


def names_it(h: HistoryBuilder) -> None:
    sent_ns = h.now_ns
    probed = ProbeCompleted(
        operation="p",
        api="Metadata",
        broker=2,
        slot="broker-2",
        topic="orders",
        partition=-1,
        outcome="answered",
        error="",
        records=0,
        base_offset=-1,
        sent_at_ns=sent_ns,
        brokers=(1, 2),
    )
    h.add(PROBE, probed)


@pytest.mark.parametrize(("after_ms", "outcome"), [(30_000, NOT_EXERCISED), (30_001, VIOLATED)])
def test_a_broker_that_replays_nothing_may_name_a_fenced_one_for_half_a_minute(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    fenced_for(h, after_ms)
    names_it(h)
    found = verdict(h, "REG-07")
    assert found.verdict is outcome
    assert all(one.because == (h.events()[2].ref,) for one in found.violations)
    if outcome is VIOLATED:
        assert verdict(h, "REG-07", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        ("nothing", VIOLATED),
        ("it began anew", NOT_EXERCISED),
        ("the other one is back", NOT_EXERCISED),
        ("a fault cut it off", NOT_EXERCISED),
        ("a fault cut others off", VIOLATED),
    ],
)
def test_a_broker_that_had_no_time_to_replay_may_name_a_fenced_one(
    why: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    fenced_for(h, 60_000)
    if why == "it began anew":
        h.add("broker-2#2", NodeStarted(role="broker", node_id=2, incarnation="w", log_end=0))
    elif why == "the other one is back":
        record(h, 11, fenced=False)
    elif why.startswith("a fault"):
        others = "broker-2" if why == "a fault cut it off" else "broker-3"
        cut = FaultInjected(
            fault_id="cut-1",
            fault="cut",
            targets=(others, "controller-1"),
            receipt=True,
            evidence="measured",
            directions=(f"{others} -> controller-1",),
        )
        h.add("harness", cut)
    h.after(10_000)
    names_it(h)
    assert verdict(h, "REG-07").verdict is outcome
