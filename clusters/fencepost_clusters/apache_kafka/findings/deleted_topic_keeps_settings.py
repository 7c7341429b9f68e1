"""Since 3.8.0 (KAFKA-16206): a node that reads a change of a topic's settings and the deletion of
that topic in one step, as after a pause or while it was down, keeps the settings if it knew none of
that topic before: ConfigurationsDelta skips a deletion of what its old image has not. If it knew
one, all go, the new ones too. Its snapshots have what it kept, and so have its later processes. A
topic that gets the name again has these settings on that broker, such as a min.insync.replicas of 1
where it leads. 3.7.2 has other code.
"""

from __future__ import annotations

from fencepost import Facts, Follows, KnownFinding, Scene, Seen, Wake
from fencepost_kafka import TopicCommitted


def caused(scene: Scene) -> bool:
    """Somebody had changed this setting of the topic, and it was deleted after that."""
    topic, setting = scene.name("topic"), scene.facts.get("setting")
    return any(
        asked.arguments.get("topic") == topic
        and setting in asked.arguments.get("config", ())
        and committed.deleted
        and committed.topic == topic
        for asked in scene.operations("alter_settings", within_ms=600_000)
        for _, committed in scene.traces(TopicCommitted, since=asked)
    )


def _orphans(facts: Facts) -> bool:
    return "setting" in facts


KEPT_IN_MEMORY = Wake(scope="slot", follows=(Follows("KR-24", of=_orphans),))


FINDING = KnownFinding(
    id="deleted-topic-keeps-settings",
    system="apache/kraft",
    clauses=("QC-11",),
    caused=caused,
    reads=(TopicCommitted,),
    wake=KEPT_IN_MEMORY,
    says=__doc__,
    seen=(
        Seen("3.9.2", 3, 3),
        Seen("4.1.0", 2, 3),
        Seen("4.3.1", 3, 3),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/deleted-topic-keeps-settings/schedule.json",
    history="findings/deleted-topic-keeps-settings/history.ndjson.gz",
)
