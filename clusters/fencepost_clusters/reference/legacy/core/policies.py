"""Decisions of the plane over ZooKeeper that a defect can replace, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.legacy.core.states import LIVE
from fencepost_clusters.reference.legacy.core.znodes import HEARTBEAT_INFO, LEGACY_INFO
from fencepost_clusters.reference.over_zookeeper.core.own_state import OwnState
from fencepost_clusters.reference.wire.legacy import NO_EPOCH, BrokerState

HEARTBEATS = 3
"""The inter-broker protocol that brings heartbeats and IsrChange (KIP-343)."""
BROKER_EPOCHS = 2
"""The inter-broker protocol that brings broker epochs in control requests (KIP-380)."""


def epoch_sent(protocol: int, epoch: int) -> int:
    """The broker epoch in a control request or a ControlledShutdown. Below the protocol that brings
    broker epochs it is NO_EPOCH: other brokers may know only the versions without it (BE-10)."""
    return epoch if protocol >= BROKER_EPOCHS else NO_EPOCH


# ------------------------------------------------------------------------------------ the broker


def incarnation_id(own: int, former: int | None) -> int:
    """The incarnation id that a broker sends: the czxid of its own registration (HB-01).

    `former` is the czxid of the registration that the broker found at its start.
    """
    return own


def sends_heartbeats(protocol: int) -> bool:
    """Whether a broker sends heartbeats: from the protocol that brings them (HB-22)."""
    return protocol >= HEARTBEATS


def fences_itself(protocol: int) -> bool:
    """Whether a broker fences itself: from the protocol that brings heartbeats (HB-22)."""
    return protocol >= HEARTBEATS


def asks_controller_for_isr(protocol: int) -> bool:
    """Whether a leader asks the controller to store an ISR; otherwise it writes the ISR itself
    (HB-16, HB-22)."""
    return protocol >= HEARTBEATS


def info_version(protocol: int) -> int:
    """The BrokerInfo version of a registration (HB-22)."""
    return HEARTBEAT_INFO if protocol >= HEARTBEATS else LEGACY_INFO


def fences_at_ns(contact_ns: int, timeout_ns: int) -> int:
    """When a broker fences itself: a timeout after it sent the last accepted heartbeat (HB-06)."""
    return contact_ns + timeout_ns


def serves(state: OwnState) -> bool:
    """Whether new requests of clients are processed: while active or stopping (HB-04, HB-07)."""
    return state in (OwnState.ACTIVE, OwnState.STOPPING)


def state_when_accepted(state: OwnState, answered: BrokerState, stopping: bool) -> OwnState:
    """A broker's state after an answer without an error (HB-08, HB-29)."""
    if answered not in LIVE:
        return OwnState.FENCED if state is not OwnState.STARTING else state
    return OwnState.STOPPING if stopping else OwnState.ACTIVE


def state_when_refused(state: OwnState) -> OwnState:
    """A broker's state after INVALID_INCARNATION_ID: fenced (HB-29)."""
    return OwnState.FENCED


def may_end(remaining: int, asked_ns: int, now_ns: int, limit_ns: int) -> bool:
    """Whether a stopping broker ends: it leads no partition, or the limit is reached (HB-05)."""
    return remaining == 0 or now_ns >= asked_ns + limit_ns


def refuses_epoch(requested: int, own: int) -> bool:
    """Whether a control request is refused since it is meant for an earlier process (BE-02). A
    request without a broker epoch is not refused (BE-10)."""
    return requested != NO_EPOCH and requested < own


def is_of_deposed_controller(requested: int, seen: int) -> bool:
    """Whether a control request comes from a deposed controller (BE-08)."""
    return requested < seen


def carries_out(api: str) -> bool:
    """Whether a control request that is answered NONE is carried out (BE-09)."""
    return True


@dataclass(frozen=True, slots=True)
class LegacyBrokerPolicies:
    """The decisions of a broker."""

    incarnation_id: Callable[[int, int | None], int] = incarnation_id
    sends_heartbeats: Callable[[int], bool] = sends_heartbeats
    fences_itself: Callable[[int], bool] = fences_itself
    asks_controller_for_isr: Callable[[int], bool] = asks_controller_for_isr
    info_version: Callable[[int], int] = info_version
    fences_at_ns: Callable[[int, int], int] = fences_at_ns
    serves: Callable[[OwnState], bool] = serves
    state_when_accepted: Callable[[OwnState, BrokerState, bool], OwnState] = state_when_accepted
    state_when_refused: Callable[[OwnState], OwnState] = state_when_refused
    may_end: Callable[[int, int, int, int], bool] = may_end
    refuses_leader_and_isr: Callable[[int, int], bool] = refuses_epoch
    refuses_update_metadata: Callable[[int, int], bool] = refuses_epoch
    refuses_stop_replica: Callable[[int, int], bool] = refuses_epoch
    is_of_deposed_controller: Callable[[int, int], bool] = is_of_deposed_controller
    carries_out: Callable[[str], bool] = carries_out


# -------------------------------------------------------------------------------- the controller


def state_of_newcomer(version: int) -> BrokerState:
    """The state of a broker that the controller sees for the first time. Without a heartbeat it is
    active only if its registration is a legacy one (HB-02, HB-23)."""
    return BrokerState.INITIAL if version >= HEARTBEAT_INFO else BrokerState.ACTIVE


def is_silent(version: int, silent_ns: int, timeout_ns: int) -> bool:
    """Whether a broker is declared inactive: it sent no heartbeat for the timeout (HB-09). A broker
    with a legacy registration sends none (HB-23)."""
    return version >= HEARTBEAT_INFO and silent_ns >= timeout_ns


