"""A leader that was deposed and does not know it still answers clients. If one asks it while the
new leader does not answer, librdkafka takes its old metadata and fetches from it. Its log ends
before the consumer's offset, so it refuses that as out of range, and the consumer begins anew where
its settings say. In struck runs the deposed leader often is one that never makes another session:
if its session ends while it writes as the controller, the callback of its transaction ends with a
NullPointerException, and its controller waits for ever.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.deposed import sent_back
from fencepost_kafka import ConsumerPositioned, PartitionCommitted


def caused(scene: Scene) -> bool:
    """A fault kept the deposed leader from its session, or from learning that another one leads."""
    return sent_back(scene, within_ms=300_000)


FINDING = KnownFinding(
    id="deposed-leader-refuses",
    system="apache/zookeeper",
    clauses=("JEPSEN-nonmonotonic-poll",),
    caused=caused,
    reads=(PartitionCommitted, ConsumerPositioned),
    says=__doc__,
    seen=(Seen("2.1.1", 3, 3),),
    schedule="findings/deposed-leader-refuses/schedule.json",
    history="findings/deposed-leader-refuses/history.ndjson.gz",
)
