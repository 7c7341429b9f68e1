"""Since 3.3.0 (KAFKA-13790). A leader asks for a larger ISR before it has read the record of the
present one, which it knows from an answer. That record has the partition epoch that the leader has
already, and the leader accepts it, and forgets that it has asked (Partition.makeLeader). Its next
request is refused by its own queue, since the first one is still under way
(OPERATION_NOT_ATTEMPTED), and it ignores the answer to the first. So it knows of the larger ISR
only once it reads its record, and does not wait for the new member before that. If that member is
fenced for a moment, or does not keep up while the leader is cut off from the controllers, the
leader commits without it. Then the controllers elect that member, and what was acknowledged with
acks=all is lost. The leader forgets without any fault, too: a metadata log at rest is up to half a
second behind the answers. In the run that is kept the member is fenced, which needs no time of lag.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.lost import LOST_MESSAGES
from fencepost_clusters.apache_kafka.log_memory import IsrRequestForgotten
from fencepost_kafka import partition_of


def caused(scene: Scene) -> bool:
    """Whatever delays a record of the metadata may cause it."""
    # If a second process had stored what is lacking before it ended, that is
    # refused-duplicate-counts.
    return not scene.names("ended") and any(
        partition_of(forgotten) == scene.facts["partition"]
        and [str(forgotten.joining)] == scene.names("lacking")
        for _, forgotten in scene.traces(IsrRequestForgotten, within_ms=20_000)
    )


FINDING = KnownFinding(
    id="forgotten-isr-request",
    system="apache/kraft",
    clauses=("RP-04", "RP-07", "RP-32", "RP-10"),
    caused=caused,
    reads=(IsrRequestForgotten,),
    wake=LOST_MESSAGES,
    says=__doc__,
    seen=(
        Seen("3.9.2", 3, 4),
        Seen("4.1.0", 2, 3),
        Seen("4.3.1", 4, 4),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/forgotten-isr-request/schedule.json",
    history="findings/forgotten-isr-request/history.ndjson.gz",
)
