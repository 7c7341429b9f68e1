"""Before KIP-380, the controller compares the ids of live brokers only. A broker that restarts
while the controller does not look, as during a pause, has the same id before and after. So the new
process is never told its roles, and leads and follows nothing until it restarts again.
"""

from __future__ import annotations

from fencepost import KnownFinding, ProcessExited, Scene, Seen, slot_of


def caused(scene: Scene) -> bool:
    """The former process ended, and the next one registered, while the controller was paused."""
    bounced = slot_of(scene.name("other"))
    return scene.flag("overlooked") and any(
        fault.struck(scene.name("process")) and slot_of(exited.ended) == bounced
        for fault in scene.faults("pause")
        for _, exited in scene.traces(ProcessExited, since=fault)
    )


FINDING = KnownFinding(
    id="bounce-unseen",
    system="apache/zookeeper",
    clauses=("BE-05",),
    caused=caused,
    reads=(ProcessExited,),
    says=__doc__,
    seen=(Seen("2.1.1", 2, 2),),
    schedule="findings/bounce-unseen/schedule.json",
    history="findings/bounce-unseen/history.ndjson.gz",
)