def is_announced(state: BrokerState) -> bool:
    """Whether the metadata name a broker: while it is active or stopping (HB-03)."""
    return state in LIVE


def may_lead(state: BrokerState) -> bool:
    """Whether a broker may be elected a leader: while it is active or stopping (HB-03)."""
    return state in LIVE


def is_old_incarnation(asked: int, known: int) -> bool:
    """Whether a heartbeat is refused since an earlier process sent it (HB-12)."""
    return asked < known


def compared_epoch(initialised: int, adopted: int) -> int:
    """The czxid that a broker change compares with the registered czxid. It is the czxid for which
    the broker was initialised, even if a heartbeat has named a newer one (HB-13, BE-05)."""
    return initialised


def has_bounced(known: int, found: int) -> bool:
    """Whether a broker change finds a new process of the broker (BE-05)."""
    return known != found


def settled_state(state: BrokerState, target: BrokerState) -> BrokerState:
    """The state of a broker after a valid heartbeat: the target state (HB-10, HB-14)."""
    return target


def is_malformed(broker: int, has_endpoint: bool, target: int) -> bool:
    """Whether a heartbeat is refused as INVALID_REQUEST (HB-15)."""
    return broker < 0 or not has_endpoint or target not in LIVE


def answers_as_controller(is_controller: bool, was_controller: bool) -> bool:
    """Whether a broker answers heartbeats as the controller (HB-27)."""
    return is_controller


def judges_isr_changes(is_controller: bool, was_controller: bool) -> bool:
    """Whether a broker judges an IsrChange; otherwise it answers NOT_CONTROLLER (HB-17)."""
    return is_controller


def may_change_isrs(asked: int, known: int) -> bool:
    """Whether an IsrChange comes from the registered process (HB-18)."""
    return asked == known


def leads(partition: Partition, broker: int, leader_epoch: int) -> bool:
    """Whether a broker leads a partition in this leader epoch, and may change its ISR (HB-19)."""
    return partition.leader == broker and partition.leader_epoch == leader_epoch


def is_valid_isr(partition: Partition, isr: Collection[int], live: Collection[int]) -> bool:
    """Whether an ISR may be stored (HB-20): it contains the leader, only replicas, each once, and
    adds no inactive broker."""
    return (
        partition.leader in isr
        and len(set(isr)) == len(isr)
        and set(isr) <= set(partition.replicas)
        and set(isr) - set(partition.isr) <= set(live)
    )


def answers_before_stored() -> bool:
    """Whether the controller answers an IsrChange before it is stored: never (HB-21)."""
    return False


def is_sent_again(api: str) -> bool:
    """Whether a control request without an answer is sent again (HB-25)."""
    return True


def stays_registered(heard_ns_ago: int, timeout_ns: int) -> bool:
    """Whether a broker without a znode stays in the cluster: never (HB-28)."""
    return False


def is_stale_shutdown(asked: int, known: int) -> bool:
    """Whether a ControlledShutdown comes from an earlier process (BE-04)."""
    return asked < known


def initialises(was_known: bool) -> bool:
    """Whether the controller sends a broker that becomes active the metadata and its partitions,
    even if it has initialised that broker before (BE-06)."""
    return True


def first_partitions(hosted: tuple[Partition, ...]) -> tuple[Partition, ...]:
    """The partitions in the first LeaderAndIsr to a process: all that its broker hosts (BE-07)."""
    return hosted


@dataclass(frozen=True, slots=True)
class LegacyControllerPolicies:
    """The decisions of the controller."""

    state_of_newcomer: Callable[[int], BrokerState] = state_of_newcomer
    is_silent: Callable[[int, int, int], bool] = is_silent
    is_announced: Callable[[BrokerState], bool] = is_announced
    may_lead: Callable[[BrokerState], bool] = may_lead
    is_old_incarnation: Callable[[int, int], bool] = is_old_incarnation
    compared_epoch: Callable[[int, int], int] = compared_epoch
    has_bounced: Callable[[int, int], bool] = has_bounced
    settled_state: Callable[[BrokerState, BrokerState], BrokerState] = settled_state
    is_malformed: Callable[[int, bool, int], bool] = is_malformed
    answers_as_controller: Callable[[bool, bool], bool] = answers_as_controller
    judges_isr_changes: Callable[[bool, bool], bool] = judges_isr_changes
    may_change_isrs: Callable[[int, int], bool] = may_change_isrs
    leads: Callable[[Partition, int, int], bool] = leads
    is_valid_isr: Callable[[Partition, Collection[int], Collection[int]], bool] = is_valid_isr
    answers_before_stored: Callable[[], bool] = answers_before_stored
    is_sent_again: Callable[[str], bool] = is_sent_again
    stays_registered: Callable[[int, int], bool] = stays_registered
    is_stale_shutdown: Callable[[int, int], bool] = is_stale_shutdown
    initialises: Callable[[bool], bool] = initialises
    first_partitions: Callable[[tuple[Partition, ...]], tuple[Partition, ...]] = first_partitions


@dataclass(frozen=True, slots=True)
class LegacyPolicies:
    """The decisions of broker and controller."""

    broker: LegacyBrokerPolicies = field(default_factory=LegacyBrokerPolicies)
    controller: LegacyControllerPolicies = field(default_factory=LegacyControllerPolicies)


@dataclass(frozen=True, slots=True)
class PlanePolicies:
    """The decisions of this plane's nodes; see `reference/policies.py`."""

    cluster: ClusterPolicies
    replication: ReplicationPolicies
    legacy: LegacyPolicies
