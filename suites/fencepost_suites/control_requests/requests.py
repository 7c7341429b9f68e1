"""Control requests by the events of two processes: the controller that sends a request, and the
broker that answers it.

The fields of a request are those in the controller's event. If that event is missing, they are
those in the broker's event. The broker's own epoch is that of its newest registration when it began
to work on the request: it decides then, and may register anew before it answers.

Releases before KIP-380 have no broker epochs. A request without a broker epoch is meant for a
former process of the broker if it was sent before the current process began.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from msgspec import Struct

from fencepost import Cause, Event, Evidence, Facts, NodeStarted, process_scope
from fencepost_kafka import (
    BrokerRegistered,
    BrokerStateChanged,
    ControlRequestAnswered,
    ControlRequestSent,
    broker_of,
)

NO_EPOCH = -1
"""The broker epoch of a request in a version without the field."""
STALE_EPOCH = "STALE_BROKER_EPOCH"
STALE_CONTROLLER = "STALE_CONTROLLER_EPOCH"


class Request(Struct, frozen=True):
    """An answered control request.

    `asked` and `controller_epoch` are the broker epoch and controller epoch in the request: from
    the sender's event (`sent`), if it is known. `own` is the newest broker epoch under which the
    answering process had registered (-1: none), and `seen` the highest controller epoch that it had
    obeyed, before it began to work on this request; if it obeyed that, also those that it names in
    its answer. `newest` is its newest broker epoch when it answered. `first`: this is the first
    LeaderAndIsr that the process has obeyed. `early`: the request has no broker epoch, and was sent
    before the process began.
    """

    answer: ControlRequestAnswered
    sent: ControlRequestSent | None
    sent_at: Cause | None
    own: int
    own_at: Cause | None
    newest: int
    seen: int
    seen_at: Cause | None
    asked: int
    controller_epoch: int
    first: bool
    early: bool = False
    of_other: str | None = None

    @property
    def newer(self) -> bool:
        """Whether the request was meant for a larger epoch than any of a registered process."""
        return NO_EPOCH != self.newest < self.asked

    @property
    def evidence(self) -> Evidence:
        """PEER if the sender's event says what was requested, otherwise SELF."""
        return Evidence.SELF if self.sent is None else Evidence.PEER

    @property
    def obeyed(self) -> bool:
        """Whether the broker answered that it carried the request out."""
        return self.answer.error == "NONE"

    @property
    def former(self) -> bool:
        """Whether the request was meant for an earlier process of the broker."""
        return self.early or (self.asked != NO_EPOCH and self.asked < self.own)

    @property
    def stale(self) -> bool:
        """Whether the broker may have found the request stale: it was meant for an epoch before its
        newest one."""
        return self.early or (self.asked != NO_EPOCH and self.asked < self.newest)

    @property
    def meant_for(self) -> str:
        """The process that the request was meant for, as part of a sentence."""
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
    def facts(self) -> Facts:
        """Who sent it to which broker, and for which broker epoch."""
        of, controller = self.answer, self.answer.controller_id
        sender: Facts = {}
        if self.sent_at is not None or of.client:
            sender = {"other": process_scope(self.sender)}
        elif controller >= 0:
            sender = {"controller": broker_of(controller)}
        return {
            "operation": of.api,
            "sender": self.sender,
            "broker": broker_of(of.broker_id),
            "epoch": self.asked,
            "own_epoch": self.own,
            "meant_for": self.meant_for,
            "early": self.early,
            **sender,
        }

    @property
    def deposed(self) -> bool:
        """Whether the process has already obeyed a controller of a higher epoch."""
        return self.controller_epoch < self.seen

    @property
    def because(self) -> tuple[Cause, ...]:
        """The events of the registration and of the sent request, as far as they are known."""
        return tuple(at for at in (self.own_at, self.sent_at) if at is not None)


class _Since(NamedTuple):
    """An epoch from `at_ns` on: of a controller that a process has obeyed, or its own."""

    epoch: int
    at_ns: int
    at: Cause | None


@dataclass(slots=True)
class _Process:
    registered: list[_Since] = field(default_factory=list)
    """The broker epochs under which it has registered."""
    obeyed: list[_Since] = field(default_factory=list)
    """Each obeyed controller epoch that is higher than those before it."""
    has_roles: bool = False
    taken_over: bool = False
    number: int = 0
    """How many processes of its broker began until it did."""
    protocol: int = -1
    """Its inter-broker protocol (-1: not known)."""

    @property
    def own(self) -> _Since:
        """Its newest broker epoch."""
        return self.registered[-1] if self.registered else NEVER


NEVER = _Since(NO_EPOCH, 0, None)
Sent = tuple[ControlRequestSent, Cause, int]
"""A request, its event, and how many processes of the addressed broker had begun until then."""


