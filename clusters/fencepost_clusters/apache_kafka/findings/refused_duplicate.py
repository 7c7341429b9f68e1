"""A second process with a broker's id and an empty disk is refused with
DUPLICATE_BROKER_REGISTRATION. While it is refused, it sends AssignReplicasToDirs under the broker
epoch that the metadata has for the id, which is the other process's. The controller takes that
other process's directory for offline, and it loses its leaderships and its place in ISRs, again and
again while the refused process tries. It takes a few seconds until it does. Since 3.9.0
(KAFKA-17190): up to 3.8.1 the refused process sends its own broker epoch, which is none, and is
refused again. With a copied disk, which has the same directory, this does not happen (0 of 5). A
broker whose id the second process has taken over, and that is refused with STALE_BROKER_EPOCH, does
the same to the second process.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.metadata.misplaced import ReplicaMisplaced
from fencepost_kafka import partition_of


def caused(scene: Scene) -> bool:
    """The record by which the replica is in a directory of the other process is the cause. In most
    runs the record that takes the leadership is in the same batch. A process need not have been
    refused before: one whose id was taken over sends its directories as soon as it reads the
    metadata again, which may be before its next heartbeat."""
    return any(
        fault.struck(scene.name("other"))
        and fault.arguments.get("disk") == "empty"
        and partition_of(misplaced) == scene.facts["partition"]
        and str(misplaced.broker_id) == scene.name("broker")
        for fault in scene.faults("duplicate_id", within_ms=3_000)
        for _, misplaced in scene.traces(ReplicaMisplaced, within_ms=5_000, since=fault)
    )


FINDING = KnownFinding(
    id="refused-duplicate",
    system="apache/kraft",
    clauses=("KR-06",),
    caused=caused,
    reads=(ReplicaMisplaced,),
    says=__doc__,
    seen=(
        Seen("3.9.2", 3, 3),
        Seen("4.1.0", 3, 3),
        Seen("4.3.1", 4, 6),
        Seen("4.4.0", 2, 2),
    ),
    schedule="findings/refused-duplicate/schedule.json",
    history="findings/refused-duplicate/history.ndjson.gz",
)
