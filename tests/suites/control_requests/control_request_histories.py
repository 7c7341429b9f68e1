"""Histories of a controller over ZooKeeper and of broker 1, which bounces (KIP-380)."""

from __future__ import annotations

from typing import Any

from fencepost import Cause, Event, NodeStarted
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeclared,
    BrokerRegistered,
    BrokerStopping,
    ControlledShutdownAnswered,
    ControllerBegan,
    ControlRequestAnswered,
    ControlRequestSent,
    PartitionCommitted,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
CONTROLLER, NEXT = "broker-3#1", "broker-2#1"
MS = 1_000_000
OLD, NEW = "broker-1#1", "broker-1#2"
FORMER, OWN = 10, 20
"""The broker epochs of broker 1's former process, and of its current one."""
ALL = tuple(f"BE-{number:02}" for number in range(1, 11))


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "legacy").verdicts[clause]


def outcome(h: HistoryBuilder, clause: str) -> Outcome:
    return verdict(h, clause).verdict


def register(
    h: HistoryBuilder,
    process: str,
    epoch: int,
    version: int = 5,
    protocol: int = -1,
    broker: int = 1,
) -> None:
    h.add(process, NodeStarted(role="broker", node_id=broker, incarnation=process, log_end=-1))
    again(h, process, epoch, version=version, protocol=protocol, broker=broker)


def again(
    h: HistoryBuilder,
    process: str,
    epoch: int,
    version: int = 5,
    protocol: int = -1,
    broker: int = 1,
) -> None:
    """The process registers, for the first time or anew."""
    h.add(
        process,
        BrokerRegistered(
            broker_id=broker,
            broker_epoch=epoch,
            session=1,
            version=version,
            overwrote=False,
            protocol=protocol,
        ),
    )


def send(
    h: HistoryBuilder,
    api: str,
    epoch: int,
    number: int = 1,
    controller_epoch: int = 1,
    partitions: tuple[str, ...] = ("orders-0",),
    deletes: bool = False,
    process: str = CONTROLLER,
    attempt: int = 1,
) -> Event:
    return h.add(
        process,
        ControlRequestSent(
            api=api,
            broker_id=1,
            broker_epoch=epoch,
            controller_epoch=controller_epoch,
            correlation=number,
            partitions=partitions,
            attempt=attempt,
            deletes=deletes,
        ),
    )


def answer(
    h: HistoryBuilder, sent: Event, error: str = "NONE", process: str = NEW, **changed: Any
) -> None:
    """Adds the answer to a request: its fields are those of the request, except `changed`."""
    body: Any = sent.body
    answer = {
        "api": body.api,
        "client": sent.process,
        "broker_id": 1,
        "controller_id": 3,
        "controller_epoch": body.controller_epoch,
        "seen_epoch": 1,
        "request_epoch": body.broker_epoch,
        "broker_epoch": OWN,
        "error": error,
        "partitions": body.partitions,
        "deletes": body.deletes,
    }
    answer.update(changed)
    h.add(
        process,
        ControlRequestAnswered(**answer),
        cause=Cause(sent.process, body.correlation, request=True),
    )


def declare(
    h: HistoryBuilder, old: Any, new: Any, epoch: int, reason: Any, process: str = CONTROLLER
) -> None:
    h.add(
        process,
        BrokerDeclared(
            broker_id=1,
            incarnation_id=epoch,
            old=old,
            new=new,
            reason=reason,
            version=5,
            silent_ms=0,
            timeout_ms=2000,
            controller_epoch=1,
        ),
    )


def begin(h: HistoryBuilder) -> None:
    h.add(
        CONTROLLER,
        ControllerBegan(epoch=1, broker_id=3, first=True, heartbeat_timeout_ms=2000),
    )


def shut_down(
    h: HistoryBuilder, epoch: int, error: str = "NONE", known: int = OWN, client: str = OLD
) -> None:
    h.add(
        CONTROLLER,
        ControlledShutdownAnswered(
            client=client,
            broker_id=1,
            request_epoch=epoch,
            known_epoch=known,
            error=error,
            remaining=(),
            controller_epoch=1,
        ),
    )


def stop(h: HistoryBuilder, process: str) -> None:
    h.add(process, BrokerStopping(broker_id=1, state="ACTIVE", global_state="Stopping", limit_ms=1))


def store(h: HistoryBuilder, *indexes: int) -> None:
    for index in indexes:
        h.add(
            CONTROLLER,
            PartitionCommitted(
                offset=index + 1,
                topic="orders",
                partition=index,
                leader=1,
                leader_epoch=0,
                isr=(1,),
                replicas=(1,),
                adding=(),
                removing=(),
                role="controller",
            ),
        )


def bounced() -> HistoryBuilder:
    """A history in which broker 1 has bounced, and its second process is registered."""
    h = HistoryBuilder()
    begin(h)
    register(h, OLD, FORMER)
    declare(h, "Absent", "Active", FORMER, "registered")
    register(h, NEW, OWN)
    return h


def read_znode(h: HistoryBuilder, epoch: int) -> None:
    """An observer reads the znode of broker 1."""
    znode = BrokerCommitted(
        offset=9, broker_id=1, broker_epoch=epoch, fenced=False, incarnation=str(epoch)
    )
    h.add("clients/observer#1", znode)
