"""What follows from cleared-leader-blocks-registration: the broker whose registration makes each
controller fail stays fenced.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.cleared import deleted_after_clearing, unknown_topic
from fencepost_clusters.apache_kafka.log_memory import ControllerFailed
from fencepost_kafka import MetadataCommitted, TopicCommitted


def caused(scene: Scene) -> bool:
    """The broker was refused because each controller failed at such a topic."""
    if scene.facts.get("error") != "UNKNOWN_SERVER_ERROR":
        return False
    known = {unknown_topic(topic_id) for topic_id in deleted_after_clearing(scene)}
    return any(
        failed.doing == "registerBroker" and failed.error in known
        for event, failed in scene.traces(ControllerFailed)
        if event.process.startswith("controller-")
    )


FINDING = KnownFinding(
    id="cleared-leader-keeps-broker-out",
    system="apache/kraft",
    clauses=("AVAIL-recovered",),
    caused=caused,
    reads=(MetadataCommitted, TopicCommitted, ControllerFailed),
    says=__doc__,
    seen=(
        Seen("4.1.0", 2, 2),
        Seen("4.3.1", 4, 4),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/cleared-leader-blocks-registration/schedule.json",
    history="findings/cleared-leader-blocks-registration/history.ndjson.gz",
)
