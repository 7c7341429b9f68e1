"""Calls of a node to itself, which never leave the process: the controller is a broker too."""

from __future__ import annotations

from collections import deque
from typing import final

from fencepost import MS
from fencepost_clusters.reference.core.node.effects import (
    Answered,
    Call,
    CallFailed,
    Close,
    Effect,
    Input,
    Instant,
    Received,
    Reply,
)
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER
from fencepost_clusters.reference.core.node.site import Site


@final
class Loopback:
    """See the module. A node's requests to itself have numbers below 0.

    A call without an answer fails after its timeout, as it would over a connection.
    """

    def __init__(self, site: Site) -> None:
        self.inputs: deque[Input] = deque()
        """The requests and answers of the node's calls to itself, in order."""
        self._address = (site.name, site.ports[REPLICATION_LISTENER])
        self._process = site.process
        self._requests = 0
        self._calls: dict[int, tuple[int, int]] = {}
        """Request -> its call, and when the call times out."""

    def deadline_ns(self) -> int | None:
        """When the first call times out."""
        return min(due_ns for _, due_ns in self._calls.values()) if self._calls else None

    def tick(self, now: Instant) -> None:
        """Fails the calls that have timed out."""
        for request, (call, due_ns) in list(self._calls.items()):
            if now.monotonic_ns >= due_ns:
                del self._calls[request]
                self.inputs.append(CallFailed(call, "timed out"))

    def takes(self, effect: Effect, now: Instant) -> bool:
        """Whether an effect is for this node itself; if so, the resulting input joins `inputs`."""
        match effect:
            case Call() if effect.address == self._address:
                self._requests -= 1
                due_ns = now.monotonic_ns + effect.timeout_ms * MS
                self._calls[self._requests] = (effect.call_id, due_ns)
                self.inputs.append(
                    Received(
                        request_id=self._requests,
                        listener=REPLICATION_LISTENER,
                        client=self._process,
                        correlation=effect.call_id,
                        message=effect.message,
                    )
                )
            case Reply() | Close() if effect.request_id < 0:
                call, _ = self._calls.pop(effect.request_id, (None, 0))
                # The call has failed already, so its answer is dropped. Without the timeout, a
                # controller whose term ended while it decided about its own heartbeat waited for
                # that answer for ever.
                if call is None:
                    return True  # the call has timed out
                message = effect.message if isinstance(effect, Reply) else None
                answered = (
                    CallFailed(call, "closed") if message is None else Answered(call, message)
                )
                self.inputs.append(answered)
            case _:
                return False
        return True
