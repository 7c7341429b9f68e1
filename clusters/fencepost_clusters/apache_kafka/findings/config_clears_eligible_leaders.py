"""A change of a topic's min.insync.replicas, also to the value that it has, clears the eligible
leader replicas of all its partitions (KIP-966, ClearElrRecord). Kafka's documents say so. They do
not say that the record clears the last known leader, too, which they name as the last replica that
may be elected: so a partition whose ISR is empty has none left, though all replicas return and hold
every committed message. It stays without a leader until an unclean election is asked for. Before
4.0 the last member of the ISR stayed in it. Not all replicas need be down, and a client to which
the change timed out may find it made. The message names the record.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.cleared import changes_of_min_isr, cleared
from fencepost_kafka import MetadataCommitted


def caused(scene: Scene) -> bool:
    """All that the cluster lacks are leaders of one topic, of which the record that the violation
    names left no replica eligible."""
    topics = {name.rpartition("-")[0] for name in scene.names("leaderless")}
    if len(topics) != 1 or scene.names("fenced") or scene.names("outside"):
        return False
    return any(
        record.offset == scene.number("cleared_at")
        for asked in changes_of_min_isr(scene, *topics)
        for record in cleared(scene, asked)
    )


FINDING = KnownFinding(
    id="config-clears-eligible-leaders",
    system="apache/kraft",
    clauses=("AVAIL-recovered",),
    caused=caused,
    reads=(MetadataCommitted,),
    says=__doc__,
    seen=(
        Seen("3.9.2", 0, 3),
        Seen("4.1.0", 3, 3),
        Seen("4.3.1", 3, 3),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/config-clears-eligible-leaders/schedule.json",
    history="findings/config-clears-eligible-leaders/history.ndjson.gz",
)
