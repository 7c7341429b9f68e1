"""What other events of a run say about a node: evidence that does not depend on its own word."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from fencepost import Cause, Event, ProcessExited
from fencepost_kafka import BrokerRegistered, MetadataHeartbeatAnswered, MetadataHeartbeatSent

HEARTBEAT_INFO = 5
"""The BrokerInfo version of a broker that sends heartbeats."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration, as the process recorded it that made it."""

    epoch: int
    version: int
    process: str
    at_ns: int
    ref: Cause


@final
@dataclass(slots=True)
class Registered:
    """The registrations that brokers' processes have made."""

    made: dict[tuple[int, int], Registration] = field(default_factory=dict)
    """(broker, broker epoch) -> the registration."""
    newest_of: dict[str, Registration] = field(default_factory=dict)
    """process -> its newest registration."""
    newest: dict[int, Registration] = field(default_factory=dict)
    """broker -> its registration with the highest epoch."""

    def take(self, event: Event, body: BrokerRegistered) -> Registration:
        """Applies a registration, and returns it."""
        one = Registration(body.broker_epoch, body.version, event.process, event.at_ns, event.ref)
        self.made.setdefault((body.broker_id, body.broker_epoch), one)
        self.newest_of[event.process] = one
        if one.epoch >= self.newest.get(body.broker_id, one).epoch:
            self.newest[body.broker_id] = one
        return one

    def version(self, broker: int, epoch: int, declared: int) -> int:
        """The BrokerInfo version of a registration; `declared` if its process recorded none."""
        one = self.made.get((broker, epoch))
        return declared if one is None else one.version


@final
@dataclass(slots=True)
class SentHeartbeats:
    """The heartbeats that brokers' processes have sent, by which a controller's account of the
    heartbeats that it got is judged."""

    open: dict[str, set[int]] = field(default_factory=dict)
    """process -> the numbers of its heartbeats."""
    dead: set[str] = field(default_factory=set)
    """The processes whose end the harness recorded."""

    def take(self, event: Event) -> None:
        """Applies an event."""
        match event.body:
            case MetadataHeartbeatSent():
                self.open.setdefault(event.process, set()).add(event.body.correlation)
            case ProcessExited():
                self.dead.add(event.body.ended)

    def was_sent(self, event: Event, body: MetadataHeartbeatAnswered) -> bool:
        """Whether the heartbeat that an event answers can have been sent.

        A process that has ended may have a heartbeat under way, which counts once. A process that
        records no heartbeat at all, and has not ended, is not judged.
        """
        cause, dead = event.cause, body.client in self.dead
        numbers = self.open.get(body.client)
        if numbers is None:
            return not dead
        if cause is None or not cause.request:
            return not dead
        known = cause.seq in numbers
        if dead:
            numbers.discard(cause.seq)
        return known
