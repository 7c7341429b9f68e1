"""Registration, leases and fencing: the active controller's decisions about brokers.

KIP-631's heartbeat with epoch -1 is the registration draft's Register.

Deciding changes nothing. Hard state is the image. `Leases` is soft state: it is lost at a failover,
and every unfenced broker then gets one full period (QC-31).

See docs/decisions/40-lost-ids.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost_clusters.reference.core.cluster import leadership
from fencepost_clusters.reference.core.cluster.image import Image, broker_record
from fencepost_clusters.reference.core.cluster.policies import ElectionPolicies
from fencepost_clusters.reference.core.node.effects import NEVER_NS, Instant
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.decisions import HeartbeatDecision
from fencepost_clusters.reference.core.quorum.controller.policies import (
    ControllerPolicies,
    LeasePolicies,
)
from fencepost_clusters.reference.core.quorum.raft.electorate import Voters
from fencepost_clusters.reference.core.replication.cluster_state import Broker
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error


@dataclass(slots=True)
class Leases:
    """Soft state: when each broker's process last renewed its lease, by our monotonic clock."""

    heard_ns: dict[int, int] = field(default_factory=dict)
    targets: dict[int, BrokerState] = field(default_factory=dict)
    """The target state in each broker's last heartbeat of this term, by broker."""
    committed: dict[int, int] = field(default_factory=dict)
    """broker -> the committed end of the metadata when it was last heard."""
    ends_ns: int = NEVER_NS
    """No lease ends before this time. Leases are checked from then on only, so most steps check
    none."""
    term_begin: int = 0
    """The offset of the first entry that this controller writes in its term."""

    def renew(
        self, asked: m.BrokerHeartbeatRequest, committed: int, now: Instant, lease_ns: int
    ) -> None:
        """A broker's lease begins again."""
        self.heard_ns[asked.broker_id] = now.monotonic_ns
        self.targets[asked.broker_id] = BrokerState.read(asked.target_state)
        self.committed[asked.broker_id] = committed
        self.ends_ns = min(self.ends_ns, now.monotonic_ns + lease_ns)

    def looked_at(self, image: Image, lease_ns: int) -> None:
        """Every lease was checked, and brokers with ended leases are fenced: the next lease to end
        is the one renewed longest ago."""
        # If no broker has a lease, the sum is exactly NEVER_NS.
        unfenced = (self.heard_ns[b.id] for b in image.brokers.values() if not b.fenced)
        self.ends_ns = min(unfenced, default=NEVER_NS - lease_ns) + lease_ns


def at_takeover(image: Image, now: Instant, lease_ns: int, policies: LeasePolicies) -> Leases:
    """The leases as a new active controller sees them: each runs one full period (QC-31)."""
    heard_ns = policies.heard_at_takeover_ns(now.monotonic_ns, lease_ns)
    heard = dict.fromkeys(image.brokers, heard_ns)
    return Leases(heard, ends_ns=now.monotonic_ns, term_begin=image.offset)


