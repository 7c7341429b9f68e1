"""Histories of a cluster of Apache Kafka in KRaft mode, for its own promises."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost import Event, FaultHealed, FaultInjected, NodeStarted, ProcessExited
from fencepost.plugins.manager import load
from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_clusters.apache_kafka.log_memory import SessionConfigured
from fencepost_clusters.apache_kafka.rules.promises import RULES
from fencepost_kafka import (
    BrokerCommitted,
    ControllerElected,
    HeartbeatRefused,
    HighWatermarkAdvanced,
    PartitionCommitted,
)

FIRST, DUPLICATE, PEER = "broker-1#1", "broker-1-duplicate#1", "broker-2#1"
OBSERVER, CONTROLLER = "clients/observer#1", "controller-1#1"
REFUSAL = "DUPLICATE_BROKER_REGISTRATION"
BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLERS = ("controller-1", "controller-2", "controller-3")
SESSION_MS = 3_000
BOUND_MS = SESSION_MS + SESSION_MS // 4 + 1_000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in RULES if rule.clause == clause]
    clauses = load().clauses
    return judge(h.events(), chosen, clauses, h.end(complete), "kraft").verdicts[clause]


def record(
    h: HistoryBuilder, offset: int, fenced: bool, incarnation: str = "one", broker: int = 1
) -> None:
    state = BrokerCommitted(
        offset=offset, broker_id=broker, broker_epoch=offset, fenced=fenced, incarnation=incarnation
    )
    h.add(OBSERVER, state)


def begun(h: HistoryBuilder | None = None) -> HistoryBuilder:
    """An active controller, and broker 1, unfenced."""
    h = h or HistoryBuilder()
    for one in CONTROLLERS:
        node_id = 100 + int(one[-1])
        begun = NodeStarted(role="controller", node_id=node_id, incarnation="", log_end=-1)
        h.add(f"{one}#1", begun)
    h.add(CONTROLLER, ControllerElected(epoch=1, log_end=1, last_epoch=-1))
    h.add(FIRST, NodeStarted(role="broker", node_id=1, incarnation="one", log_end=-1))
    h.add(FIRST, SessionConfigured(broker_id=1, timeout_ms=SESSION_MS))
    record(h, 10, fenced=True)
    record(h, 11, fenced=False)
    return h


def ended(h: HistoryBuilder, process: str) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=0, signal=9, expected=True))


def injected(
    h: HistoryBuilder,
    fault: str,
    *targets: str,
    cut: Iterable[tuple[str, str]] = (),
    arguments: str = "",
    receipt: bool = True,
) -> None:
    """A fault; `cut` are its directions, if it is one of links."""
    body = FaultInjected(
        fault_id=f"{fault}-1",
        fault=fault,
        targets=targets,
        receipt=receipt,
        evidence="seen",
        directions=tuple(map(" -> ".join, cut)),
        arguments=arguments,
    )
    h.add("harness", body)


def isolated(h: HistoryBuilder, node: str) -> None:
    """A node that reaches no other, and that no other reaches."""
    others = [one for one in (*BROKERS, *CONTROLLERS) if one != node]
    cut = [pair for one in others for pair in ((node, one), (one, node))]
    injected(h, "isolate", *sorted((node, *others)), cut=cut)


def healed(h: HistoryBuilder, fault: str, began_ns: int = 0) -> None:
    body = FaultHealed(fault_id=f"{fault}-1", receipt=True, evidence="seen", began_at_ns=began_ns)
    h.add("harness", body)


def claimed() -> HistoryBuilder:
    h = begun()
    injected(h, "duplicate_id", FIRST, DUPLICATE)
    h.add(DUPLICATE, NodeStarted(role="broker", node_id=1, incarnation="two", log_end=-1))
    return h


def led(h: HistoryBuilder, offset: int, leader: int, *isr: int) -> None:
    h.add(
        OBSERVER,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=offset,
            isr=isr,
            replicas=(1, 2, 3),
        ),
    )


def intruded() -> HistoryBuilder:
    """Broker 1 leads; another process with its id is refused."""
    h = begun()
    led(h, 12, 1, 1, 2, 3)
    injected(h, "duplicate_id", FIRST, DUPLICATE)
    h.add(DUPLICATE, NodeStarted(role="broker", node_id=1, incarnation="two", log_end=-1))
    refused(h)
    return h


def refused(h: HistoryBuilder) -> None:
    """The second process with broker 1's id reports a refusal."""
    h.add(DUPLICATE, HeartbeatRefused(broker_id=1, broker_epoch=-1, error=REFUSAL, controller=-1))


def raises(h: HistoryBuilder, process: str, mark: int, *, as_leader: bool = True) -> Event:
    """A replica of `orders-0` raises its high watermark."""
    body = HighWatermarkAdvanced(
        topic="orders",
        partition=0,
        high_watermark=mark,
        log_end=mark,
        leader_epoch=1,
        as_leader=as_leader,
        isr=(),
        counted=(),
    )
    return h.add(process, body)
