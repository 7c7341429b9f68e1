"""KAFKA-17333, mended in 3.9.0: a controller that was active when its process was killed begins its
next one as the leader of the same epoch, though that leader has resigned. It acts as the active
controller until it hears of the next epoch.
"""

from __future__ import annotations

from fencepost import KnownFinding, NodeStarted, ProcessExited, Scene, Seen, slot_of

_KILLED = 9


def caused(scene: Scene) -> bool:
    """The process was killed and the next one of its slot began, both within the bounce."""
    following, former = scene.name("process"), scene.name("other")
    if slot_of(following) != slot_of(former):
        return False
    return any(
        fault.struck(former)
        and fault.arguments.get("signal") == "SIGKILL"
        and any(
            exited.ended == former and exited.signal == _KILLED
            for _, exited in scene.traces(ProcessExited, since=fault)
        )
        and any(
            event.process == following and started.role == "controller"
            for event, started in scene.traces(NodeStarted, since=fault)
        )
        for fault in scene.faults("bounce", within_ms=60_000)
    )


FINDING = KnownFinding(
    id="resigned-leader-acts",
    system="apache/kraft",
    clauses=("QC-07",),
    caused=caused,
    reads=(ProcessExited, NodeStarted),
    says=__doc__,
    seen=(
        Seen("3.3.1", 0, 1),
        Seen("3.3.2", 0, 4),
        Seen("3.4.1", 0, 4),
        Seen("3.5.2", 0, 4),
        Seen("3.6.2", 0, 4),
        Seen("3.7.2", 4, 4),
        Seen("3.8.1", 3, 3),
        Seen("3.9.2", 0, 3),
        Seen("4.1.0", 0, 4),
        Seen("4.3.1", 0, 4),
        Seen("4.4.0", 0, 1),
    ),
    schedule="findings/epochs/schedule.json",
    history="findings/resigned-leader-acts/history.ndjson.gz",
)
