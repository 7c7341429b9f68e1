"""Histories of the plane without a controller: replicas stand for election and store ISRs."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.testing import Broken, HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    FetchServed,
    IsrPrepared,
    LeadershipStarted,
    PartitionCommitted,
    ReplicaStood,
    StateChangeCarriedOut,
    TopicCommitted,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
B1, B2, B3 = "broker-1#1", "broker-2#1", "broker-3#1"
ALL3 = (1, 2, 3)
LEADER = "/brokers/topics/orders/0/leader"


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Outcome:
    return _judged(h, clause, complete).verdict


def violations(h: HistoryBuilder, clause: str) -> Sequence[Broken]:
    return _judged(h, clause).violations


def _judged(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "classic").verdicts[clause]


def stands(
    h: HistoryBuilder,
    process: str,
    *,
    isr: tuple[int, ...] = ALL3,
    waited_ms: int = 200,
    won: bool = True,
    epoch: int = 2,
    path: str = LEADER,
    number: int = 0,
) -> None:
    broker = int(process[7])
    h.add(
        process,
        ReplicaStood(
            topic="orders",
            partition=number,
            broker_id=broker,
            leader_epoch=epoch,
            isr=isr,
            preferred=broker == 1,
            waited_ms=waited_ms,
            preferred_ms=200,
            won=won,
            path=path,
        ),
    )


def prepared(
    h: HistoryBuilder,
    isr: tuple[int, ...] = (2, 3),
    ends: tuple[int, ...] = (5, 5),
    waited_ms: int = 30,
    path: str = "/brokers/topics/orders/0/ISR",
    awaited: tuple[int, ...] = (2, 3),
) -> None:
    h.add(
        B2,
        IsrPrepared(
            topic="orders",
            partition=0,
            leader_epoch=2,
            log_end=5,
            isr=isr,
            ends=ends,
            awaited=awaited,
            waited_ms=waited_ms,
            most_ms=1_500,
            balance_ms=1_000,
            path=path,
        ),
    )


def leads(h: HistoryBuilder, epoch: int = 2) -> None:
    h.add(
        B2,
        LeadershipStarted(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            isr=(2, 3),
            log_start=0,
            log_end=5,
            high_watermark=4,
        ),
    )


def serves(h: HistoryBuilder, high_watermark: int) -> None:
    h.add(
        B2,
        FetchServed(
            topic="orders",
            partition=0,
            client="clients/consumer-1#1",
            from_offset=0,
            to_offset=4,
            high_watermark=high_watermark,
            leader_epoch=2,
            state="ACTIVE",
            log_end=5,
        ),
    )


def partition(
    h: HistoryBuilder,
    offset: int,
    leader: int,
    epoch: int,
    isr: tuple[int, ...] = ALL3,
    number: int = 0,
    replicas: tuple[int, ...] = ALL3,
) -> None:
    h.add(
        B2,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=number,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            replicas=replicas,
        ),
    )


def broker(h: HistoryBuilder, offset: int, number: int, fenced: bool = False) -> None:
    h.add(
        B2,
        BrokerCommitted(
            offset=offset,
            broker_id=number,
            broker_epoch=offset,
            fenced=fenced,
            incarnation="a",
        ),
    )


def topic(h: HistoryBuilder, process: str, offset: int = 10, deleted: bool = False) -> None:
    h.add(process, TopicCommitted(offset=offset, topic="orders", topic_id="t", deleted=deleted))


def active(h: HistoryBuilder, process: str) -> None:
    h.add(
        process,
        BrokerStateChanged(
            broker_id=int(process[7]),
            old="INITIAL",
            new="ACTIVE",
            broker_epoch=5,
            reason="registered",
        ),
    )


def carries_out(h: HistoryBuilder, change: str, moot: bool = False) -> None:
    """Broker 2 takes a request for its replica up."""
    path = "/brokers/topics/orders/0/state/2/request-0000000000"
    h.add(
        B2,
        StateChangeCarriedOut(topic="orders", partition=0, path=path, change=change, moot=moot),
    )
