"""The active controller's decisions that a defect can replace, as pure functions grouped by
concern; see `quorum.policies`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.rights import Rights
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.decisions import HeartbeatDecision
from fencepost_clusters.reference.core.quorum.metadata import features
from fencepost_clusters.reference.core.replication.cluster_state import Broker, Partition
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

# --------------------------------------------------------------------------------------- leases


def next_check_ns(next_end_ns: int) -> int:
    """When the controller looks for ended leases: as soon as the next lease ends (QC-14)."""
    return next_end_ns


def heard_at_takeover_ns(now_ns: int, lease_ns: int) -> int:
    """When a new active controller assumes that it last heard from each broker: now, so that each
    broker has one full period (QC-31)."""
    return now_ns


def lease_start_ms(requested_ms: int, now_ms: int) -> int:
    """When a lease starts: when the broker sent its heartbeat, by the broker's clock (QC-13)."""
    return requested_ms


def renewing_image(ahead: Image | None, committed: Image, led_epoch: int) -> Image | None:
    """The state from which heartbeats are answered; None if they are refused. `led_epoch` is the
    last epoch that this controller led, -1 for none.

    Only the active controller has an image that is ahead of the committed one (QC-22).
    """
    return ahead


def is_too_far_behind(committed: int, replayed: int, most: int) -> bool:
    """Whether an active broker has not kept up with the metadata (QC-15).

    `committed` is the last committed offset when the broker was last heard, so that the broker had
    time to fetch it: a large change alone makes no broker stale.
    """
    return committed - replayed > most


def has_caught_up_with_metadata(newest: int, replayed: int, registered_at: int, most: int) -> bool:
    """Whether a fenced broker may become active: it has replayed its own registration, and lacks
    no more than `most` records (REG-04)."""
    return replayed >= registered_at and newest - replayed <= most


@dataclass(frozen=True, slots=True)
class LeasePolicies:
    """Which broker holds a lease, and for how long."""

    next_check_ns: Callable[[int], int] = next_check_ns
    heard_at_takeover_ns: Callable[[int, int], int] = heard_at_takeover_ns
    lease_start_ms: Callable[[int, int], int] = lease_start_ms
    renewing_image: Callable[[Image | None, Image, int], Image | None] = renewing_image
    is_too_far_behind: Callable[[int, int, int], bool] = is_too_far_behind
    has_caught_up_with_metadata: Callable[[int, int, int, int], bool] = has_caught_up_with_metadata


# --------------------------------------------------------------------------------- registration


def is_admitted(rights: Rights, principal: str) -> bool:
    """Whether a principal may send requests to a controller (QC-04)."""
    return rights.cluster_action(principal)


def id_clashes(node: int, others: Collection[int]) -> bool:
    """Whether a node of the other kind has this id: there is one space of ids (QC-03)."""
    return node in others


def unsupported_feature(image: Image, supported: Iterable[m.Feature]) -> str | None:
    """The feature that keeps a broker from being admitted, or None (QC-15)."""
    return features.unsupported(image, supported)


def may_take_id(holder_lease_ends_ns: int, now_ns: int) -> bool:
    """Whether a new process may take an id from an unfenced one: always, at once (QC-35)."""
    return True


def registers_fenced(known: Broker | None) -> bool:
    """Whether a registered broker starts fenced: always (REG-03)."""
    return True


def new_broker_epoch(next_offset: int, term_begin: int) -> int:
    """A broker epoch is the offset of its record: no later leader can give it again (QC-21),
    wherever its term began."""
    return next_offset


def epoch_on_regain(current: int, new: int) -> int:
    """The broker epoch under which a fenced broker becomes active: a new one (QC-20)."""
    return new


def must_hand_over(image: Image, broker: int) -> bool:
    """Whether a broker that wants to shut down has to wait: it still leads a partition (QC-18)."""
    return any(one.leader == broker for one in image.all_partitions())


def has_lost_id(image: Image, broker: int, incarnation: UUID | None) -> bool:
    """Whether another process took the broker id from this incarnation (QC-19)."""
    return image.has_lost(broker, incarnation)


def answer_to_former(asked: m.BrokerHeartbeatRequest, lost: bool) -> HeartbeatDecision:
    """The answer to a heartbeat of an earlier registration: refused (QC-15, QC-19)."""
    error = Error.DUPLICATE_BROKER_REGISTRATION if lost else Error.STALE_BROKER_EPOCH
    return HeartbeatDecision(error, BrokerState.FENCED, -1)


def isr_change_refusal(partition: Partition, broker: int, leader_epoch: int) -> Error:
    """Only the current leader, in its current epoch, may change the ISR (QC-32)."""
    if partition.leader != broker:
        return Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE if leader_epoch == partition.leader_epoch else Error.FENCED_LEADER_EPOCH


def is_current_epoch(claimed: int, current: int) -> bool:
    """Whether a leader that changes an ISR is the registered process (QC-19)."""
    return claimed == current


@dataclass(frozen=True, slots=True)
class RegistrationPolicies:
    """The registration of a broker's process, and its rights."""

    is_admitted: Callable[[Rights, str], bool] = is_admitted
    id_clashes: Callable[[int, Collection[int]], bool] = id_clashes
    unsupported_feature: Callable[[Image, Iterable[m.Feature]], str | None] = unsupported_feature
    may_take_id: Callable[[int, int], bool] = may_take_id
    registers_fenced: Callable[[Broker | None], bool] = registers_fenced
    new_broker_epoch: Callable[[int, int], int] = new_broker_epoch
    epoch_on_regain: Callable[[int, int], int] = epoch_on_regain
    must_hand_over: Callable[[Image, int], bool] = must_hand_over
    has_lost_id: Callable[[Image, int, UUID | None], bool] = has_lost_id
    answer_to_former: Callable[[m.BrokerHeartbeatRequest, bool], HeartbeatDecision] = (
        answer_to_former
    )
    isr_change_refusal: Callable[[Partition, int, int], Error] = isr_change_refusal
    is_current_epoch: Callable[[int, int], bool] = is_current_epoch


# ----------------------------------------------------------------------------------------- term

Applied = tuple[Image, int]
"""An image, and the first offset that is not replayed into it."""


def answer_offset(log_end: int) -> int:
    """How far the log must be committed before an answer is sent: everything that it depends on
    (QC-08)."""
    return log_end


def kept_on_deposition(committed: Applied, ahead: Applied) -> Applied:
    """The state that a controller keeps when it stops leading: the committed one (QC-09)."""
    return committed


def snapshot_must_wait(other_silent_ns: int, lease_ns: int) -> bool:
    """Whether a snapshot waits for the snapshot of another controller that is not silent
    (QC-12)."""
    return other_silent_ns < lease_ns


@dataclass(frozen=True, slots=True)
class TermPolicies:
    """A controller's answers, state and coordination during and after its term."""

    answer_offset: Callable[[int], int] = answer_offset
    kept_on_deposition: Callable[[Applied, Applied], Applied] = kept_on_deposition
    snapshot_must_wait: Callable[[int, int], bool] = snapshot_must_wait


@dataclass(frozen=True, slots=True)
class ControllerPolicies:
    """All groups of the active controller."""

    leases: LeasePolicies = field(default_factory=LeasePolicies)
    registration: RegistrationPolicies = field(default_factory=RegistrationPolicies)
    term: TermPolicies = field(default_factory=TermPolicies)
