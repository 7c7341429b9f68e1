"""Histories of a release before KIP-380: no broker epochs, and no causes of requests."""

from __future__ import annotations

from tests.suites.control_requests.control_request_histories import (
    CONTROLLER,
    NEW,
    OLD,
    register,
    send,
    store,
)

from fencepost import FaultHealed, FaultInjected
from fencepost.testing import HistoryBuilder
from fencepost_kafka import (
    BrokerChangeHandled,
    ControllerElected,
    ControlRequestAnswered,
    ControlRequestSent,
)


def begin(epoch: int = -1) -> HistoryBuilder:
    """Broker 1 is registered, with that broker epoch, and its controller has found it."""
    h = HistoryBuilder()
    h.add(CONTROLLER, ControllerElected(epoch=1, log_end=-1, last_epoch=-1))
    register(h, OLD, epoch, version=4)
    compare(h, added=(1,))
    store(h, 0)
    return h


def compare(
    h: HistoryBuilder,
    added: tuple[int, ...] = (),
    deleted: tuple[int, ...] = (),
    bounced: tuple[int, ...] = (),
) -> None:
    h.add(
        CONTROLLER,
        BrokerChangeHandled(
            controller_epoch=1, added=added, deleted=deleted, bounced=bounced, live=(1, 3)
        ),
    )


def arrive(
    h: HistoryBuilder,
    sent: ControlRequestSent,
    error: str = "NONE",
    process: str = NEW,
    correlation: int = 1,
) -> None:
    """The broker's log has the request's number; its event has no cause."""
    h.add(
        process,
        ControlRequestAnswered(
            api=sent.api,
            client="",
            broker_id=1,
            controller_id=3,
            controller_epoch=sent.controller_epoch,
            seen_epoch=1,
            request_epoch=sent.broker_epoch,
            broker_epoch=-1,
            error=error,
            partitions=sent.partitions,
            correlation=correlation,
        ),
    )


def ask(h: HistoryBuilder, api: str, epoch: int = -1, number: int = 1) -> ControlRequestSent:
    body = send(h, api, epoch, number=number).body
    assert isinstance(body, ControlRequestSent)
    return body


def late(h: HistoryBuilder) -> HistoryBuilder:
    h.after(7_000)
    compare(h)
    return h


def inject(h: HistoryBuilder, *targets: str) -> None:
    body = FaultInjected(fault_id="f", fault="cut", targets=targets, receipt=True, evidence="")
    h.add("harness", body)


def heal(h: HistoryBuilder) -> None:
    h.add("harness", FaultHealed(fault_id="f", receipt=True, evidence=""))
