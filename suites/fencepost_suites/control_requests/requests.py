"""Control requests as two processes tell of them: the controller that sends one, and the broker
that answers it.

A broker's account of a request is held against the controller's, and its broker epoch against the
registration. Where the controller's event is missing, the broker's own account counts alone.

A release before KIP-380 has no broker epochs. A request without one is meant for a former process
of the broker if it was sent before the present one began.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import final

from fencepost import Cause, Event, Evidence, NodeStarted
from fencepost_kafka import (
    BrokerRegistered,
    BrokerStateChanged,
    ControlRequestAnswered,
    ControlRequestSent,
)

NO_EPOCH = -1
"""What a request of a version without a broker epoch has in place of one."""
STALE_EPOCH = "STALE_BROKER_EPOCH"
STALE_CONTROLLER = "STALE_CONTROLLER_EPOCH"


@dataclass(frozen=True, slots=True)
class Request:
    """One control request at the broker that answered it.

    `asked` is the broker epoch in it, `controller_epoch` the controller's: as the sender wrote
    them, if its event is known (`sent`). `own` is the newest broker epoch for which the answering
    process has registered (-1: none), `seen` the highest controller epoch that it has obeyed.
    `first`: it is the first LeaderAndIsr that this process has obeyed. `early`: it has no broker
    epoch, and was sent before this process began.
    """

    answer: ControlRequestAnswered
    sent: ControlRequestSent | None
    sent_at: Cause | None
    own: int
    own_at: Cause | None
    seen: int
    seen_at: Cause | None
    asked: int
    controller_epoch: int
    first: bool
    early: bool = False

    @property
    def evidence(self) -> Evidence:
        """Whether another process than the broker tells what was asked."""
        return Evidence.SELF if self.sent is None else Evidence.PEER

    @property
    def obeyed(self) -> bool:
        """Whether the broker says that it carried the request out."""
        return self.answer.error == "NONE"

    @property
    def former(self) -> bool:
        """Whether it was meant for an earlier process of the broker."""
        return self.early or (self.asked != NO_EPOCH and self.asked < self.own)

    @property
    def meant_for(self) -> str:
        """For which process it was meant, in words."""
        if self.early:
            return "sent before this process began"
        return f"meant for broker epoch {self.asked}; its own is {self.own}"

    @property
    def sender(self) -> str:
        """The controller's process, or its id."""
        if self.sent_at is not None:
            return self.sent_at.process
        return self.answer.client or f"controller {self.answer.controller_id}"

    @property
    def deposed(self) -> bool:
        """Whether it comes from a controller before one that this process has obeyed."""
        return self.controller_epoch < self.seen

    @property
    def because(self) -> tuple[Cause, ...]:
        """The events that say what was asked and for which epoch the process registered."""
        return tuple(at for at in (self.own_at, self.sent_at) if at is not None)


@dataclass(slots=True)
class _Process:
    own: int = NO_EPOCH
    own_at: Cause | None = None
    seen: int = -1
    seen_at: Cause | None = None
    has_roles: bool = False
    taken_over: bool = False
    number: int = 0
    """How many processes of its broker began until it did."""
    protocol: int = -1
    """Its inter-broker protocol (-1: not known)."""


Sent = tuple[ControlRequestSent, Cause, int]
"""A request, its event, and how many processes of the addressed broker had begun until then."""


@final
@dataclass(slots=True)
class Requests:
    """What is known of brokers' processes, and of the requests on their way to them."""

    processes: dict[str, _Process] = field(default_factory=dict)
    sent: dict[tuple[str, int], Sent] = field(default_factory=dict)
    """(controller process, number) -> the request."""
    numbered: dict[tuple[object, ...], Sent] = field(default_factory=dict)
    """What the sender and the receiver of a request both say of it -> the newest such request. A
    controller begins to count anew with each connection to a broker that it finds."""
    begun: Counter[int] = field(default_factory=Counter)
    """broker -> how many of its processes have begun."""

    def take(self, event: Event) -> Request | None:
        """Applies an event. Returns the request that it answers; None for any other event, and for
        an answer of a process that has lost its id."""
        body = event.body
        match body:
            case ControlRequestSent():
                sent = (body, event.ref, self.begun[body.broker_id])
                self.sent[event.process, body.correlation] = sent
                self.numbered[_identity(body)] = sent
            case BrokerRegistered():
                process = self._process(event)
                process.own, process.own_at = body.broker_epoch, event.ref
                process.protocol = body.protocol
            case BrokerStateChanged(reason="taken_over"):
                self._process(event).taken_over = True
            case NodeStarted(role="broker"):
                self.begun[body.node_id] += 1
                self.processes[event.process] = _Process(number=self.begun[body.node_id])
            case ControlRequestAnswered():
                return self._answered(event, body)
        return None

    def _process(self, event: Event) -> _Process:
        return self.processes.setdefault(event.process, _Process())

    def _answered(self, event: Event, body: ControlRequestAnswered) -> Request | None:
        process = self._process(event)
        cause = event.cause
        found = None
        if cause is not None and cause.request:
            # A request that outlives its connection may be answered twice: its event is kept.
            found = self.sent.get((cause.process, cause.seq))
        elif body.correlation >= 0:
            found = self.numbered.get(_identity(body))
        sent, sent_at, begun = found or (None, None, process.number)
        asked = body.request_epoch if sent is None else sent.broker_epoch
        request = Request(
            answer=body,
            sent=sent,
            sent_at=sent_at,
            own=process.own,
            own_at=process.own_at,
            seen=process.seen,
            seen_at=process.seen_at,
            asked=asked,
            controller_epoch=body.controller_epoch if sent is None else sent.controller_epoch,
            first=body.api == "LeaderAndIsr" and body.error == "NONE" and not process.has_roles,
            # Where the protocol is known, a roll is under way: none is refused then (BE-10).
            early=asked == NO_EPOCH and process.protocol < 0 and begun < process.number,
        )
        if request.obeyed:
            process.has_roles = process.has_roles or body.api == "LeaderAndIsr"
            if request.controller_epoch >= process.seen:
                process.seen, process.seen_at = request.controller_epoch, event.ref
        return None if process.taken_over else request


def _identity(body: ControlRequestSent | ControlRequestAnswered) -> tuple[object, ...]:
    """What identifies a request in the accounts of its sender and of its receiver."""
    epoch = body.broker_epoch if isinstance(body, ControlRequestSent) else body.request_epoch
    return (
        *(body.api, body.broker_id, body.controller_epoch, body.correlation),
        *(epoch, frozenset(body.partitions)),
    )
