"""Decisions of the plane without a controller that a defect can replace, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fencepost_clusters.reference.classic.core.znodes import StateChange
from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.zookeeper.client import port as zk

# ------------------------------------------------------------------------------------ elections


def electors(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int]
) -> tuple[int, ...]:
    """The live replicas that may become leader, in the order in which they stand.

    They are the members of the ISR (RP-06, RP-14), or all replicas if no ISR was ever stored
    (RP-17). The order of the replica list spreads the leaderships of a failed broker (RP-02).
    """
    return tuple(r for r in replicas if r in live and (not isr or r in isr))


def waits_ns(me: int, replicas: Sequence[int], standing: Sequence[int], preferred_ns: int) -> int:
    """How long a replica waits before it stands: the preferred one does not, the next ones wait for
    PreferredReplicaTime once, twice, and so on (RP-14)."""
    others = [r for r in standing if r != replicas[0]]
    return 0 if me == replicas[0] else preferred_ns * (others.index(me) + 1)


def next_leader_epoch(epoch: int) -> int:
    """Each election begins a leader epoch of its own (RP-24)."""
    return epoch + 1


def has_won(result: zk.WriteResult) -> bool:
    """Whether a candidate is the leader: it has created the leader's znode (RP-14)."""
    return isinstance(result, zk.Created)


def prepares() -> bool:
    """Whether a new leader stores its ISR before it serves clients (RP-14, RP-16)."""
    return True


def has_waited(waited_ns: int, most_ns: int) -> bool:
    """Whether a new leader has waited for the members of the ISR for LeaderElectionWaitTime
    (RP-16)."""
    return waited_ns >= most_ns


# ------------------------------------------------------------------------------------- listening


def carries_out(change: StateChange) -> bool:
    """Whether a broker carries out a request for a state change: each one (RP-23)."""
    return True


def notices(watched: str, known: bool) -> bool:
    """Whether a broker reads what is new below a znode that it watches: topics, partitions,
    reassignments (RP-30). `known`: it has read that znode before."""
    return True


@dataclass(frozen=True, slots=True)
class ClassicPolicies:
    """See the module."""

    electors: Callable[[Sequence[int], Collection[int], Collection[int]], tuple[int, ...]] = (
        electors
    )
    waits_ns: Callable[[int, Sequence[int], Sequence[int], int], int] = waits_ns
    next_leader_epoch: Callable[[int], int] = next_leader_epoch
    has_won: Callable[[zk.WriteResult], bool] = has_won
    prepares: Callable[[], bool] = prepares
    has_waited: Callable[[int, int], bool] = has_waited
    carries_out: Callable[[StateChange], bool] = carries_out
    notices: Callable[[str, bool], bool] = notices


@dataclass(frozen=True, slots=True)
class PlanePolicies:
    """The decisions of this plane's nodes; see `reference/policies.py`."""

    cluster: ClusterPolicies
    replication: ReplicationPolicies
    classic: ClassicPolicies
