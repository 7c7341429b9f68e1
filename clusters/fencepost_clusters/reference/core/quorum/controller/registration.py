"""Registration, leases and fencing: what the active controller decides about brokers.

KIP-631's heartbeat with epoch -1 is the registration draft's Register; `global_state` maps the
draft's states to KIP-631's.

Deciding changes nothing. Hard state is the image; `Leases` is soft: lost at a failover, after which
every unfenced broker is given one full period (QC-31).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from msgspec import Struct

from fencepost_clusters.reference.core.node.effects import NEVER_NS, Instant, Protections
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.controller import leadership
from fencepost_clusters.reference.core.quorum.metadata import features
from fencepost_clusters.reference.core.quorum.metadata.image import Broker, Image, broker_record
from fencepost_clusters.reference.core.quorum.raft.electorate import Voters
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error


class BrokerState(IntEnum):
    """KIP-631's enum; a number this software does not know is read as UNKNOWN (QC-27)."""

    UNKNOWN = 0
    INITIAL = 1
    FENCED = 2
    ACTIVE = 3
    SHUTDOWN = 4

    @classmethod
    def read(cls, number: int) -> BrokerState:
        """The state of a number on the wire."""
        return cls(number) if 0 <= number <= 4 else cls.UNKNOWN


class GlobalState(StrEnum):
    """The one state that a broker has to the whole cluster, in the registration draft's words."""

    OFFLINE = "Offline"
    FENCED = "Fenced"
    ONLINE = "Online"
    STOPPING = "Stopping"


def global_state(state: BrokerState, stopping: bool) -> GlobalState:
    """The draft's word for a KIP-631 state; `stopping`: the broker targets SHUTDOWN (REG-01).

    A broker leaves INITIAL when its Register is answered: until then it is Offline.
    """
    match state:
        case BrokerState.ACTIVE:
            return GlobalState.STOPPING if stopping else GlobalState.ONLINE
        case BrokerState.FENCED:
            return GlobalState.FENCED
        case _:
            return GlobalState.OFFLINE


@dataclass(slots=True)
class Leases:
    """Soft state: when each broker's current incarnation was last heard, on our monotonic clock."""

    heard_ns: dict[int, int] = field(default_factory=dict)
    targets: dict[int, BrokerState] = field(default_factory=dict)
    """The state that each broker was heard to want in this office; unheard ones are missing."""
    committed: dict[int, int] = field(default_factory=dict)
    """broker -> the committed end of the metadata when it was last heard."""
    epochs_given: int = 0
    """Only the defect that reuses broker epochs counts here."""
    ends_ns: int = NEVER_NS
    """No lease ends before; from then on each is looked at, so that most steps look at none."""

    def heard(
        self, asked: m.BrokerHeartbeatRequest, committed: int, now: Instant, lease_ns: int
    ) -> None:
        """A broker's lease begins anew."""
        self.heard_ns[asked.broker_id] = now.monotonic_ns
        self.targets[asked.broker_id] = BrokerState.read(asked.target_state)
        self.committed[asked.broker_id] = committed
        self.ends_ns = min(self.ends_ns, now.monotonic_ns + lease_ns)

    def looked_at(self, image: Image, lease_ns: int) -> None:
        """What has ended is fenced: the next to end is whoever was heard longest ago."""
        unfenced = (self.heard_ns[b.id] for b in image.brokers.values() if not b.fenced)
        self.ends_ns = min(unfenced, default=NEVER_NS - lease_ns) + lease_ns


def at_takeover(image: Image, now: Instant, lease_ns: int, protections: Protections) -> Leases:
    """The leases as a new active controller sees them: each runs one full period (QC-31)."""
    heard_ns = now.monotonic_ns
    if not protections.holds("full-lease-at-takeover"):
        heard_ns -= lease_ns
    return Leases(dict.fromkeys(image.brokers, heard_ns), ends_ns=now.monotonic_ns)


class Decision(Struct, frozen=True):
    """What a heartbeat leads to. `heard`: the lease begins anew at receipt."""

    error: Error
    next_state: BrokerState
    broker_epoch: int
    records: tuple[r.Record, ...] = ()
    heard: bool = False


