"""As deposed-leader-refuses, where clients know leader epochs. librdkafka takes the old metadata of
the only broker that answers, although it knows a higher leader epoch. It asks that broker where the
higher epoch ends. The broker does not know the epoch, so librdkafka takes the log for truncated,
and the consumer begins anew where its settings say.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.deposed import sent_back
from fencepost_kafka import ConsumerPositioned, PartitionCommitted


def caused(scene: Scene) -> bool:
    """A fault kept the deposed leader from its session, or from learning that another one leads."""
    return sent_back(scene, within_ms=60_000)


FINDING = KnownFinding(
    id="deposed-leader-lacks-epoch",
    system="apache/zookeeper",
    clauses=("JEPSEN-nonmonotonic-poll",),
    caused=caused,
    reads=(PartitionCommitted, ConsumerPositioned),
    says=__doc__,
    seen=(Seen("3.9.2", 3, 3),),
    schedule="findings/deposed-leader-lacks-epoch/schedule.json",
    history="findings/deposed-leader-lacks-epoch/history.ndjson.gz",
)
