"""Calls of a node to itself, which never leave the process: a controller is a broker too."""

from __future__ import annotations

from typing import final

from fencepost_clusters.reference.core.node.effects import (
    Address,
    Answered,
    Call,
    CallFailed,
    Close,
    Effect,
    Input,
    Received,
    Reply,
)
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER


@final
class Loopback:
    """See the module. `address` is the node's own; requests of its own have numbers below 0."""

    def __init__(self, address: Address, process: str) -> None:
        self._address = address
        self._process = process
        self._requests = 0
        self._calls: dict[int, int] = {}

    def turned(self, effect: Effect) -> Input | None:
        """The input that an effect is for this very node; None if it is for the world outside."""
        match effect:
            case Call() if effect.address == self._address:
                self._requests -= 1
                self._calls[self._requests] = effect.call_id
                return Received(
                    request_id=self._requests,
                    listener=REPLICATION_LISTENER,
                    client=self._process,
                    correlation=effect.call_id,
                    message=effect.message,
                )
            case Reply() if effect.request_id in self._calls:
                call = self._calls.pop(effect.request_id)
                if effect.message is None:
                    return CallFailed(call, "no answer")
                return Answered(call, effect.message)
            case Close() if effect.request_id in self._calls:
                return CallFailed(self._calls.pop(effect.request_id), "closed")
            case _:
                return None
