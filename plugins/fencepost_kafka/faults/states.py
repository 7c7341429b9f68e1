"""The states of a Kafka node, by which the coverage of random schedules is counted."""

from __future__ import annotations

from collections.abc import Collection

from fencepost import Layout, Slot, View
from fencepost_kafka.faults.situation import starting
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import Role

STATES = (
    "leader",
    "follower",
    "active controller",
    "other controller",
    "starting",
    "fenced",
    "reassigning",
    "without partitions",
)


def states_of(slot: Slot, view: View, layout: Layout) -> Collection[str]:
    """See `NamesStates.states_of`. A process that is starting has no other state: what the metadata
    say is about its predecessor. `reassigning`: a partition of the broker is being moved. A broker
    that was added or drained is `without partitions`."""
    if slot.name in starting(view, layout):
        return ["starting"]
    kafka = view.of(KafkaView)
    found: list[str] = []
    broker = slot.id_as(Role.BROKER)
    if broker is not None:
        held = [one for one in kafka.partitions.values() if broker in one.replicas]
        fenced = kafka.state.get(view.newest.get(slot.name, "")) == "FENCED"
        found += [
            name
            for name, holds in (
                ("leader", any(one.leader == broker for one in held)),
                ("follower", any(one.leader != broker for one in held)),
                ("fenced", fenced or kafka.fenced.get(broker, False)),
                ("reassigning", any(one.adding or one.removing for one in held)),
                ("without partitions", not held),
            )
            if holds
        ]
    controller = slot.id_as(Role.CONTROLLER)
    if controller is not None:
        active = controller == kafka.active_controller
        found.append("active controller" if active else "other controller")
    return found
