"""The ids of brokers that a second process took over, with another disk.

A second process gets the id of a broker: at once, or when the session or the lease of the first has
ended. The id goes back likewise. No document promises that the one has what is on the disk of the
other. A second process that controllers refuse (KIP-631) is registered by no record, and so excuses
nothing: neither does the registration of the first process, or of the next one in its slot, while
the second one runs. A process says at its start which incarnation it is. That word is believed
against it: whoever says that a registration is his own has the disk that he had.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

from msgspec import Struct

from fencepost import NodeStarted, ProcessExited, ProcessSpawned, is_second
from fencepost_kafka.events import BrokerCommitted, BrokerDeclared

TAKING: Final[frozenset[type[Struct]]] = frozenset(
    {ProcessSpawned, ProcessExited, NodeStarted, BrokerCommitted, BrokerDeclared}
)
"""The events that `Takeovers.take` applies."""


@final
class Takeovers:
    """Which ids are claimed twice, by the harness, and which of them changed hands, by the records
    or by the word of a controller.

    Which of two processes a record is about is only for a broker to say. So each registration of an
    id while a second process claims it may be that one's, unless the first one has named that
    incarnation as its own, and the first after its end is the first process's again.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        """broker -> the epoch of its newest registration."""
        self._claims: dict[int, str] = {}
        """broker -> the second process with its id."""
        self._taken: dict[int, str] = {}
        """broker -> the second process that may have been it last."""
        self._own: set[tuple[int, str]] = set()
        """The ids and incarnations that first processes have named as their own."""

    def take(self, body: Any, process: str = "") -> tuple[int, str] | None:
        """Applies an event of a process. Returns the broker whose id may have another disk from
        then on, and the second process that had the id."""
        match body:
            case NodeStarted(role="broker", incarnation=own) if own and not is_second(process):
                self._own.add((body.node_id, own))
            case ProcessSpawned(slot=slot) if is_second(slot):
                self._claims[body.node_id] = body.started
            case ProcessExited(ended=ended) if is_second(ended):
                # `_taken` stays: the id may be that process's until the first one registers again.
                self._claims = {b: one for b, one in self._claims.items() if one != ended}
            case BrokerCommitted():
                first = (body.broker_id, body.incarnation) in self._own
                return self._registered(body.broker_id, body.broker_epoch, own=first)
            case BrokerDeclared():
                return self._registered(body.broker_id, body.incarnation_id, own=False)
        return None

    def doubtful(self, brokers: Iterable[int]) -> bool:
        """Whether two processes may be one of these brokers: a record or an event that names it may
        be of either, until one has ended and the other has registered anew."""
        return any(one in self._claims or one in self._taken for one in brokers)

    def is_taken(self, broker: int) -> bool:
        """Whether a second process may have been this broker last."""
        return broker in self._taken

    def _registered(self, broker: int, epoch: int, *, own: bool) -> tuple[int, str] | None:
        # A record with a known epoch is no registration: it fences or unfences, or is replayed by a
        # node.
        if epoch <= self._epochs.get(broker, -1):
            return None
        self._epochs[broker] = epoch
        claims = None if own else self._claims.get(broker)
        taken = self._taken.pop(broker, None)
        if claims is not None:
            self._taken[broker] = claims
        process = claims or taken
        return None if process is None else (broker, process)
