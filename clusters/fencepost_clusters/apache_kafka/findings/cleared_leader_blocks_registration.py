"""A change of a topic's min.insync.replicas clears its eligible leader replicas, but not from the
controller's index of them by broker (ReplicationControlManager.removeTopicElrs, since 4.0.0). If
the topic is then deleted, the index names a topic that does not exist. When the broker registers
after an unclean end, the controller looks its partitions up there, fails, and gives its leadership
up. Each successor has the same index and fails in the same way, several times a second: the broker
stays out, and nothing else is decided for long. It ends once every controller has restarted from a
snapshot without the topic. To unregister the broker is no way out: that reads the same index. Other
failures of a registration have another message under KR-36.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.cleared import deleted_after_clearing, unknown_topic
from fencepost_kafka import MetadataCommitted, TopicCommitted


def caused(scene: Scene) -> bool:
    """The controller failed at a topic that was deleted after its eligible leaders were cleared."""
    return scene.facts.get("doing") == "registerBroker" and any(
        scene.facts.get("error") == unknown_topic(topic_id)
        for topic_id in deleted_after_clearing(scene)
    )


FINDING = KnownFinding(
    id="cleared-leader-blocks-registration",
    system="apache/kraft",
    clauses=("KR-36",),
    caused=caused,
    reads=(MetadataCommitted, TopicCommitted),
    says=__doc__,
    seen=(
        Seen("4.1.0", 2, 2),
        Seen("4.3.1", 4, 4),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/cleared-leader-blocks-registration/schedule.json",
    history="findings/cleared-leader-blocks-registration/history.ndjson.gz",
)