def heartbeat(
    image: Image,
    leases: Leases,
    *,
    asked: m.BrokerHeartbeatRequest,
    now: Instant,
    next_offset: int,
    settings: Settings,
    controllers: Voters,
    policies: ControllerPolicies,
    election: ElectionPolicies,
) -> HeartbeatDecision:
    """Decides about one BrokerHeartbeat; `next_offset` is the offset of its first record."""
    known = image.brokers.get(asked.broker_id)
    rules = policies.registration
    # The order of the checks is the order of what they prove. An id or a feature that can never be
    # right is refused first, whoever asks; then it is asked whether this process still has the id;
    # then whether it is up to date; and last what state it wants.
    if asked.broker_id < 0 or rules.id_clashes(asked.broker_id, controllers):
        return HeartbeatDecision(Error.INVALID_REQUEST, BrokerState.FENCED, -1)
    if rules.unsupported_feature(image, asked.features):
        return _revoke(image, known, asked, Error.UNSUPPORTED_VERSION, election)
    if asked.broker_epoch < 0:
        return _register(
            image,
            leases,
            known=known,
            asked=asked,
            now=now,
            next_offset=next_offset,
            settings=settings,
            policies=policies,
            election=election,
        )
    lost = rules.has_lost_id(image, asked.broker_id, asked.incarnation_id)
    if known is None:
        error = Error.DUPLICATE_BROKER_REGISTRATION if lost else Error.BROKER_ID_NOT_REGISTERED
        return HeartbeatDecision(error, BrokerState.FENCED, -1)
    if asked.broker_epoch != known.epoch or asked.incarnation_id != known.incarnation:
        return rules.answer_to_former(asked, lost)
    # The newest offset that was committed at the last heartbeat, so that the broker had time to
    # fetch it. A fenced broker is not refused for its lag: `_unfence` waits until it has caught up.
    committed = leases.committed.get(known.id, 0) - 1
    most = settings.ms("metadata.max.lag.records")
    if not known.fenced and policies.leases.is_too_far_behind(
        committed, asked.cur_metadata_offset, most
    ):
        return _revoke(image, known, asked, Error.STALE_BROKER_EPOCH, election)
    target = BrokerState.read(asked.target_state)
    if target is BrokerState.SHUTDOWN:
        return _shutdown(image, known, asked, policies, election)
    current = BrokerState.read(asked.current_state)
    # A broker that fenced itself, since it could not renew in time, is treated as fenced although
    # the metadata does not say so: it has stopped serving, and needs a new epoch.
    fenced = known.fenced or current in (BrokerState.INITIAL, BrokerState.FENCED)
    if target is BrokerState.UNKNOWN:  # a target state of newer software changes nothing
        state = BrokerState.FENCED if fenced else BrokerState.ACTIVE
        return HeartbeatDecision(Error.NONE, state, known.epoch, renews=True)
    if fenced:
        return _unfence(
            image,
            leases,
            known=known,
            asked=asked,
            next_offset=next_offset,
            settings=settings,
            policies=policies,
            election=election,
        )
    return HeartbeatDecision(Error.NONE, BrokerState.ACTIVE, known.epoch, renews=True)


def _revoke(
    image: Image,
    known: Broker | None,
    asked: m.BrokerHeartbeatRequest,
    error: Error,
    election: ElectionPolicies,
) -> HeartbeatDecision:
    """Refuses a heartbeat; if the same process still has a lease, the lease ends."""
    records: tuple[r.Record, ...] = ()
    # A refusal to another process than the registered one must not fence the registered one.
    if known is not None and not known.fenced and known.incarnation == asked.incarnation_id:
        records = fence(image, known.id, election)
    return HeartbeatDecision(error, BrokerState.FENCED, -1, records)


def _register(
    image: Image,
    leases: Leases,
    *,
    known: Broker | None,
    asked: m.BrokerHeartbeatRequest,
    now: Instant,
    next_offset: int,
    settings: Settings,
    policies: ControllerPolicies,
    election: ElectionPolicies,
) -> HeartbeatDecision:
    """A process claims an id. In INITIAL it gets the id at once (QC-19, QC-35), unless it lost the
    id before."""
    # The process is registered already. The same epoch again: a new one would make the first
    # answer, if it still comes, name an epoch that is refused.
    if known is not None and known.incarnation == asked.incarnation_id:
        state = BrokerState.FENCED  # a repeated Register, or a Register whose answer was lost
        return HeartbeatDecision(Error.NONE, state, known.epoch, renews=True)
    # It lost the id to another process. Otherwise two processes with one id would take it from each
    # other for ever.
    if image.has_lost(asked.broker_id, asked.incarnation_id):
        return HeartbeatDecision(Error.DUPLICATE_BROKER_REGISTRATION, BrokerState.FENCED, -1)
    # By QC-35 the newer process gets the id although the lease of the older one goes on. Only a
    # defect makes it wait here.
    if known is not None and not known.fenced:
        lease_ends_ns = leases.heard_ns.get(known.id, 0) + settings.lease_ms * 1_000_000
        if not policies.registration.may_take_id(lease_ends_ns, now.monotonic_ns):
            return HeartbeatDecision(Error.DUPLICATE_BROKER_REGISTRATION, BrokerState.FENCED, -1)
    epoch = policies.registration.new_broker_epoch(next_offset, leases.term_begin)
    record = r.BrokerRecord(
        broker_id=asked.broker_id,
        broker_epoch=epoch,
        end_points=tuple(
            r.EndPoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in asked.listeners
        ),
        fenced=policies.registration.registers_fenced(known),
        incarnation_id=asked.incarnation_id,
    )
    moved: list[r.Record] = []
    if known is not None:  # a new process inherits no membership of an ISR (RP-10)
        moved = leadership.on_broker_gone(image, known.id, election)
    return HeartbeatDecision(Error.NONE, BrokerState.FENCED, epoch, (record, *moved), renews=True)


