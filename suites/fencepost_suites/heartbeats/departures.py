"""Why a registration in ZooKeeper may have ended, by the events of others than the controller.

A controller that declares a live broker absent, or another process in its place, says why; but its
reason is its own word. One that was broken declared a broker `gone` right after it had accepted its
heartbeat, while the znode was there. A registration ends with its session, or by another one under
the same id. The end of a session is told by ZooKeeper, or by the process that had it; the death of
a process, by the harness. Each of them may tell it later than the controller: so a rule asks at the
end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    Event,
    Evidence,
    Finding,
    NodeStopped,
    ProcessExited,
    RunEnd,
    Undecided,
    Violated,
    process_scope,
    violated,
)
from fencepost_clusters.zookeeper.events import SessionExpired, session_name
from fencepost_kafka import BrokerDeclared, BrokerRegistered, SessionChanged, broker_of
from fencepost_suites.heartbeats.terms import Declared

DEPARTURE_KINDS: frozenset[type[Struct]] = frozenset(
    {BrokerRegistered, SessionChanged, SessionExpired, ProcessExited, NodeStopped}
)
"""The events that `Departures.take` applies."""
_TOLD_WITHIN_NS = 1_000 * MS
"""How much later than the controller others may tell what it has seen."""


class _Made(Struct, frozen=True):
    """A registration: by which process, in which session."""

    process: str
    session: int


@final
@dataclass(slots=True)
class Departures:
    """The registrations of brokers, and what ended their sessions."""

    made: dict[tuple[int, int], _Made] = field(default_factory=dict)
    """(broker, broker epoch) -> its registration."""
    newest: dict[int, int] = field(default_factory=dict)
    """broker -> its highest broker epoch."""
    over: dict[str, int] = field(default_factory=dict)
    """session -> when ZooKeeper or its process said that it has ended."""
    connected: set[tuple[str, int]] = field(default_factory=set)
    """The (process, session) that were connected: such a process tells of its session."""
    apart: dict[str, int] = field(default_factory=dict)
    """process -> since when it has ended, or its session is not connected."""

    def take(self, event: Event) -> None:
        """Applies an event."""
        body = event.body
        match body:
            case BrokerRegistered():
                made = _Made(event.process, body.session)
                self.made.setdefault((body.broker_id, body.broker_epoch), made)
                newest = max(self.newest.get(body.broker_id, -1), body.broker_epoch)
                self.newest[body.broker_id] = newest
            case SessionChanged(state="connected"):
                self.connected.add((event.process, body.session))
                self.apart.pop(event.process, None)
            case SessionChanged():
                self.apart.setdefault(event.process, event.at_ns)
                if body.state == "ended":
                    self.over.setdefault(session_name(body.session), event.at_ns)
            case SessionExpired():
                self.over.setdefault(body.session, event.at_ns)
            case ProcessExited():
                self.apart.setdefault(body.ended, event.at_ns)
            case NodeStopped():
                self.apart.setdefault(event.process, event.at_ns)

    def lived_on(self, broker: int, epoch: int, at_ns: int, apart_ns: int | None) -> bool:
        """Whether a registration went on after a controller said at `at_ns` that it had ended;
        asked at the end of the run. `apart_ns` is that of its process then (`parted`)."""
        made = self.made.get((broker, epoch))
        # Who does not tell of its session may have lost it.
        if made is None or (made.process, made.session) not in self.connected:
            return False
        if apart_ns is not None or self.newest[broker] > epoch:
            return False
        own_ns = self.apart.get(made.process, at_ns + _TOLD_WITHIN_NS + 1)
        # A process that was cut off learns of the end of its session only when it is back.
        return session_name(made.session) not in self.over and own_ns > at_ns + _TOLD_WITHIN_NS

    def parted(self, broker: int, epoch: int) -> int | None:
        """Since when the process of a registration has ended, or has no connected session."""
        made = self.made.get((broker, epoch))
        return None if made is None else self.apart.get(made.process)


class Left(Struct, frozen=True):
    """A controller said that the registration of a broker, which it had live, had ended."""

    violated: Violated
    broker: int
    epoch: int
    at_ns: int
    apart_ns: int | None
    """Since when the broker's process had ended by then, or had no connected session."""

    @staticmethod
    def of(event: Event, body: BrokerDeclared, known: Declared, departures: Departures) -> Left:
        """What a declaration says."""
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} declared broker {broker} {state} ({reason}), though its registration with "
            "broker epoch {epoch} had not ended",
            (known.ref,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            state=body.new,
            reason=body.reason,
            epoch=known.incarnation,
        )
        apart_ns = departures.parted(body.broker_id, known.incarnation)
        return Left(broken, body.broker_id, known.incarnation, event.at_ns, apart_ns)


def wrongly_left(left: Sequence[Left], departures: Departures, end: RunEnd) -> Sequence[Finding]:
    """Those whose registrations went on, by all that was told until the end of the run."""
    wrong = [
        one.violated
        for one in left
        if departures.lived_on(one.broker, one.epoch, one.at_ns, one.apart_ns)
    ]
    # The event that would tell of the end may be among those that are missing.
    return wrong if end.complete else [Undecided.of(one) for one in wrong]
