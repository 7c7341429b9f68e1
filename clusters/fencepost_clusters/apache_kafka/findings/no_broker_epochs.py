"""Before KIP-380, requests of the controller and a ControlledShutdown do not say for which process
of a broker they are. One that is delivered after the broker has restarted is obeyed as if it were
new: an old StopReplica takes replicas of the new process offline, an old LeaderAndIsr is its first
one, and an old ControlledShutdown moves leaderships off it. The schedule shows all but BE-03: for
that, as in the history, the broker must lead a partition that no other broker can lead, so that its
shutdown lasts.
"""

from __future__ import annotations

from fencepost import KnownFinding, NodeStarted, Scene, Seen


def caused(scene: Scene) -> bool:
    """The request was held before the new process began: the one that obeyed it, or whose broker
    the controller takes for the one that asked to be shut down."""
    bounced = scene.process if scene.flag("early") else scene.name("bounced")
    return any(
        fault.struck(scene.process)
        and fault.arguments.get("action") == "hold"
        # Otherwise a held request is dropped when the connection to the former process ends.
        and fault.arguments.get("outlives") is True
        and event.process == bounced
        for fault in scene.faults("hold", within_ms=5_000)
        for event, _ in scene.traces(NodeStarted, since=fault)
    )


FINDING = KnownFinding(
    id="no-broker-epochs",
    system="apache/zookeeper",
    clauses=("BE-02", "BE-03", "BE-04", "BE-07"),
    caused=caused,
    reads=(NodeStarted,),
    says=__doc__,
    seen=(Seen("2.1.1", 2, 2),),
    schedule="findings/no-broker-epochs/schedule.json",
    history="findings/no-broker-epochs/history.ndjson.gz",
)
