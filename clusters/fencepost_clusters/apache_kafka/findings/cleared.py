"""Topics whose eligible leader replicas a change of min.insync.replicas has cleared."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost import Scene, Strike
from fencepost_kafka import MetadataCommitted, TopicCommitted

_WITHIN_MS = 600_000


def changes_of_min_isr(scene: Scene, *topics: str) -> Iterator[Strike]:
    """The changes of min.insync.replicas that somebody has asked for: of these topics, or of
    any."""
    for asked in scene.operations("alter_settings", within_ms=_WITHIN_MS):
        of = asked.arguments.get("topic")
        if "min.insync.replicas" in asked.arguments.get("config", ()) and (
            not topics or of in topics
        ):
            yield asked


def cleared(scene: Scene, asked: Strike) -> Iterator[MetadataCommitted]:
    """The records that cleared eligible leader replicas since a change was asked for."""
    for event, record in scene.traces(MetadataCommitted, since=asked):
        # By the observer's word, which reads the committed log as a client, and not by a
        # controller's.
        if record.kind == "ClearElrRecord" and event.process.startswith("clients/"):
            yield record


def deleted_after_clearing(scene: Scene) -> Iterator[str]:
    """The ids of topics that were changed so, and deleted after that."""
    for asked in changes_of_min_isr(scene):
        if any(cleared(scene, asked)):
            for _, committed in scene.traces(TopicCommitted, since=asked):
                if committed.deleted and committed.topic == asked.arguments.get("topic"):
                    yield committed.topic_id


def unknown_topic(topic_id: str) -> str:
    """Kafka's own error, where its index names a topic that does not exist."""
    return (
        f"java.lang.RuntimeException: Topic ID {topic_id} existed in isrMembers, but not in the "
        "topics map."
    )
