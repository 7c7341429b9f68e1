"""A second process with a broker's id, whether its disk is empty or a copy of the holder's, is
refused, but still fetches as a follower, with the holder's replica id and -1 for its broker epoch,
which leaders accept. (Leaders and controllers skip the check of KIP-903 for -1, which stands for a
client that knows no epochs.) What it has fetched counts as the holder's. So a holder that is cut
off from the other brokers, but from no controller, enters the ISR with whatever log it has. If it
then leads, the others truncate to that log, and everything that was acknowledged with acks=all
since is lost. It may lead much later: in the schedule all brokers are killed, and the holder's next
process is the first to register, seconds after the refused one has ended. If only the leaders are
killed, so that the holder leads while the refused process runs, it is 6 of 6 runs on 4.3.1, 2 of 3
on 4.1.0 and 0 of 3 on 3.9.2. refused-duplicate-counts has the same cause.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen
from fencepost_clusters.apache_kafka.findings.lost import LOST_MESSAGES, lacked
from fencepost_clusters.apache_kafka.findings.refused import fetched, follows, is_refused
from fencepost_kafka import FollowingStarted, HeartbeatRefused, LogAppended


def caused(scene: Scene) -> bool:
    """The holder may be elected while it is in the ISR: until the leader removes it, two seconds
    after the last fetch of the refused process, or for as long as the election takes if the leader
    has died. If the holder has died as well, it is elected once its next process has registered."""
    return any(
        fault.struck_slot(scene.name("process"))
        and is_refused(scene, fault)
        and follows(scene, fault)
        and fetched(scene, fault, lacked(scene.facts))
        for fault in scene.faults("duplicate_id", within_ms=60_000)
    )


FINDING = KnownFinding(
    id="refused-duplicate-follows",
    system="apache/kraft",
    clauses=("RP-06", "RP-13"),
    caused=caused,
    reads=(HeartbeatRefused, FollowingStarted, LogAppended),
    wake=LOST_MESSAGES,
    says=__doc__,
    seen=(
        Seen("3.9.2", 1, 1),
        Seen("4.1.0", 2, 2),
        Seen("4.3.1", 1, 1),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/refused-duplicate-follows/schedule.json",
    history="findings/refused-duplicate-follows/history.ndjson.gz",
)
