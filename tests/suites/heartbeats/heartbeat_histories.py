"""Histories of a controller over ZooKeeper and of broker 2, which sends it heartbeats (KIP-343)."""

from __future__ import annotations

from collections.abc import Callable

from fencepost import Cause, NodeStarted, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    ControllerBegan,
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
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
CONTROLLER, BROKER, SECOND = "broker-1#1", "broker-2#1", "broker-2#2"
TIMEOUT_MS = 2000
STATES = {"Initial": 0, "Inactive": 1, "Active": 2, "Stopping": 3}


def whole_verdict(h: HistoryBuilder, clause: str) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(), "legacy").verdicts[clause]


def verdict(h: HistoryBuilder, clause: str) -> Outcome:
    return whole_verdict(h, clause).verdict


def began(
    h: HistoryBuilder, first: bool = True, epoch: int = 1, session_timeout_ms: int = 0
) -> None:
    h.add(
        CONTROLLER,
        ControllerBegan(
            epoch=epoch,
            broker_id=1,
            first=first,
            heartbeat_timeout_ms=TIMEOUT_MS,
            session_timeout_ms=session_timeout_ms,
        ),
    )


def declared(
    h: HistoryBuilder,
    new: str = "Active",
    old: str = "Initial",
    reason: str = "heartbeat",
    incarnation: int = 20,
    version: int = 5,
    broker: int = 2,
) -> None:
    silent_ms = TIMEOUT_MS if reason == "silent" else 0
    h.add(
        CONTROLLER,
        BrokerDeclared(
            broker_id=broker,
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
    broker: int = 2,
) -> None:
    h.add(
        process,
        BrokerRegistered(
            broker_id=broker,
            broker_epoch=epoch,
            session=7,
            version=version,
            overwrote=False,
            protocol=protocol,
        ),
    )


def sent(
    h: HistoryBuilder,
    incarnation: int = 20,
    target: int = 2,
    process: str = BROKER,
    number: int = 5,
) -> None:
    h.add(
        process,
        MetadataHeartbeatSent(
            broker_id=2,
            incarnation_id=incarnation,
            controller=1,
            correlation=number,
            target_state=target,
        ),
    )


def answered(
    h: HistoryBuilder,
    incarnation: int = 20,
    error: str = "NONE",
    state: str = "Active",
    target: int = 2,
    known: int = 20,
    active: bool = True,
    client: str = BROKER,
    cause: Cause | None = None,
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
        cause=cause,
    )


def received(
    h: HistoryBuilder,
    error: str = "NONE",
    state: str = "Active",
    incarnation: int = 20,
    timeout_ms: int = 3000,
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
            timeout_ms=timeout_ms,
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
    """A broker whose heartbeat the controller has just accepted."""
    h.add(BROKER, NodeStarted(role="broker", node_id=2, incarnation="x", log_end=-1))
    h.add(BROKER, SessionChanged(session=7, state="connected"))
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
    """Joins steps to a history."""

    def write(h: HistoryBuilder) -> None:
        for one in each:
            one(h)

    return write


def call(write: Callable[..., None], **given: object) -> Write:
    """A step with arguments."""
    return lambda h: write(h, **given)


def wait(ms: int) -> Callable[[HistoryBuilder], object]:
    """A step that lets time pass."""
    return lambda h: h.after(ms)


def asked_to_stop(h: HistoryBuilder) -> None:
    h.add(
        BROKER, BrokerStopping(broker_id=2, state="ACTIVE", global_state="Stopping", limit_ms=6000)
    )


def killed(h: HistoryBuilder) -> None:
    h.add("harness", ProcessExited(ended=BROKER, exit_code=-1, signal=9, expected=True))


def suspended(h: HistoryBuilder) -> None:
    h.add(CONTROLLER, SessionChanged(session=3, state="suspended"))


term_began = steps(began, declared)
heard = steps(term_began, active_broker, answered, received)
silence = call(declared, new="Inactive", old="Active", reason="silent")
back = call(declared, new="Active", old="Inactive")
stopping = call(changed, new="ACTIVE", reason="stopping", state="Stopping")
ended = call(changed, new="SHUTDOWN", reason="shutdown_granted", state="Offline")
legacy = call(declared, old="Absent", reason="registered", version=4)
