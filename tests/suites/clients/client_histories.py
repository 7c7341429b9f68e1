"""Histories of clients of the partition `orders-0`, for the rules of Jepsen's anomalies."""

from __future__ import annotations

from typing import Literal

from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import (
    AdminCompleted,
    LeadershipEnded,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
    TopicCommitted,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
PRODUCER, READER = "clients/producer#1", "clients/reader#1"
A, B = "clients/consumer-a#1", "clients/consumer-b#1"


def invoke(h: HistoryBuilder, acks: int = -1, *, idempotent: bool = True) -> None:
    body = ProduceInvoked(
        operation="op", topic="orders", partition=0, acks=acks, idempotent=idempotent
    )
    h.add(PRODUCER, body)


def invoke_named(h: HistoryBuilder, *operations: str, idempotent: bool = False) -> None:
    for one in operations:
        body = ProduceInvoked(
            operation=one, topic="orders", partition=0, acks=-1, idempotent=idempotent
        )
        h.add(PRODUCER, body)


def delete_replica(h: HistoryBuilder) -> None:
    """The leader says that the topic is deleted."""
    ended = LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="deleted")
    h.add("broker-1#1", ended)


def delete_topic(h: HistoryBuilder, offset: int = 9, process: str = "controller-1#1") -> None:
    """The deletion of the topic is committed."""
    body = TopicCommitted(offset=offset, topic="orders", topic_id="t", deleted=True)
    h.add(process, body)


def make_topic(h: HistoryBuilder, offset: int = 20, process: str = "controller-1#1") -> None:
    """The topic is made again."""
    body = TopicCommitted(offset=offset, topic="orders", topic_id="t2", deleted=False)
    h.add(process, body)


def answer_deletion(h: HistoryBuilder) -> None:
    """A client got the answer that the topic is deleted."""
    body = AdminCompleted(
        operation="d", api="delete_topic", subject="orders", outcome="ok", error=""
    )
    h.add("clients/admin#1", body)


def verdict(h: HistoryBuilder, anomaly: str, complete: bool = True) -> Verdict:
    clause = f"JEPSEN-{anomaly}"
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    # A plane that no system here has: these clauses bind every system.
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "kraft").verdicts[clause]


def acked(
    h: HistoryBuilder,
    offset: int,
    operation: str = "",
    acks: int = -1,
    outcome: Literal["ok", "failed"] = "ok",
    process: str = PRODUCER,
) -> None:
    name = operation or f"op-{offset}"
    h.add(
        process,
        ProduceCompleted(
            operation=name,
            topic="orders",
            partition=0,
            acks=acks,
            outcome=outcome,
            offset=offset,
            error="",
        ),
    )


def poll(h: HistoryBuilder, process: str, *offsets: int, **instead: str) -> None:
    """A consumer's poll; `o4="x"` means that operation x was at offset 4."""
    operations = tuple(instead.get(f"o{offset}", f"op-{offset}") for offset in offsets)
    h.add(
        process,
        Polled(
            topic="orders",
            partition=0,
            offsets=offsets,
            operations=operations,
            final=process == READER,
        ),
    )


def read(h: HistoryBuilder, end: int, outcome: str = "ok") -> None:
    error = "" if outcome == "ok" else "3 offsets were not seen in time"
    asked_ns = h.events()[-1].at_ns
    h.add(
        READER,
        ReadCompleted(
            topic="orders",
            partition=0,
            start=0,
            end=end,
            outcome=outcome,
            error=error,
            asked_ns=asked_ns,
        ),
    )
