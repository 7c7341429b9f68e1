"""Defects of a broker's states, and of the metadata that it answers to clients."""

from __future__ import annotations

from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.effects import NEVER_NS
from fencepost_clusters.reference.core.quorum.broker.policies import StopReason
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.policies import Policies, PolicyDefect


def _registers_at_once(recovered: bool) -> bool:
    return True


def _registers_unrecovered(p: Policies) -> Policies:
    return replace(p, broker=replace(p.broker, may_register=_registers_at_once))


_TOO_QUICK = "the disk of a run is recovered before the first heartbeat could leave"


# A starting broker has not been active, so it serves nobody: that is another defect's.
def _serves_once_active(holds_lease: bool, was_active: bool) -> bool:
    return holds_lease or was_active


def _serves_without_lease(p: Policies) -> Policies:
    return replace(p, broker=replace(p.broker, serves_clients=_serves_once_active))


# A broker that loses its lease stops serving as it should: only the time before its first lease
# differs.
def _serves_while_starting(holds_lease: bool, was_active: bool) -> bool:
    return holds_lease or not was_active


def _starting_broker_serves(p: Policies) -> Policies:
    return replace(p, broker=replace(p.broker, serves_clients=_serves_while_starting))


# The controller fences the broker nevertheless: only the broker's own state does not follow.
def _session_never_ends(lease_ends_ns: int) -> int:
    return NEVER_NS


def _online_past_session(p: Policies) -> Policies:
    return replace(p, broker=replace(p.broker, session_ends_ns=_session_never_ends))


def _unfences_itself(p: Policies) -> Policies:
    return replace(p, broker=replace(p.broker, registered_state=BrokerState.ACTIVE))


def _stops_at_once(asked_ns: int, limit_ns: int) -> tuple[int, StopReason]:
    return asked_ns, "shutdown_requested"


def _stops_while_leading(p: Policies) -> Policies:
    return replace(p, broker=replace(p.broker, stops_without_grant=_stops_at_once))


# A broker whose stop is granted ends all the same. Only one that gets no grant waits for good.
def _does_not_stop(asked_ns: int, limit_ns: int) -> tuple[int, StopReason]:
    return NEVER_NS, "shutdown_timeout"


def _stops_never(p: Policies) -> Policies:
    return replace(p, broker=replace(p.broker, stops_without_grant=_does_not_stop))


def _all_registered(image: Image) -> tuple[int, ...]:
    return tuple(sorted(image.brokers))


def _names_fenced_brokers(p: Policies) -> Policies:
    serving = replace(p.cluster.serving, named_brokers=_all_registered)
    return replace(p, cluster=replace(p.cluster, serving=serving))


# The answer is right while the preferred replica leads, so it takes an election to show this.
def _preferred_replica(partition: Partition) -> int:
    return partition.replicas[0]


def _metadata_names_former_leader(p: Policies) -> Policies:
    serving = replace(p.cluster.serving, named_leader=_preferred_replica)
    return replace(p, cluster=replace(p.cluster, serving=serving))


DEFECTS = (
    PolicyDefect(
        Defect(
            "registers-unrecovered",
            ("REG-02",),
            "a broker registers before its logs are recovered",
            {"process": _TOO_QUICK, "docker": _TOO_QUICK},
        ),
        _registers_unrecovered,
    ),
    PolicyDefect(
        Defect(
            "serves-without-lease",
            ("QC-17",),
            "a broker that lost its lease goes on serving produce and fetch",
        ),
        _serves_without_lease,
    ),
    PolicyDefect(
        Defect(
            "starting-broker-serves", ("REG-05",), "a starting broker answers clients while fenced"
        ),
        _starting_broker_serves,
    ),
    PolicyDefect(
        Defect(
            "online-past-session",
            ("REG-06", "QC-14"),
            "a broker keeps Online after its session ran out",
        ),
        _online_past_session,
    ),
    PolicyDefect(
        Defect("unfences-itself", ("QC-16",), "a broker unfences itself"), _unfences_itself
    ),
    PolicyDefect(
        Defect(
            "stops-while-leading",
            ("REG-08",),
            "a stopping broker goes offline while it still leads partitions",
        ),
        _stops_while_leading,
    ),
    PolicyDefect(
        Defect("stops-never", ("REG-09",), "a stopping broker hangs for good"), _stops_never
    ),
    PolicyDefect(
        Defect("names-fenced-brokers", ("REG-07",), "clients are sent to fenced brokers"),
        _names_fenced_brokers,
    ),
    PolicyDefect(
        Defect(
            "metadata-names-former-leader",
            ("RP-11",),
            "the client's resend never finds the new leader",
        ),
        _metadata_names_former_leader,
    ),
)
