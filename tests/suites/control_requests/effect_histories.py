"""Histories of roles that a broker has in ZooKeeper, and of the faults that delay them."""

from __future__ import annotations

from tests.suites.control_requests.control_request_histories import NEW, OWN, begin, register, store

from fencepost import Cause, Event, FaultHealed, FaultInjected, ProcessExited
from fencepost.testing import HistoryBuilder
from fencepost_kafka import LeadershipStarted


def lead(h: HistoryBuilder, by: Event | None = None, epoch: int = 0) -> None:
    cause = None if by is None else Cause(by.process, 1, request=True)
    body = LeadershipStarted(
        topic="orders",
        partition=0,
        leader_epoch=epoch,
        isr=(1,),
        log_start=0,
        log_end=0,
        high_watermark=0,
    )
    h.add(NEW, body, cause=cause)


def kill(h: HistoryBuilder) -> None:
    h.add("harness", ProcessExited(ended=NEW, exit_code=-1, signal=9, expected=True))


def current() -> HistoryBuilder:
    """Broker 1 leads orders-0 in ZooKeeper."""
    h = HistoryBuilder()
    begin(h)
    register(h, NEW, OWN)
    store(h, 0)
    return h


def named_by_a_fault(h: HistoryBuilder, target: str) -> None:
    body = FaultInjected(fault_id="f", fault="cut", targets=(target,), receipt=True, evidence="")
    h.add("harness", body)


def healed(h: HistoryBuilder) -> None:
    h.add("harness", FaultHealed(fault_id="f", receipt=True, evidence=""))
