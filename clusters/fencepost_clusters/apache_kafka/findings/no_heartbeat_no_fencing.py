"""An active controller looks for silent brokers only while it answers a heartbeat or a
registration: each sets the time of the next look. A controller that is elected while no broker runs
sets none. So the brokers that had died before stay unfenced, and leaders, until the first broker
returns. A dead broker is refused its own id meanwhile only while its session lasts, so nothing is
lost by it.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen, Strike
from fencepost_kafka import ControllerElected, HeartbeatAnswered


def caused(scene: Scene) -> bool:
    """A controller was elected after the broker had died, and has accepted no heartbeat since."""
    # Where no answer was ever printed, nothing is known of heartbeats.
    return scene.tells(HeartbeatAnswered) and any(
        fault.struck_slot(f"broker-{scene.name('broker')}") and _looks_for_nobody(scene, fault)
        for fault in scene.faults("kill", "wipe_disk", "damage_disk", within_ms=120_000)
    )


def _looks_for_nobody(scene: Scene, since: Strike) -> bool:
    """Whether the newest controller since then has accepted no heartbeat."""
    elections = list(scene.traces(ControllerElected, within_ms=120_000, since=since))
    accepted = [
        event.at_ns
        for event, answer in scene.traces(HeartbeatAnswered, since=since)
        if answer.error == "NONE"
    ]
    return bool(elections) and max(accepted, default=0) <= elections[-1][0].at_ns


FINDING = KnownFinding(
    id="no-heartbeat-no-fencing",
    system="apache/kraft",
    clauses=("KR-02", "AVAIL-fenced"),
    caused=caused,
    reads=(ControllerElected, HeartbeatAnswered),
    says=__doc__,
    seen=(Seen("3.9.2", 3, 3),),
    schedule="findings/no-heartbeat-no-fencing/schedule.json",
    history="findings/no-heartbeat-no-fencing/history.ndjson.gz",
)
