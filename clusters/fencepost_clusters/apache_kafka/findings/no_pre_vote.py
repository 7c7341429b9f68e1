"""Mended in 4.0.0 by KIP-996: a voter that is cut off begins one epoch after the other. When it
returns, its epoch is the highest, so the active controller resigns, and there is an election that
nothing else called for.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen, slot_of
from fencepost_clusters.apache_kafka.findings.severing import SEVERING
from fencepost_kafka import ElectionStarted


def caused(scene: Scene) -> bool:
    """The voter that returned stood for election while it was cut off."""
    returned = scene.name("slot")
    return any(
        returned in fault.targets and slot_of(event.process) == returned
        for fault in scene.faults(*SEVERING, within_ms=5_000)
        for event, _ in scene.traces(ElectionStarted, since=fault)
    )


FINDING = KnownFinding(
    id="no-pre-vote",
    system="apache/kraft",
    clauses=("KR-11",),
    caused=caused,
    reads=(ElectionStarted,),
    says=__doc__,
    seen=(
        Seen("3.3.1", 1, 1),
        Seen("3.3.2", 4, 4),
        Seen("3.4.1", 4, 4),
        Seen("3.5.2", 4, 4),
        Seen("3.6.2", 4, 4),
        Seen("3.7.2", 4, 4),
        Seen("3.8.1", 3, 3),
        Seen("3.9.2", 3, 3),
        Seen("4.1.0", 0, 4),
        Seen("4.3.1", 0, 4),
        Seen("4.4.0", 0, 1),
    ),
    schedule="findings/epochs/schedule.json",
    history="findings/epochs/history.ndjson.gz",
)
