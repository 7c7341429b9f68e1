"""A reassignment that leaves fewer replicas than min.insync.replicas keeps the replica that it
takes away among the eligible leader replicas (KIP-966): the controller adds the former members of
the ISR to them, and does not ask which are replicas still
(PartitionChangeBuilder.maybePopulateTargetElr). Only a replica can be elected, so a removed one
never leads. But the last known leader may be elected only while no replica is eligible. So when the
last replica is killed and returns, with all of its messages, nobody can lead: the partition has no
leader until an unclean election is asked for. One reassignment to one replica and one kill -9 are
enough, with the defaults of 4.1 and later. A partition with as few replicas from the start gets its
last leader again.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_kafka import PartitionCommitted, partition_of

_WITHIN_MS = 600_000


def caused(scene: Scene) -> bool:
    """Partitions were moved, and all that the cluster lacks are leaders: each of a partition of
    which the newest record names a broker as eligible that is no replica."""
    leaderless = scene.names("leaderless")
    if not leaderless or scene.names("fenced") or scene.names("outside"):
        return False
    if not any(scene.operations("reassign", "drain_broker", within_ms=_WITHIN_MS)):
        return False
    newest: dict[str, PartitionCommitted] = {}
    for event, record in scene.traces(PartitionCommitted):
        # By the observer's word, which reads the committed log as a client.
        if event.process.startswith("clients/"):
            name = partition_of(record).name
            newest[name] = max(newest.get(name, record), record, key=lambda one: one.offset)
    return all(name in newest and _blocked(newest[name]) for name in leaderless)


def _blocked(record: PartitionCommitted) -> bool:
    """Whether a broker that is no replica keeps the last known leader from being elected."""
    return not record.isr and not set(record.eligible) <= set(record.replicas)


FINDING = KnownFinding(
    id="removed-replica-stays-eligible",
    system="apache/kraft",
    clauses=("AVAIL-recovered",),
    caused=caused,
    reads=(PartitionCommitted,),
    says=__doc__,
    seen=(
        Seen("3.9.2", 0, 1),
        Seen("4.1.0", 1, 1),
        Seen("4.3.1", 1, 1),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/removed-replica-stays-eligible/schedule.json",
    history="findings/removed-replica-stays-eligible/history.ndjson.gz",
)
