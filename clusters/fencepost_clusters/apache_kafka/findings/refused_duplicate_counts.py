"""A refused second process with a broker's id fetches as a follower, as in refused-duplicate-
follows. If the holder of the id dies meanwhile, it stays in the ISR: the fetches of the refused
process keep it there until the controllers end its session, or for as long as they cannot decide.
What is written then counts as stored by three brokers, is committed, acknowledged and read, though
two have it. When the refused process ends, its disk is gone with it.
"""

from __future__ import annotations

from fencepost import Facts, Follows, KnownFinding, Scene, Seen, Wake
from fencepost_clusters.apache_kafka.findings.lost import lacked
from fencepost_clusters.apache_kafka.findings.refused import follows, is_refused
from fencepost_kafka import FollowingStarted, HeartbeatRefused


def caused(scene: Scene) -> bool:
    """All that the ISR lacks is what the refused process had stored before it ended."""
    if len(scene.names("lacking")) != 1 or len(scene.names("ended")) != 1:
        return False
    (second,) = scene.names("ended")
    return any(
        fault.struck(second) and is_refused(scene, fault) and follows(scene, fault)
        for fault in scene.faults("duplicate_id", within_ms=5_000)
    )


def _lacks_the_same(facts: Facts) -> bool:
    return bool(facts.get("ended"))


COUNTED = Wake(
    scope="partition",
    numbers=lacked,
    follows=(
        Follows("RP-32", of=_lacks_the_same),
        Follows("RP-32", of=_lacks_the_same, earlier=True),
    ),
)


FINDING = KnownFinding(
    id="refused-duplicate-counts",
    system="apache/kraft",
    clauses=("RP-04", "RP-07"),
    caused=caused,
    reads=(HeartbeatRefused, FollowingStarted),
    wake=COUNTED,
    says=__doc__,
    seen=(
        Seen("3.9.2", 1, 1),
        Seen("4.1.0", 2, 2),
        Seen("4.3.1", 2, 2),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/refused-duplicate-counts/schedule.json",
    history="findings/refused-duplicate-counts/history.ndjson.gz",
)