@final
@dataclass(slots=True)
class Requests:
    """The brokers' processes, and the control requests that were sent."""

    processes: defaultdict[str, _Process] = field(default_factory=lambda: defaultdict(_Process))
    sent: dict[tuple[str, int], Sent] = field(default_factory=dict)
    """(controller process, number) -> the request."""
    numbered: dict[tuple[object, ...], Sent] = field(default_factory=dict)
    """The fields that both sender and receiver record -> the newest request with these fields. A
    controller numbers requests from the start again with each new connection to a broker."""
    holders: dict[tuple[int, int], str] = field(default_factory=dict)
    """(broker, broker epoch) -> the process that registered under it."""
    begun: Counter[int] = field(default_factory=Counter)
    """broker -> how many of its processes have begun."""

    def take(self, event: Event) -> Request | None:
        """Applies an event. If it answers a request, returns that request, unless a process refuses
        it that has lost its id."""
        body = event.body
        match body:
            case ControlRequestSent():
                sent = (body, event.ref, self.begun[body.broker_id])
                self.sent[event.process, body.correlation] = sent
                self.numbered[_identity(body)] = sent
            case BrokerRegistered():
                process = self._process(event)
                process.registered.append(_Since(body.broker_epoch, event.at_ns, event.ref))
                process.protocol = body.protocol
                self.holders[body.broker_id, body.broker_epoch] = event.process
            case BrokerStateChanged(reason="taken_over"):
                self._process(event).taken_over = True
            case NodeStarted(role="broker"):
                self.begun[body.node_id] += 1
                # It may tell late that it began: what it did until then stays.
                self._process(event).number = self.begun[body.node_id]
            case ControlRequestAnswered():
                return self._answered(event, body)
        return None

    def _process(self, event: Event) -> _Process:
        return self.processes[event.process]

    def _answered(self, event: Event, body: ControlRequestAnswered) -> Request | None:
        process = self._process(event)
        cause = event.cause
        found = None
        if cause is not None and cause.request:
            # The event is kept: a request that outlives its connection may be answered twice.
            found = self.sent.get((cause.process, cause.seq))
        elif body.correlation >= 0:
            found = self.numbered.get(_identity(body))
        # It decided when it began the work. In between it may have registered anew, or have obeyed
        # another controller.
        began_ns = event.at_ns - body.handled_ns
        seen = _at(process.obeyed, began_ns)
        # A process works on no request before it has registered.
        own = _at(process.registered, began_ns, *process.registered[:1])
        if body.error == "NONE" and not body.handled_ns:
            # What it knew as it decided, it says in its answer, too. That counts against it: one
            # that was silent about its registration, or about a controller, obeyed what it liked.
            own = max(own, _Since(body.broker_epoch, event.at_ns, None), key=_epoch_of)
            seen = max(seen, _Since(body.seen_epoch, event.at_ns, None), key=_epoch_of)
        sent, sent_at, begun = found or (None, None, process.number)
        asked = body.request_epoch if sent is None else sent.broker_epoch
        request = Request(
            answer=body,
            sent=sent,
            sent_at=sent_at,
            own=own.epoch,
            own_at=own.at,
            newest=process.own.epoch,
            seen=seen.epoch,
            seen_at=seen.at,
            asked=asked,
            controller_epoch=body.controller_epoch if sent is None else sent.controller_epoch,
            first=body.api == "LeaderAndIsr" and body.error == "NONE" and not process.has_roles,
            # Where the protocol is known, a roll is under way: none is refused then (BE-10).
            early=asked == NO_EPOCH and process.protocol < 0 and begun < process.number,
            of_other=self.holders.get((body.broker_id, asked))
            if asked != NO_EPOCH and not process.registered
            else None,
        )
        if request.obeyed:
            process.has_roles = process.has_roles or body.api == "LeaderAndIsr"
            newest = process.obeyed[-1] if process.obeyed else NEVER
            if request.controller_epoch > newest.epoch:
                process.obeyed.append(_Since(request.controller_epoch, event.at_ns, event.ref))
        # A process that has lost its id may refuse what it likes: it is no broker any more. That it
        # has lost it is its own word, which once let a process obey its former requests.
        return None if process.taken_over and not request.obeyed else request


def _epoch_of(since: _Since) -> int:
    return since.epoch


def _at(epochs: Sequence[_Since], at_ns: int, before: _Since = NEVER) -> _Since:
    """The newest of them at that time, or the one `before` them all."""
    return next((one for one in reversed(epochs) if one.at_ns <= at_ns), before)


def _identity(body: ControlRequestSent | ControlRequestAnswered) -> tuple[object, ...]:
    """What identifies a request in the accounts of its sender and of its receiver."""
    epoch = body.broker_epoch if isinstance(body, ControlRequestSent) else body.request_epoch
    return (
        *(body.api, body.broker_id, body.controller_epoch, body.correlation),
        *(epoch, frozenset(body.partitions)),
    )
