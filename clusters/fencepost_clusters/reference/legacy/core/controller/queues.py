"""One queue of control requests for each broker's process.

A queue sends one request at a time, and repeats it until it is answered (HB-25). It repeats it over
new connections, too, so a request can reach a process that started later (KIP-380). A queue ends
when its broker becomes inactive, has no znode, or has a new process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from fencepost import MS
from fencepost_clusters.reference.core.node.effects import Address, Call, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.legacy.core.controller.messages import (
    ControlRequest,
    api_of,
    deletes,
    named,
    named_brokers,
)
from fencepost_clusters.reference.legacy.core.policies import LegacyControllerPolicies
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ControlRequestSent

RETRY_NS = 50 * MS

Make = Callable[[int], ControlRequest]
"""Makes the request for a process with this broker epoch."""
Done = Callable[[Error], None]
"""Called with the error in the answer to a request."""


@dataclass(slots=True)
class _Waiting:
    request: ControlRequest
    done: Done | None
    attempts: int = 0


@dataclass(slots=True)
class _Queue:
    """The requests for one process; `call` is the call that has no answer so far."""

    broker: int
    epoch: int
    address: Address
    waiting: deque[_Waiting] = field(default_factory=deque)
    call: int | None = None
    next_ns: int = 0


class Queues:
    """See the module."""

    def __init__(self, settings: Settings, policies: LegacyControllerPolicies, out: Outbox) -> None:
        self._settings = settings
        self._policies = policies
        self._out = out
        # By broker: the queue of its present process. A former queue may still have a call in
        # flight, which `_calls` knows.
        self._queues: dict[int, _Queue] = {}
        self._calls: dict[int, _Queue] = {}

    def open(self, broker: int, epoch: int, address: Address) -> None:
        """Begins a queue for a broker's process, in place of the broker's former queue."""
        self._queues[broker] = _Queue(broker, epoch, address)

    def close(self, broker: int) -> None:
        """Ends a broker's queue, and drops its waiting requests."""
        self._queues.pop(broker, None)

    def close_all(self) -> None:
        """Ends every queue."""
        self._queues.clear()

    def opened(self) -> Set[int]:
        """The brokers that have a queue."""
        return self._queues.keys()

    def add(self, broker: int, make: Make, done: Done | None = None) -> None:
        """Appends a request to a broker's queue, if it has one."""
        queue = self._queues.get(broker)
        if queue is not None:
            # The request is made with the epoch of the process for which it waits. It keeps that
            # epoch, so another process that gets it refuses it (BE-02).
            queue.waiting.append(_Waiting(make(queue.epoch), done))

    def deadline_ns(self) -> int | None:
        """When the next request is due."""
        due = [q.next_ns for q in self._queues.values() if q.call is None and q.waiting]
        return min(due, default=None)

    def tick(self, now: Instant) -> None:
        """Sends the requests that are due."""
        for queue in self._queues.values():
            if queue.call is None and queue.waiting and now.monotonic_ns >= queue.next_ns:
                self._send(queue)

    def _send(self, queue: _Queue) -> None:
        # It stays in the queue until it is answered: the next request may build upon it.
        first = queue.waiting[0]
        first.attempts += 1
        queue.call = self._out.next_call()
        self._calls[queue.call] = queue
        self._out.note(
            ControlRequestSent(
                api=api_of(first.request),
                broker_id=queue.broker,
                broker_epoch=first.request.broker_epoch,
                controller_epoch=first.request.controller_epoch,
                correlation=queue.call,
                partitions=named(first.request),
                attempt=first.attempts,
                deletes=deletes(first.request),
                brokers=named_brokers(first.request),
            )
        )
        timeout_ms = self._settings.ms("request.timeout.ms")
        self._out.add(Call(queue.call, queue.address, "control", first.request, timeout_ms))

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> None:
        """Goes on with the next request, if the call was a control request."""
        queue = self._calls.pop(call_id, None)
        if queue is None:
            return
        queue.call = None
        queue.next_ns = now.monotonic_ns
        # A queue that was closed meanwhile has been replaced or is gone; what it would do next is
        # moot.
        if self._queues.get(queue.broker) is queue:
            first = queue.waiting.popleft()
            if first.done is not None:
                first.done(Error(getattr(answer, "error_code", Error.NONE)))

    def failed(self, call_id: int, now: Instant) -> None:
        """Makes the request due again after a pause, if the call was a control request."""
        queue = self._calls.pop(call_id, None)
        if queue is None:
            return
        queue.call = None
        queue.next_ns = now.monotonic_ns + RETRY_NS
        # Only a defect drops the request. The healthy queue repeats it, since an answer that was
        # lost says nothing about whether it was carried out; to carry it out twice changes nothing.
        if queue.waiting and not self._policies.is_sent_again(api_of(queue.waiting[0].request)):
            queue.waiting.popleft()
