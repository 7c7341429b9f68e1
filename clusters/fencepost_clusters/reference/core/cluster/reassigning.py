"""Reassignment: a partition's replicas are exchanged while it is led and written (RP-20).

While one is under way the replica list holds the new replicas and then those to be removed, and the
record names both kinds. The whole state is in the log, so any later controller continues it. The
reassignment ends once every new replica is in the ISR, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_clusters.reference.core.cluster import leadership, placement
from fencepost_clusters.reference.core.cluster.decisions import ChangeDecision, DecisionContext
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.cluster.policies import (
    ClusterPolicies,
    PlacementPolicies,
    first_live,
)
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

Outcome = tuple[r.PartitionRecord | None, Error, str | None]


def under_way(one: Partition) -> bool:
    """Whether a partition's replicas are being exchanged."""
    return bool(one.adding or one.removing)


def target(one: Partition) -> tuple[int, ...]:
    """The replicas of a partition at the end of the reassignment."""
    return tuple(b for b in one.replicas if b not in one.removing)


def _origin(one: Partition) -> tuple[int, ...]:
    return tuple(b for b in one.replicas if b not in one.adding)


def _record(
    one: Partition,
    replicas: tuple[int, ...],
    *,
    isr: tuple[int, ...],
    leader: int,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=one.index,
        topic_id=one.topic_id,
        replicas=replicas,
        isr=isr,
        removing_replicas=removing,
        adding_replicas=adding,
        leader=leader,
        leader_epoch=one.leader_epoch + 1,
    )


def begin(on: DecisionContext, one: Partition, wanted: tuple[int, ...]) -> Outcome:
    """The record that begins a reassignment, or completes it if it need not wait for a replica. It
    replaces a reassignment under way."""
    if not wanted or len(set(wanted)) != len(wanted):
        return None, Error.INVALID_REPLICA_ASSIGNMENT, "replicas must be distinct brokers"
    origin = _origin(one)
    # A broker that has the partition already may be down: it need not be live to stay.
    unknown = sorted(set(wanted) - set(origin) - set(on.image.live()))
    if unknown:
        return None, Error.INVALID_REPLICA_ASSIGNMENT, f"broker {unknown[0]} is not live"
    adding = tuple(b for b in wanted if b not in origin)
    removing = tuple(b for b in origin if b not in wanted)
    replicas = (*wanted, *removing)
    # Brokers that the former reassignment was adding leave the ISR with the replica list.
    isr = tuple(b for b in replicas if b in one.isr)
    if not isr:
        message = "no member of the ISR would be left: call the reassignment under way off first"
        return None, Error.INVALID_REPLICA_ASSIGNMENT, message
    leader = one.leader if one.leader in isr else first_live(replicas, isr, on.image.live())
    begun = Partition(
        topic_id=one.topic_id,
        index=one.index,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=one.leader_epoch,
        adding=adding,
        removing=removing,
    )
    # A request that only removes replicas, or reorders them, has nothing to wait for.
    done = switch(on.image, begun, on.policies.placement)
    if done is not None:
        return done, Error.NONE, None
    return (
        _record(one, replicas, isr=isr, leader=leader, adding=adding, removing=removing),
        Error.NONE,
        None,
    )


def call_off(on: DecisionContext, one: Partition) -> Outcome:
    """The record that undoes a reassignment under way."""
    if not under_way(one):
        return None, Error.NO_REASSIGNMENT_IN_PROGRESS, None
    origin = _origin(one)
    isr = tuple(b for b in origin if b in one.isr)
    if not isr:
        message = "none of the former replicas is in the ISR"
        return None, Error.INVALID_REPLICA_ASSIGNMENT, message
    leader = one.leader if one.leader in isr else first_live(origin, isr, on.image.live())
    return _record(one, origin, isr=isr, leader=leader), Error.NONE, None


def switch(image: Image, one: Partition, policies: PlacementPolicies) -> r.PartitionRecord | None:
    """The record that ends a reassignment: only the new replicas, all in the ISR, and a newly
    elected leader. None while it has to wait."""
    wanted = target(one)
    if not policies.has_caught_up(wanted, one.isr):
        return None
    isr = policies.isr_after_reassignment(wanted, one.isr)
    return _record(one, wanted, isr=isr, leader=first_live(wanted, wanted, image.live()))


def settle(
    image: Image, places: Sequence[Partition], ready: frozenset[int], policies: ClusterPolicies
) -> tuple[r.Record, ...]:
    """The changes that are due on these partitions without a request: the end of a reassignment, or
    leadership back to the preferred replica (RP-21)."""
    found: list[r.Record] = []
    for one in places:
        if under_way(one):
            done = switch(image, one, policies.placement)
            if done is not None:
                found.append(done)
        # Not during a reassignment: it ends with an election of its own.
        elif policies.election.returns_to_preferred(one, ready):
            found.append(leadership.to_preferred(one, policies.election))
    return tuple(found)


