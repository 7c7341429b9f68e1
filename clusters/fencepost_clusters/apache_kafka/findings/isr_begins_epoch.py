"""KAFKA-15021, mended in 3.6.0: each replica that leaves an ISR begins a new leader epoch, though
the leader goes on. So clients and followers are refused with FENCED_LEADER_EPOCH until they have
new metadata.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_kafka import BrokerStopping, IsrChangeAsked, LeaseExpired, partition_of


def caused(scene: Scene) -> bool:
    """Anything may take a replica out of an ISR. Its leader asks for that, or the controllers end
    the session of its broker, or the broker is asked to stop."""
    gone = scene.names("gone")
    if not gone:
        return False
    asked = any(
        partition_of(change) == scene.facts["partition"]
        for _, change in scene.traces(IsrChangeAsked, within_ms=10_000)
    )
    ended = any(
        len(gone) > 1 or [str(lease.broker_id)] == gone
        for _, lease in scene.traces(LeaseExpired, within_ms=10_000)
    )
    return asked or ended or any(scene.traces(BrokerStopping, within_ms=10_000))


FINDING = KnownFinding(
    id="isr-begins-epoch",
    system="apache/kraft",
    clauses=("KR-10",),
    caused=caused,
    reads=(IsrChangeAsked, LeaseExpired, BrokerStopping),
    says=__doc__,
    seen=(
        Seen("3.3.1", 1, 1),
        Seen("3.3.2", 4, 4),
        Seen("3.4.1", 4, 4),
        Seen("3.5.2", 4, 4),
        Seen("3.6.2", 0, 4),
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