def heartbeat(
    image: Image,
    leases: Leases,
    asked: m.BrokerHeartbeatRequest,
    now: Instant,
    next_offset: int,
    settings: Settings,
    controllers: Voters,
    protections: Protections,
) -> Decision:
    """Decides about one BrokerHeartbeat; `next_offset` is where its first record will stand."""
    known = image.brokers.get(asked.broker_id)
    clashes = asked.broker_id in controllers and protections.holds("one-space-of-ids")
    if asked.broker_id < 0 or clashes:
        return Decision(Error.INVALID_REQUEST, BrokerState.FENCED, -1)
    if features.unsupported(image, asked.features) and protections.holds("features-supported"):
        return _revoke(image, known, asked, Error.UNSUPPORTED_VERSION, protections)
    if asked.broker_epoch < 0:
        return _register(image, leases, known, asked, now, next_offset, settings, protections)
    taken = image.has_lost(asked.broker_id, asked.incarnation_id)
    if known is None:
        error = Error.BROKER_ID_NOT_REGISTERED
        if taken and protections.holds("newest-incarnation-wins"):
            error = Error.DUPLICATE_BROKER_REGISTRATION
        return Decision(error, BrokerState.FENCED, -1)
    if asked.broker_epoch != known.epoch or asked.incarnation_id != known.incarnation:
        if not protections.holds("newest-incarnation-wins"):
            return Decision(Error.NONE, BrokerState.ACTIVE, asked.broker_epoch, heard=True)
        error = Error.DUPLICATE_BROKER_REGISTRATION if taken else Error.STALE_BROKER_EPOCH
        return Decision(error, BrokerState.FENCED, -1)
    if _too_far_behind(leases, known, asked, settings, protections):
        return _revoke(image, known, asked, Error.STALE_BROKER_EPOCH, protections)
    target = BrokerState.read(asked.target_state)
    if target is BrokerState.SHUTDOWN:
        return _shutdown(image, known, asked, protections)
    current = BrokerState.read(asked.current_state)
    fenced = known.fenced or current in (BrokerState.INITIAL, BrokerState.FENCED)
    if target is BrokerState.UNKNOWN:  # it wants what this software does not know: it stays
        state = BrokerState.FENCED if fenced else BrokerState.ACTIVE
        return Decision(Error.NONE, state, known.epoch, heard=True)
    if fenced:
        return _unfence(image, leases, known, asked, next_offset, settings, protections)
    return Decision(Error.NONE, BrokerState.ACTIVE, known.epoch, heard=True)


def _too_far_behind(
    leases: Leases,
    known: Broker,
    asked: m.BrokerHeartbeatRequest,
    settings: Settings,
    protections: Protections,
) -> bool:
    """Whether an active broker has not kept up with the metadata (QC-15).

    It is measured by what was committed when it was last heard, so that it had time to fetch it: a
    large change by itself makes nobody stale.
    """
    if known.fenced or not protections.holds("metadata-kept-up"):
        return False
    behind = leases.committed.get(known.id, 0) - 1 - asked.cur_metadata_offset
    return behind > settings.ms("metadata.max.lag.records")


def _revoke(
    image: Image,
    known: Broker | None,
    asked: m.BrokerHeartbeatRequest,
    error: Error,
    protections: Protections,
) -> Decision:
    """Refuses a heartbeat; a lease that its very process still has ends with that."""
    records: tuple[r.Record, ...] = ()
    if known is not None and not known.fenced and known.incarnation == asked.incarnation_id:
        records = fence(image, known.id, protections)
    return Decision(error, BrokerState.FENCED, -1, records)


