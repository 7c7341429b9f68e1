"""Forwards administrative requests from a broker to the active controller; waits until one is
known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fencepost import MS
from fencepost_clusters.reference.core.cluster import changes
from fencepost_clusters.reference.core.node.effects import Address, Instant, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

RETRY_NS: Final = 50 * MS


@dataclass(slots=True)
class _Forwarded:
    """A request in flight, or waiting for an active controller to be known."""

    received: Received
    deadline_ns: int
    retry_ns: int
    call: int | None = None


class Forwarding:
    """See the module. A request that no active controller accepted in time fails with
    NOT_CONTROLLER. A request without an answer fails with REQUEST_TIMED_OUT, since it may have been
    carried out. A request that only reads is repeated."""

    def __init__(
        self,
        settings: Settings,
        controllers: Mapping[int, Address],
        requests: changes.Refusals,
        out: Outbox,
    ) -> None:
        """`controllers` are their addresses, kept up to date by others; `requests` is the plane's
        table of changes."""
        self._settings = settings
        self._requests = requests
        self._controllers = controllers
        self._out = out
        self._all: list[_Forwarded] = []

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        if not self._all:
            return None
        waiting = [one for one in self._all if one.call is None]
        return min((min(one.retry_ns, one.deadline_ns) for one in waiting), default=None)

    def takes(self, request: m.Request) -> bool:
        """Whether a client's request is forwarded."""
        return self._requests.is_forwarded(request)

    def carry_out(self, received: Received, now: Instant) -> None:
        """Accepts a request that a client may send; the next Tick, which is due now, sends it."""
        limit_ms = 2 * self._settings.ms("request.timeout.ms")
        wish_ms: int = getattr(received.message, "timeout", 0)  # librdkafka sends 0: no wish
        timeout_ms = min(wish_ms or limit_ms, limit_ms)
        at = now.monotonic_ns
        self._all.append(_Forwarded(received, at + timeout_ms * MS, at))

    def tick(self, now: Instant, leader: int | None) -> None:
        """Sends the requests that have found no active controller yet."""
        for one in list(self._all):
            if one.call is None and now.monotonic_ns >= min(one.retry_ns, one.deadline_ns):
                self._try(one, now, leader)

    def _try(self, one: _Forwarded, now: Instant, leader: int | None) -> None:
        left_ms = (one.deadline_ns - now.monotonic_ns) // MS
        address = self._controllers.get(leader) if leader is not None else None
        if left_ms <= 0:
            self._answer(one, self._requests.refused(one.received.message, Error.NOT_CONTROLLER))
        elif address is None:
            one.retry_ns = now.monotonic_ns + RETRY_NS
        else:
            # It may be repeated, so one controller that does not answer need not cost it all its
            # time.
            if self._requests.is_read(one.received.message):
                left_ms = min(left_ms, self._settings.ms("request.timeout.ms"))
            one.call = self._out.call(address, "admin", one.received.message, left_ms)

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> None:
        """Passes an answer on, if the call was one of these."""
        for one in self._called(call_id):
            if Error.NOT_CONTROLLER in changes.errors(answer):
                one.call, one.retry_ns = None, now.monotonic_ns + RETRY_NS
            else:
                self._answer(one, answer)

    def failed(self, call_id: int, now: Instant) -> None:
        """A call got no answer, if it was one of these."""
        for one in self._called(call_id):
            asked = one.received.message
            if self._requests.is_read(asked):
                one.call, one.retry_ns = None, now.monotonic_ns + RETRY_NS
            else:
                self._answer(one, self._requests.refused(asked, Error.REQUEST_TIMED_OUT))

    def _called(self, call_id: int) -> list[_Forwarded]:
        """The request of a call, if there is one."""
        return [one for one in self._all if one.call == call_id]

    def _answer(self, one: _Forwarded, answer: m.Response) -> None:
        self._all.remove(one)
        self._out.add(Reply(one.received.request_id, answer))
