"""An active controller sends BeginQuorumEpoch to the other voters again and again. If it removes a
voter while such a request is under way, the answer comes from one that is no voter any more. The
controller takes that for an error of its own (LeaderState.ensureValidVoter), and its process ends.
In the schedule the link to the voter is slow, so a request is nearly always under way. In a cluster
of three, the two voters that are left are needed both: nothing is decided until the process is
started again. From 4.2.0 on (KAFKA-16926) only a voter that has not fetched for half a fetch
timeout is sent a BeginQuorumEpoch, and one behind a slow link fetches: so this schedule does not
show it there. The code that fails is the same; a voter that is paused, removed and resumed would
show it.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.log_memory import ControllerFailed
from fencepost_kafka import QuorumLearned


def caused(scene: Scene) -> bool:
    """The request to the voter is under way for as long as a slow link takes."""
    leader, errors = _failed(scene)
    return any(
        _UNEXPECTED.format(asked.arguments.get("controller")) in errors and event.process == leader
        for asked in scene.operations("remove_voter", within_ms=10_000)
        for event, _ in scene.traces(QuorumLearned, since=asked)
    )


def _failed(scene: Scene) -> tuple[str, frozenset[object]]:
    """The process that failed in its raft IO thread, and by which errors."""
    if "error" in scene.facts:
        of_raft = scene.facts.get("doing") == _DOING
        return scene.process, frozenset({scene.facts["error"]} if of_raft else ())
    leader = scene.name("process")
    return leader, frozenset(
        failed.error
        for event, failed in scene.traces(ControllerFailed, within_ms=_ENDS_WITHIN_MS)
        if event.process == leader and failed.doing == _DOING
    )


_DOING = "the raft IO thread"
_ENDS_WITHIN_MS = 5_000
"""How long after its failure the process may end; in the runs that were seen it took 0.4 s."""
_UNEXPECTED = "java.lang.IllegalArgumentException: Unexpected acknowledgement from non-voter {}"
"""How Kafka's own error begins and ends."""


FINDING = KnownFinding(
    id="removed-voter-ends-leader",
    system="apache/kraft",
    clauses=("KR-36", "AVAIL-running"),
    caused=caused,
    reads=(QuorumLearned, ControllerFailed),
    says=__doc__,
    seen=(
        Seen("3.9.2", 1, 1),
        Seen("4.1.0", 2, 2),
        Seen("4.3.1", 0, 2),
    ),
    schedule="findings/removed-voter-ends-leader/schedule.json",
    history="findings/removed-voter-ends-leader/history.ndjson.gz",
)
