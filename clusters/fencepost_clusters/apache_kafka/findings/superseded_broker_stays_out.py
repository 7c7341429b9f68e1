"""Where a superseded broker has led beside the process that took its id, their two logs differ in
one leader epoch. Once the second process has ended, the broker returns with its own log. Logs are
compared by the ends of their epochs, so no difference is found. But the log may end within a batch
of the leader's. That batch cannot be appended (UnexpectedAppendOffsetException), the fetcher gives
the partition up, and the broker never returns to the ISR.
"""

from __future__ import annotations

from fencepost import KnownFinding, Scene, Seen, slot_of
from fencepost_kafka import LeadershipStarted, partition_of


def caused(scene: Scene) -> bool:
    """The broker is all that ISRs lack, and both processes led in one epoch: see
    superseded-broker-leads."""
    out = set(scene.names("outside"))
    if len(out) != 1 or scene.names("fenced") or scene.names("leaderless"):
        return False
    (broker,) = out
    led: dict[str, set[tuple[str, int]]] = {"": set(), "-duplicate": set()}
    for fault in scene.faults("duplicate_id", within_ms=120_000):
        for event, leads in scene.traces(LeadershipStarted, since=fault):
            slot = slot_of(event.process).removeprefix(f"broker-{broker}")
            if fault.struck_slot(f"broker-{broker}") and slot in led:
                led[slot].add((str(partition_of(leads)), leads.leader_epoch))
    return any(partition in scene.names("short") for partition, _ in led[""] & led["-duplicate"])


FINDING = KnownFinding(
    id="superseded-broker-stays-out",
    system="apache/kraft",
    clauses=("AVAIL-recovered",),
    caused=caused,
    reads=(LeadershipStarted,),
    says=__doc__,
    seen=(
        Seen("3.9.2", 1, 2),
        Seen("4.1.0", 0, 1),
        Seen("4.3.1", 1, 1),
        Seen("4.4.0", 0, 1),
    ),
    schedule="findings/superseded-broker-stays-out/schedule.json",
    history="findings/superseded-broker-leads/history.ndjson.gz",
)