def _register(
    image: Image,
    leases: Leases,
    known: Broker | None,
    asked: m.BrokerHeartbeatRequest,
    now: Instant,
    next_offset: int,
    settings: Settings,
    protections: Protections,
) -> Decision:
    """A process claims an id. In INITIAL it wins, at once (QC-19, QC-35), unless it lost before."""
    if known is not None and known.incarnation == asked.incarnation_id:
        state = BrokerState.FENCED  # a repeated Register, or one whose answer was lost
        return Decision(Error.NONE, state, known.epoch, heard=True)
    if image.has_lost(asked.broker_id, asked.incarnation_id):
        return Decision(Error.DUPLICATE_BROKER_REGISTRATION, BrokerState.FENCED, -1)
    if known is not None and not known.fenced and not protections.holds("newcomer-takes-id"):
        heard = leases.heard_ns.get(known.id, 0)
        if now.monotonic_ns < heard + settings.lease_ms * 1_000_000:
            return Decision(Error.DUPLICATE_BROKER_REGISTRATION, BrokerState.FENCED, -1)
    epoch = _broker_epoch(leases, next_offset, protections)
    record = r.BrokerRecord(
        broker_id=asked.broker_id,
        broker_epoch=epoch,
        end_points=tuple(
            r.EndPoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in asked.listeners
        ),
        fenced=protections.holds("register-fenced") or known is None or known.fenced,
        incarnation_id=asked.incarnation_id,
    )
    moved: list[r.Record] = []
    if known is not None:  # a new process inherits no membership of an ISR (RP-10)
        moved = leadership.on_broker_gone(image, known.id, protections)
    return Decision(Error.NONE, BrokerState.FENCED, epoch, (record, *moved), heard=True)


def _unfence(
    image: Image,
    leases: Leases,
    known: Broker,
    asked: m.BrokerHeartbeatRequest,
    next_offset: int,
    settings: Settings,
    protections: Protections,
) -> Decision:
    """A fenced broker becomes active, with a new epoch, once it has caught up (REG-04, QC-20)."""
    behind = image.offset - 1 - asked.cur_metadata_offset
    stale = behind > settings.ms("metadata.max.lag.records")
    if (stale or asked.cur_metadata_offset < known.registered_at) and protections.holds(
        "online-when-caught-up"
    ):
        return Decision(Error.NONE, BrokerState.FENCED, known.epoch, heard=True)
    epoch = known.epoch
    if protections.holds("epoch-on-regain"):
        epoch = _broker_epoch(leases, next_offset, protections)
    record = broker_record(known, epoch, fenced=False)
    back = leadership.on_broker_back(image, known.id, protections)
    return Decision(Error.NONE, BrokerState.ACTIVE, epoch, (record, *back), heard=True)


def _shutdown(
    image: Image, known: Broker, asked: m.BrokerHeartbeatRequest, protections: Protections
) -> Decision:
    """Grants SHUTDOWN once nothing is led by the broker (QC-18); until then, moves it off.

    One that fenced itself meanwhile stays so: it would need another epoch to be active (QC-20).
    """
    moved: list[r.Record] = []
    if protections.holds("shutdown-after-handover") and leadership.leads_any(image, known.id):
        moved = leadership.on_handover(image, known.id, protections)
        active = not known.fenced and asked.current_state == BrokerState.ACTIVE
        state = BrokerState.ACTIVE if active else BrokerState.FENCED
        return Decision(Error.NONE, state, known.epoch, tuple(moved), heard=True)
    moved = leadership.on_broker_gone(image, known.id, protections)
    fence = () if known.fenced else (broker_record(known, known.epoch, fenced=True),)
    return Decision(Error.NONE, BrokerState.SHUTDOWN, known.epoch, (*fence, *moved))


def expired(image: Image, leases: Leases, now: Instant, lease_ns: int) -> tuple[int, ...]:
    """The unfenced brokers whose lease is over: receipt plus the period, by our clock (QC-13)."""
    return tuple(
        sorted(
            b.id
            for b in image.brokers.values()
            if not b.fenced and now.monotonic_ns >= leases.heard_ns[b.id] + lease_ns
        )
    )


def fence(image: Image, broker: int, protections: Protections) -> tuple[r.Record, ...]:
    """The records that fence a broker and move what it led (QC-14, QC-30)."""
    known = image.brokers[broker]
    moved = leadership.on_broker_gone(image, broker, protections)
    return (broker_record(known, known.epoch, fenced=True), *moved)


def delete(image: Image, broker: int, protections: Protections) -> tuple[r.Record, ...]:
    """The records that delete a broker: out of every ISR but as the last member (QC-26)."""
    moved: list[r.Record] = []
    if protections.holds("deleted-leaves-isr"):
        moved = leadership.on_broker_gone(image, broker, protections)
    return (r.DeleteBrokerRecord(id=broker), *moved)


def _broker_epoch(leases: Leases, next_offset: int, protections: Protections) -> int:
    """A broker epoch is the offset of its record: no later leader can give it again (QC-21)."""
    if protections.holds("epoch-from-log"):
        return next_offset
    leases.epochs_given += 1
    return leases.epochs_given
