"""Histories of a quorum of three controllers, and of what keeps them apart."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import FaultHealed, FaultInjected, NodeStarted
from fencepost.testing import HistoryBuilder
from fencepost_clusters.apache_kafka.log_memory import QuorumConfigured
from fencepost_kafka import ControllerElected, ControllerResigned, ResignReason

MS = 1_000_000
FETCH_MS = 1_500
BOUND_MS = FETCH_MS * 3 // 2 + 1_000
AWAY_MS = 2 * FETCH_MS
ONE, TWO, THREE = "controller-1#1", "controller-2#1", "controller-3#1"
SLOTS = ("controller-1", "controller-2", "controller-3")
Pair = tuple[str, str]


def quorum() -> HistoryBuilder:
    """Three controllers, of which the first is active in epoch 4."""
    h = HistoryBuilder()
    for number, process in enumerate((ONE, TWO, THREE), 101):
        h.add(process, NodeStarted(role="controller", node_id=number, incarnation="", log_end=-1))
        h.add(process, QuorumConfigured(node_id=number, fetch_timeout_ms=FETCH_MS))
    elected(h, ONE, 4)
    return h


def elected(h: HistoryBuilder, process: str, epoch: int) -> None:
    h.add(process, ControllerElected(epoch=epoch, log_end=9, last_epoch=-1))


def resigned(h: HistoryBuilder, reason: ResignReason = "no_majority", epoch: int = 4) -> None:
    h.add(ONE, ControllerResigned(epoch=epoch, reason=reason))


def around(slot: str) -> list[Pair]:
    """Both directions of the links between a controller and the others."""
    others = [one for one in SLOTS if one != slot]
    return [pair for one in others for pair in ((slot, one), (one, slot))]


def cut(
    h: HistoryBuilder,
    pairs: Sequence[Pair],
    fault: str = "partition-1",
    *,
    receipt: bool = True,
    kind: str = "partition",
) -> None:
    h.add(
        "harness",
        FaultInjected(
            fault_id=fault,
            fault=kind,
            targets=tuple(sorted({slot for pair in pairs for slot in pair})),
            receipt=receipt,
            evidence="seen",
            directions=tuple(" -> ".join(pair) for pair in pairs),
        ),
    )


def paused(h: HistoryBuilder, process: str, fault: str = "pause-1") -> None:
    body = FaultInjected(
        fault_id=fault, fault="pause", targets=(process,), receipt=True, evidence="seen"
    )
    h.add("harness", body)


def healed(h: HistoryBuilder, fault: str = "partition-1", began_ns: int = 0) -> None:
    body = FaultHealed(fault_id=fault, receipt=True, evidence="seen", began_at_ns=began_ns)
    h.add("harness", body)