# --------------------------------------------------------------------------------------- requests


def alter(on: DecisionContext, asked: a.AlterPartitionReassignmentsRequest) -> ChangeDecision:
    """Begins and calls off reassignments, each partition by itself."""
    records: list[r.Record] = []
    topics: list[a.ReassignableTopicResponse] = []
    seen: set[tuple[str, int]] = set()
    for topic in asked.topics:
        parts: list[a.ReassignablePartitionResponse] = []
        for part in topic.partitions:
            one = on.image.partition(topic.name, part.partition_index)
            outcome: Outcome
            # Both records would be made from the same state, so the second would undo the first
            # unnoticed.
            if (topic.name, part.partition_index) in seen:
                outcome = None, Error.INVALID_REQUEST, "the partition is in the request twice"
            elif one is None:
                outcome = None, Error.UNKNOWN_TOPIC_OR_PARTITION, None
            elif part.replicas is None:
                outcome = call_off(on, one)
            else:
                outcome = begin(on, one, part.replicas)
            seen.add((topic.name, part.partition_index))
            record, error, message = outcome
            if record is not None:
                records.append(record)
            parts.append(
                a.ReassignablePartitionResponse(
                    partition_index=part.partition_index, error_code=error, error_message=message
                )
            )
        topics.append(a.ReassignableTopicResponse(name=topic.name, partitions=tuple(parts)))
    answer = a.AlterPartitionReassignmentsResponse(error_code=Error.NONE, responses=tuple(topics))
    return ChangeDecision(tuple(records), answer)


def alter_refused(asked: a.AlterPartitionReassignmentsRequest, error: Error) -> a.AdminResponse:
    return a.AlterPartitionReassignmentsResponse(error_code=error, responses=())


def listed(on: DecisionContext, asked: a.ListPartitionReassignmentsRequest) -> ChangeDecision:
    """The reassignments under way, of all partitions or of the requested ones."""
    wanted = None
    if asked.topics is not None:
        wanted = {(t.name, index) for t in asked.topics for index in t.partition_indexes}
    found: dict[str, list[a.OngoingPartitionReassignment]] = {}
    for one in on.image.all_partitions():
        name = on.image.names[one.topic_id]
        if under_way(one) and (wanted is None or (name, one.index) in wanted):
            found.setdefault(name, []).append(
                a.OngoingPartitionReassignment(
                    partition_index=one.index,
                    replicas=one.replicas,
                    adding_replicas=one.adding,
                    removing_replicas=one.removing,
                )
            )
    topics = tuple(
        a.OngoingTopicReassignment(name=name, partitions=tuple(p)) for name, p in found.items()
    )
    return ChangeDecision(
        (), a.ListPartitionReassignmentsResponse(error_code=Error.NONE, topics=topics)
    )


def list_refused(asked: a.ListPartitionReassignmentsRequest, error: Error) -> a.AdminResponse:
    return a.ListPartitionReassignmentsResponse(error_code=error, topics=())


def rebalance(on: DecisionContext, asked: a.RebalanceRequest) -> ChangeDecision:
    """Adds brokers with as few moves as possible (RP-03), or places every partition again
    (RP-33)."""
    live = on.image.live()
    dead = sorted(set(asked.brokers) - set(live))
    if dead or not live:
        message = f"broker {dead[0]} is not live" if dead else "no broker is live"
        return ChangeDecision(
            (),
            a.RebalanceResponse(
                error_code=Error.INVALID_REPLICA_ASSIGNMENT, moved=0, error_message=message
            ),
        )
    held = {(on.image.names[p.topic_id], p.index): target(p) for p in on.image.all_partitions()}
    if asked.brokers:
        old = [b for b in live if b not in asked.brokers]
        moved = on.policies.placement.moves_for_new_brokers(held, old, asked.brokers)
    else:
        moved = placement.rebalance(held, live)
    records: list[r.Record] = []
    for (topic, index), replicas in sorted(moved.items()):
        one = on.image.partition(topic, index)
        assert one is not None
        record, _, _ = begin(on, one, replicas)
        if record is not None:
            records.append(record)
    return ChangeDecision(
        tuple(records), a.RebalanceResponse(error_code=Error.NONE, moved=len(records))
    )


def rebalance_refused(asked: a.RebalanceRequest, error: Error) -> a.AdminResponse:
    return a.RebalanceResponse(error_code=error)
