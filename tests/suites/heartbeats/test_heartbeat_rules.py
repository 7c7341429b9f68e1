"""The rules of heartbeats over ZooKeeper, each with a history that keeps the promise, one that
breaks it, and one in which its situation does not occur."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost import NodeStarted, ProcessExited, Stalled
from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    ControllerBegan,
    ControllerEnded,
    FetchServed,
    IsrChangeJudged,
    LogAppended,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    PartitionCommitted,
    RequestRefused,
    SessionChanged,
)
from fencepost_suites import rules
from fencepost_suites.clauses import clauses

CLAUSES = {clause.id: clause for clause in clauses()}
CONTROLLER, BROKER, SECOND = "broker-1#1", "broker-2#1", "broker-2#2"
TIMEOUT_MS = 2000
STATES = {"Initial": 0, "Inactive": 1, "Active": 2, "Stopping": 3}


def verdict(h: HistoryBuilder, clause: str) -> Outcome:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(), "legacy").verdicts[clause].verdict


def began(
    h: HistoryBuilder, first: bool = True, epoch: int = 1, session_timeout_ms: int = 0
) -> None:
    h.add(
        CONTROLLER,
        ControllerBegan(epoch, 1, first, TIMEOUT_MS, session_timeout_ms=session_timeout_ms),
    )


def declared(
    h: HistoryBuilder,
    new: str = "Active",
    old: str = "Initial",
    reason: str = "heartbeat",
    incarnation: int = 20,
    version: int = 5,
) -> None:
    silent_ms = TIMEOUT_MS if reason == "silent" else 0
    h.add(
        CONTROLLER,
        BrokerDeclared(
            broker_id=2,
            incarnation_id=incarnation,
            old=old,  # type: ignore[arg-type]
            new=new,  # type: ignore[arg-type]
            reason=reason,  # type: ignore[arg-type]
            version=version,
            silent_ms=silent_ms,
            timeout_ms=TIMEOUT_MS,
            controller_epoch=1,
        ),
    )


def registered(
    h: HistoryBuilder,
    epoch: int = 20,
    process: str = BROKER,
    version: int = 5,
    protocol: int = 3,
) -> None:
    h.add(
        process,
        BrokerRegistered(
            broker_id=2,
            broker_epoch=epoch,
            session=7,
            version=version,
            overwrote=False,
            protocol=protocol,
        ),
    )


def sent(h: HistoryBuilder, incarnation: int = 20, target: int = 2) -> None:
    h.add(BROKER, MetadataHeartbeatSent(2, incarnation, 1, 5, target))


def answered(
    h: HistoryBuilder,
    incarnation: int = 20,
    error: str = "NONE",
    state: str = "Active",
    target: int = 2,
    known: int = 20,
    active: bool = True,
    client: str = BROKER,
) -> None:
    h.add(
        CONTROLLER,
        MetadataHeartbeatAnswered(
            client=client,
            broker_id=2,
            incarnation_id=incarnation,
            known=known,
            target_state=target,
            error=error,
            state=state,  # type: ignore[arg-type]
            controller_epoch=1,
            active=active,
        ),
    )


def received(
    h: HistoryBuilder, error: str = "NONE", state: str = "Active", incarnation: int = 20
) -> None:
    h.add(
        BROKER,
        MetadataHeartbeatReceived(
            broker_id=2,
            incarnation_id=incarnation,
            controller=1,
            error=error,
            state=STATES[state],
            sent_ns=0,
            timeout_ms=3000,
        ),
    )


def changed(
    h: HistoryBuilder,
    new: str,
    old: str = "ACTIVE",
    reason: str = "controller_silent",
    state: str = "",
) -> None:
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=2,
            old=old,  # type: ignore[arg-type]
            new=new,  # type: ignore[arg-type]
            broker_epoch=20,
            reason=reason,  # type: ignore[arg-type]
            global_state=state,  # type: ignore[arg-type]
        ),
    )


def active_broker(h: HistoryBuilder) -> None:
    """A broker that the controller has just accepted."""
    h.add(BROKER, NodeStarted(role="broker", node_id=2, incarnation="x", metadata_offset=-1))
    h.add(BROKER, SessionChanged(7, "connected"))
    registered(h)
    sent(h)
    received(h)
    changed(h, "ACTIVE", old="INITIAL", reason="unfenced", state="Online")


def stored(
    h: HistoryBuilder,
    isr: tuple[int, ...] = (2, 3),
    leader: int = 2,
    epoch: int = 4,
    offset: int = 50,
    process: str = CONTROLLER,
    role: str = "controller",
) -> None:
    h.add(
        process,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            replicas=(1, 2, 3),
            role=role,  # type: ignore[arg-type]
        ),
    )


def judged(
    h: HistoryBuilder,
    result: str = "NONE",
    isr: str = "2,3",
    error: str = "NONE",
    incarnation: int = 20,
    epoch: int = 4,
    active: bool = True,
) -> None:
    one = error == "NONE"
    h.add(
        CONTROLLER,
        IsrChangeJudged(
            client=BROKER,
            broker_id=2,
            incarnation_id=incarnation,
            known=20,
            error=error,
            partitions=("orders-0",) if one else (),
            isrs=(isr,) if one else (),
            leader_epochs=(epoch,) if one else (),
            results=(result,) if one else (),
            controller_epoch=1,
            active=active,
        ),
    )


def served(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        FetchServed(
            topic="orders",
            partition=0,
            client="clients/consumer-1#1",
            from_offset=0,
            to_offset=1,
            high_watermark=1,
            leader_epoch=4,
            state="ACTIVE",
        ),
    )


def wrote(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        LogAppended(
            topic="orders",
            partition=0,
            base_offset=0,
            log_end=1,
            expected_base=0,
            batch_epoch=4,
            leader_epoch=4,
            as_leader=True,
            digest="d",
            producer_id=-1,
            base_sequence=-1,
        ),
    )


def refused_client(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        RequestRefused(
            api="Produce",
            topic="orders",
            partition=0,
            client="clients/producer-1#1",
            requester=-1,
            error="NOT_LEADER_OR_FOLLOWER",
            reason="fenced",
            state="ACTIVE",
        ),
    )


Write = Callable[[HistoryBuilder], None]


def steps(*each: Callable[[HistoryBuilder], object]) -> Write:
    """A history of these steps."""

    def write(h: HistoryBuilder) -> None:
        for one in each:
            one(h)

    return write


def call(write: Callable[..., None], **given: object) -> Write:
    """A step with arguments."""
    return lambda h: write(h, **given)


def wait(ms: int) -> Callable[[HistoryBuilder], object]:
    """A step in which time passes."""
    return lambda h: h.after(ms)


def asked_to_stop(h: HistoryBuilder) -> None:
    h.add(
        BROKER, BrokerStopping(broker_id=2, state="ACTIVE", global_state="Stopping", limit_ms=6000)
    )


def killed(h: HistoryBuilder) -> None:
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-1, signal=9, expected=True))


def suspended(h: HistoryBuilder) -> None:
    h.add(CONTROLLER, SessionChanged(3, "suspended"))


in_office = steps(began, declared)
heard = steps(in_office, active_broker, answered, received)
silence = call(declared, new="Inactive", old="Active", reason="silent")
back = call(declared, new="Active", old="Inactive")
stopping = call(changed, new="ACTIVE", reason="stopping", state="Stopping")
ended = call(changed, new="SHUTDOWN", reason="shutdown_granted", state="Offline")
legacy = call(declared, old="Absent", reason="registered", version=4)

KEPT: dict[str, Write] = {
    "HB-01": steps(
        registered, answered, call(registered, epoch=30), call(answered, incarnation=30)
    ),
    "HB-02": steps(began, sent, declared),
    "HB-04": steps(active_broker, stopping, served),
    "HB-05": steps(stored, asked_to_stop, call(stored, leader=3, epoch=5, offset=60), ended),
    "HB-06": steps(active_broker, wait(3000), call(changed, new="FENCED")),
    "HB-07": steps(active_broker, call(changed, new="FENCED"), refused_client),
    "HB-08": steps(
        active_broker,
        call(changed, new="FENCED"),
        sent,
        received,
        call(changed, new="ACTIVE", old="FENCED", reason="unfenced"),
    ),
    "HB-09": steps(in_office, answered, wait(2000), silence),
    "HB-10": steps(in_office, wait(2000), silence, back, answered),
    "HB-11": steps(heard, wait(2000), silence, wait(1000), call(changed, new="FENCED")),
    "HB-12": steps(in_office, call(answered, incarnation=10, error="INVALID_INCARNATION_ID")),
    "HB-13": steps(
        in_office,
        call(answered, incarnation=30),
        call(declared, new="Absent", old="Active", reason="bounced"),
    ),
    "HB-14": steps(in_office, answered),
    "HB-16": steps(registered, judged),
    "HB-17": steps(in_office, suspended, call(judged, error="NOT_CONTROLLER", active=False)),
    "HB-18": steps(in_office, call(judged, error="INVALID_INCARNATION_ID", incarnation=10)),
    "HB-19": steps(in_office, stored, call(judged, result="NOT_LEADER_OR_FOLLOWER", epoch=3)),
    "HB-20": steps(in_office, stored, call(judged, result="INVALID_REQUEST", isr="")),
    "HB-21": steps(in_office, stored, judged),
    "HB-22": steps(
        call(registered, version=4, protocol=2), call(stored, process=BROKER, role="broker")
    ),
    "HB-23": steps(began, legacy, wait(2500)),
    "HB-27": steps(in_office, suspended, call(answered, error="NOT_CONTROLLER", active=False)),
    "HB-29": steps(
        active_broker,
        sent,
        call(received, state="Inactive"),
        call(changed, new="FENCED", reason="refused"),
    ),
}  # fmt: skip
BROKEN: dict[str, Write] = {
    "HB-01": steps(
        call(registered, epoch=30, process=SECOND), registered, call(answered, incarnation=30)
    ),
    "HB-02": steps(began, call(declared, old="Absent", reason="registered")),
    "HB-04": steps(active_broker, stopping, refused_client),
    "HB-05": steps(stored, asked_to_stop, wait(100), ended),
    "HB-06": steps(active_broker, wait(3500), served),
    "HB-07": steps(active_broker, call(changed, new="FENCED"), wrote),
    "HB-08": steps(active_broker, call(changed, new="FENCED"), sent, received, sent),
    "HB-09": steps(in_office, answered, wait(3100), answered),
    "HB-10": steps(in_office, wait(2000), silence, call(answered, state="Inactive")),
    "HB-11": steps(heard, wait(700), call(changed, new="FENCED")),
    "HB-12": steps(in_office, call(answered, incarnation=10)),
    "HB-13": steps(in_office, call(answered, incarnation=30), wait(3000)),
    "HB-14": steps(in_office, call(answered, target=3)),
    "HB-16": steps(registered, call(stored, process=BROKER, role="broker")),
    "HB-17": steps(in_office, suspended, judged),
    "HB-18": steps(in_office, call(judged, incarnation=10)),
    "HB-19": steps(in_office, call(stored, leader=3), judged),
    "HB-20": steps(in_office, stored, call(judged, isr="")),
    "HB-21": steps(in_office, call(stored, isr=(1, 2, 3)), judged),
    "HB-22": steps(call(registered, version=5, protocol=2)),
    "HB-23": steps(
        began, legacy, call(declared, new="Inactive", old="Active", reason="silent", version=4)
    ),
    "HB-27": steps(in_office, suspended, answered),
    "HB-29": steps(active_broker, sent, call(received, error="INVALID_INCARNATION_ID"), sent),
}
UNTOUCHED: dict[str, Write] = {
    "HB-01": registered,
    "HB-02": steps(began, call(declared, new="Initial", old="Absent", reason="registered")),
    "HB-04": steps(active_broker, served),
    "HB-05": steps(call(stored, leader=3), asked_to_stop, ended),
    "HB-06": steps(active_broker, wait(2900), killed),
    "HB-07": steps(active_broker, served),
    "HB-08": steps(active_broker, call(changed, new="FENCED"), sent, call(received, error="OTHER")),
    "HB-09": steps(in_office, wait(1500), answered),
    "HB-10": steps(in_office, wait(2000), silence),
    "HB-11": steps(in_office, active_broker, answered, wait(3000)),
    "HB-12": steps(in_office, answered),
    "HB-13": steps(in_office, answered, lambda h: h.add(CONTROLLER, ControllerEnded(1, "session"))),
    "HB-14": steps(in_office, call(answered, incarnation=30)),
    "HB-16": steps(call(registered, version=4), judged),
    "HB-17": steps(in_office, judged),
    "HB-18": steps(in_office, judged),
    "HB-19": steps(in_office, stored, judged),
    "HB-20": steps(in_office, call(stored, isr=(1, 2, 3)), stored, judged),
    "HB-21": steps(in_office, stored, call(judged, result="INVALID_REQUEST", isr="")),
    "HB-22": steps(registered, judged),
    "HB-23": steps(began, legacy, wait(1000)),
    "HB-27": steps(in_office, answered),
    "HB-29": steps(active_broker, sent, received),
}


@pytest.mark.parametrize("clause", sorted(KEPT))
def test_a_kept_promise_holds(clause: str) -> None:
    h = HistoryBuilder()
    KEPT[clause](h)
    assert verdict(h, clause) is Outcome.HOLDS


@pytest.mark.parametrize("clause", sorted(BROKEN))
def test_a_broken_promise_is_violated(clause: str) -> None:
    h = HistoryBuilder()
    BROKEN[clause](h)
    assert verdict(h, clause) is Outcome.VIOLATED


@pytest.mark.parametrize("clause", sorted(UNTOUCHED))
def test_a_promise_whose_situation_does_not_occur_is_not_exercised(clause: str) -> None:
    h = HistoryBuilder()
    UNTOUCHED[clause](h)
    assert verdict(h, clause) is Outcome.NOT_EXERCISED


ELSEWHERE = {"HB-03", "HB-15", "HB-24", "HB-25", "HB-26", "HB-28"}
"""Clauses with their histories in `test_presence_rules.py` and `test_message_rules.py`."""


def test_every_rule_of_heartbeats_has_its_three_histories() -> None:
    owed = {rule.clause for rule in rules.ALL if rule.clause.startswith("HB-")} - ELSEWHERE
    assert owed == set(KEPT) == set(BROKEN) == set(UNTOUCHED)


def test_a_stall_of_the_controller_leaves_a_late_declaration_undecided() -> None:
    h = HistoryBuilder()
    in_office(h)
    answered(h)
    h.after(3100)
    h.add(CONTROLLER, Stalled(stalled_ns=500_000_000))
    answered(h)
    assert verdict(h, "HB-09") is Outcome.UNKNOWN


def test_a_controller_that_ends_had_to_declare_a_silent_broker_before() -> None:
    h = HistoryBuilder()
    in_office(h)
    answered(h)
    h.after(3100)
    h.add("harness", ProcessExited(ended=CONTROLLER, exit_code=-1, signal=9, expected=True))
    assert verdict(h, "HB-09") is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("silent_ms", "expected"), [(4000, Outcome.NOT_EXERCISED), (6000, Outcome.VIOLATED)]
)
def test_what_fell_due_since_a_controller_was_without_zookeeper_is_its_successors(
    silent_ms: int, expected: Outcome
) -> None:
    h = HistoryBuilder()
    began(h, session_timeout_ms=3000)
    declared(h)
    answered(h)
    h.after(silent_ms)
    h.add(CONTROLLER, ControllerEnded(1, "session"))
    assert verdict(h, "HB-09") is expected


def test_a_legacy_registration_that_outlives_the_timeout_counts_at_the_end_of_the_term() -> None:
    h = HistoryBuilder()
    began(h)
    legacy(h)
    h.after(2500)
    h.add("harness", ProcessExited(ended=CONTROLLER, exit_code=-1, signal=9, expected=True))
    assert verdict(h, "HB-23") is Outcome.HOLDS


def test_two_registrations_with_one_czxid_break_the_promise() -> None:
    h = HistoryBuilder()
    registered(h)
    registered(h, process=SECOND)
    assert verdict(h, "HB-01") is Outcome.VIOLATED


def test_an_isr_change_that_adds_an_inactive_broker_breaks_the_promise() -> None:
    h = HistoryBuilder()
    in_office(h)
    stored(h, isr=(2,))
    stored(h, isr=(2, 3), offset=60)
    judged(h)
    assert verdict(h, "HB-20") is Outcome.VIOLATED
