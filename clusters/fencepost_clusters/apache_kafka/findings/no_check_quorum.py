"""KAFKA-15489, mended in 3.7.0: an active controller does not count the fetches of the other
voters. Cut off from them, it stays active beside its successor for as long as the cut lasts.
Brokers that still reach it hear nothing of the successor, and do not end their shutdown.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.severing import SEVERING
from fencepost_kafka import ElectionStarted


def caused(scene: Scene) -> bool:
    """The other voters hear it no more, and stand for election."""
    return any(
        fault.struck(scene.name("process")) and event.process.startswith("controller-")
        for fault in scene.faults(*SEVERING, within_ms=1_000)
        for event, _ in scene.traces(ElectionStarted, since=fault)
    )


FINDING = KnownFinding(
    id="no-check-quorum",
    system="apache/kraft",
    clauses=("KR-09",),
    caused=caused,
    reads=(ElectionStarted,),
    says=__doc__,
    seen=(
        Seen("3.3.1", 1, 1),
        Seen("3.3.2", 4, 4),
        Seen("3.4.1", 4, 4),
        Seen("3.5.2", 4, 4),
        Seen("3.6.2", 4, 4),
        Seen("3.7.2", 0, 4),
        Seen("3.8.1", 0, 3),
        Seen("3.9.2", 0, 3),
        Seen("4.1.0", 0, 4),
        Seen("4.3.1", 0, 4),
        Seen("4.4.0", 0, 1),
    ),
    schedule="findings/epochs/schedule.json",
    history="findings/epochs/history.ndjson.gz",
)
