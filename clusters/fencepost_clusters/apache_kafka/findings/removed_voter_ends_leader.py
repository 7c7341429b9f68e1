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
from fencepost_kafka import QuorumLearned


def caused(scene: Scene) -> bool:
    """The request to the voter is under way for as long as a slow link takes."""
    if scene.facts.get("doing") != "the raft IO thread":
        return False
    return any(
        scene.facts.get("error") == _UNEXPECTED.format(asked.arguments.get("controller"))
        and event.process == scene.process
        for asked in scene.operations("remove_voter", within_ms=10_000)
        for event, _ in scene.traces(QuorumLearned, since=asked)
    )


_UNEXPECTED = "java.lang.IllegalArgumentException: Unexpected acknowledgement from non-voter {}"
"""How Kafka's own error begins and ends."""


FINDING = KnownFinding(
    id="removed-voter-ends-leader",
    system="apache/kraft",
    clauses=("KR-36",),
    caused=caused,
    reads=(QuorumLearned,),
    says=__doc__,
    seen=(
        Seen("3.9.2", 1, 1),
        Seen("4.1.0", 2, 2),
        Seen("4.3.1", 0, 2),
    ),
    schedule="findings/removed-voter-ends-leader/schedule.json",
    history="findings/removed-voter-ends-leader/history.ndjson.gz",
)
