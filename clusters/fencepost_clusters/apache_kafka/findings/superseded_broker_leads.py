"""A broker that was cut off does not know that a second process has its id by now. Its broker epoch
is stale, and controllers refuse its heartbeats (STALE_BROKER_EPOCH), but it still applies the
records of the metadata. They name brokers by their ids. So once it is connected again, it leads
what the second process leads, in the same leader epoch, with its own disk, and both accept writes.
Messages that were acknowledged with acks=all are not in its log, and the logs of one epoch differ.
"""

from __future__ import annotations

from fencepost import Facts, Follows, KnownFinding, Scene, Seen, Wake, slot_of
from fencepost_clusters.apache_kafka.findings.lost import number, one_disk
from fencepost_kafka import BrokerStateChanged


def caused(scene: Scene) -> bool:
    """The second process has registered, and leads beside the one whose id it has."""
    # Either of the two may be the superseded one.
    both = (scene.name("process"), scene.name("other"))
    return any(
        fault.struck(superseded)
        and state.reason == "registered"
        and second.startswith(f"{slot_of(superseded)}-duplicate#")
        and slot_of(event.process) == slot_of(second)
        for superseded, second in (both, both[::-1])
        for fault in scene.faults("duplicate_id", within_ms=1_000)
        for event, state in scene.traces(BrokerStateChanged, since=fault)
    )


def _ends(facts: Facts) -> bool:
    """A leader's log ends before what was committed."""
    return "log_end" in facts


def _differ(facts: Facts) -> bool:
    return not one_disk(facts)


TWO_LOGS = Wake(
    scope="partition",
    numbers=number("epoch"),
    follows=(
        # The superseded broker may lead first in that epoch. In a later one, what a leader lacks is
        # another matter: an hour later another broker led with an empty log, and that was "known".
        Follows("RP-06", number("epoch"), of=_ends),
        Follows("RP-13", number("epoch"), of=_ends),
        Follows("RP-06", number("epoch"), of=_ends, earlier=True),
        Follows("RP-13", number("epoch"), of=_ends, earlier=True),
        Follows("RP-05", of=_differ),
        # What clients see of two logs of one epoch.
        Follows("JEPSEN-lost-write"),
        Follows("JEPSEN-inconsistent-offsets"),
        Follows("JEPSEN-duplicate"),
    ),
)


FINDING = KnownFinding(
    id="superseded-broker-leads",
    system="apache/kraft",
    clauses=("RP-24",),
    caused=caused,
    reads=(BrokerStateChanged,),
    wake=TWO_LOGS,
    says=__doc__,
    seen=(
        Seen("3.9.2", 2, 2),
        Seen("4.1.0", 2, 2),
        Seen("4.3.1", 1, 1),
        Seen("4.4.0", 1, 1),
    ),
    schedule="findings/superseded-broker-leads/schedule.json",
    history="findings/superseded-broker-leads/history.ndjson.gz",
)
