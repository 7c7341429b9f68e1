"""What other events of a run say about a node: evidence that does not depend on its own word."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    Cause,
    Deadline,
    Event,
    Evidence,
    Facts,
    ProcessExited,
    ProcessSpawned,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerRegistered,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatSent,
    broker_of,
)
from fencepost_suites.heartbeats.terms import Terms

HEARTBEAT_INFO = 5
"""The BrokerInfo version of a broker that sends heartbeats."""
FOUND_WITHIN_NS = 6_000 * MS
"""How long a controller that reaches ZooKeeper may take to find a registration."""


class Registration(Struct, frozen=True):
    """A registration, as the process recorded it that made it."""

    broker: int
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
        one = Registration(
            broker=body.broker_id,
            epoch=body.broker_epoch,
            version=body.version,
            process=event.process,
            at_ns=event.at_ns,
            ref=event.ref,
        )
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
    brokers: dict[str, int] = field(default_factory=dict)
    """process -> its broker id, as the harness started it, or as it registered last."""

    def take(self, event: Event) -> None:
        """Applies an event."""
        body = event.body
        match body:
            case MetadataHeartbeatSent():
                self.open.setdefault(event.process, set()).add(body.correlation)
            case ProcessExited():
                self.dead.add(body.ended)
            case ProcessSpawned():
                self.brokers[body.started] = body.node_id
            case BrokerRegistered():
                self.brokers[event.process] = body.broker_id

    def _may_be_silent(self, body: MetadataHeartbeatAnswered) -> bool:
        """Whether a process that records no heartbeat may have sent one all the same.

        Only the controller tells of it. It once kept a dead broker in the cluster by heartbeats of
        a process that nobody had started. Where no process records its heartbeats, it is believed.
        """
        return not self.open or self.brokers.get(body.client) == body.broker_id

    def was_sent(self, event: Event, body: MetadataHeartbeatAnswered) -> bool:
        """Whether the heartbeat that an event answers can have been sent.

        A process that has ended may have a heartbeat under way, which counts once. A process that
        records no heartbeat at all, and has not ended, is not judged, if it is known to be there.
        """
        cause, dead = event.cause, body.client in self.dead
        numbers = self.open.get(body.client)
        if numbers is None:
            return not dead and self._may_be_silent(body)
        if cause is None or not cause.request:
            return not dead
        known = cause.seq in numbers
        if dead:
            numbers.discard(cause.seq)
        return known


@final
@dataclass(slots=True)
class Superseded:
    """The processes whose id another process has taken, by that process's registration."""

    registered: Registered = field(default_factory=Registered)
    terms: Terms = field(default_factory=Terms)

    def take(self, event: Event) -> None:
        """Applies an event."""
        self.terms.take(event)
        if isinstance(event.body, BrokerRegistered):
            self.registered.take(event, event.body)

    def late(self, process: str, broker: int, asked_ns: int, event: Event) -> Deadline | None:
        """The suspicion that falls on the controller for accepting what a superseded process asked
        for at `asked_ns`, if the controller had had time to find the newer registration."""
        own, newest = self.registered.newest_of.get(process), self.registered.newest.get(broker)
        if own is None or newest is None or own.epoch >= newest.epoch or newest.process == process:
            return None
        # The controller may have been without ZooKeeper for the session timeout before it could
        # read.
        session_ns = max((term.session_ns for term in self.terms.now.values()), default=0)
        bound_ns = session_ns + FOUND_WITHIN_NS
        if own.version < HEARTBEAT_INFO or asked_ns <= newest.at_ns + bound_ns:
            return None
        controller = max(self.terms.now, key=lambda one: self.terms.now[one].epoch, default="")
        decides: Facts = {"controller": process_scope(controller)} if controller else {}
        return Deadline(
            violated=violated(
                event.ref,
                Evidence.PEER,
                "{process} with broker epoch {epoch} was accepted {after_ns} after {other} had "
                "registered as broker {broker} with {other_epoch}",
                (newest.ref,),
                process=process_scope(process),
                epoch=own.epoch,
                after_ns=asked_ns - newest.at_ns,
                other=process_scope(newest.process),
                broker=broker_of(broker),
                other_epoch=newest.epoch,
                **decides,
            ),
            actors=(controller,),
            from_ns=newest.at_ns,
            to_ns=asked_ns,
            bound_ns=bound_ns,
            due_ns=newest.at_ns + bound_ns,
            omission=False,
        )