def _unfence(
    image: Image,
    leases: Leases,
    *,
    known: Broker,
    asked: m.BrokerHeartbeatRequest,
    next_offset: int,
    settings: Settings,
    policies: ControllerPolicies,
    election: ElectionPolicies,
) -> HeartbeatDecision:
    """A fenced broker becomes active, with a new epoch, once it has caught up (REG-04, QC-20)."""
    if not policies.leases.has_caught_up_with_metadata(
        image.offset - 1,
        asked.cur_metadata_offset,
        known.registered_at,
        settings.ms("metadata.max.lag.records"),
    ):
        return HeartbeatDecision(Error.NONE, BrokerState.FENCED, known.epoch, renews=True)
    new_epoch = policies.registration.new_broker_epoch(next_offset, leases.term_begin)
    epoch = policies.registration.epoch_on_regain(known.epoch, new_epoch)
    record = broker_record(known, epoch, fenced=False)
    # With the record that unfences it, the broker is elected where no leader was eligible before.
    back = leadership.on_broker_back(image, known.id, election)
    return HeartbeatDecision(Error.NONE, BrokerState.ACTIVE, epoch, (record, *back), renews=True)


def _shutdown(
    image: Image,
    known: Broker,
    asked: m.BrokerHeartbeatRequest,
    policies: ControllerPolicies,
    election: ElectionPolicies,
) -> HeartbeatDecision:
    """Grants SHUTDOWN once the broker leads no partition (QC-18); until then, moves its
    leaderships.

    A broker that fenced itself meanwhile stays fenced: it would need another epoch to be active
    (QC-20).
    """
    if policies.registration.must_hand_over(image, known.id):
        moved = leadership.on_handover(image, known.id, election)
        active = not known.fenced and asked.current_state == BrokerState.ACTIVE
        state = BrokerState.ACTIVE if active else BrokerState.FENCED
        return HeartbeatDecision(Error.NONE, state, known.epoch, tuple(moved), renews=True)
    # It leads nothing any more. It leaves the ISRs and is fenced in the same batch, so that no
    # leadership comes back to it between the two.
    moved = leadership.on_broker_gone(image, known.id, election)
    fence = () if known.fenced else (broker_record(known, known.epoch, fenced=True),)
    return HeartbeatDecision(Error.NONE, BrokerState.SHUTDOWN, known.epoch, (*fence, *moved))


def expired(image: Image, leases: Leases, now: Instant, lease_ns: int) -> tuple[int, ...]:
    """The unfenced brokers whose lease is over: receipt plus the period, by our clock (QC-13)."""
    return tuple(
        sorted(
            b.id
            for b in image.brokers.values()
            if not b.fenced and now.monotonic_ns >= leases.heard_ns[b.id] + lease_ns
        )
    )


def fence(image: Image, broker: int, policies: ElectionPolicies) -> tuple[r.Record, ...]:
    """The records that fence a broker and move its leaderships (QC-14, QC-30)."""
    known = image.brokers[broker]
    moved = leadership.on_broker_gone(image, broker, policies)
    return (broker_record(known, known.epoch, fenced=True), *moved)


def delete(image: Image, broker: int, policies: ElectionPolicies) -> tuple[r.Record, ...]:
    """The records that delete a broker. It leaves every ISR of which it is not the last member
    (QC-26)."""
    moved = leadership.on_broker_deleted(image, broker, policies)
    return (r.DeleteBrokerRecord(id=broker), *moved)
