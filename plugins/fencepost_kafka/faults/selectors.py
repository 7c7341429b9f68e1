"""Targets of a schedule by their role in a Kafka cluster at that time.

@leader/TOPIC/PARTITION     the partition's leader
@follower/TOPIC/PARTITION   the first replica in its ISR that does not lead
@active-controller          the active controller
@other-controller/N         the N-th controller, from 0 on, that is not the active one
@other-broker/N             the N-th broker, from 0 on, that is not the active controller
@controllers, @brokers      every node of that role
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Layout, View
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import Role

SELECTORS = (
    "@leader",
    "@follower",
    "@active-controller",
    "@other-controller",
    "@other-broker",
    "@controllers",
    "@brokers",
)


def select(selector: str, view: View, layout: Layout) -> Sequence[str] | None:
    """The names of the slots that a selector means now; see `Selecting.select`."""
    kafka = view.of(KafkaView)
    kind, *of = selector.split("/")
    brokers = {slot.node_id: slot.name for slot in layout.of(Role.BROKER, spares=True)}
    match kind, of:
        case "@controllers", []:
            return [slot.name for slot in layout.of(Role.CONTROLLER)]
        case "@brokers", []:
            return list(brokers.values())
        case "@active-controller", []:
            return [
                s.name
                for s in layout.of(Role.CONTROLLER, spares=True)
                if s.id_as(Role.CONTROLLER) == kafka.active_controller
            ]
        case (("@other-controller" | "@other-broker"), [number]) if number.isdecimal():
            if kafka.active_controller is None:
                return []
            role = Role.CONTROLLER if kind == "@other-controller" else Role.BROKER
            others = [
                slot.name
                for slot in layout.of(role)
                if slot.id_as(Role.CONTROLLER) != kafka.active_controller
            ]
            return others[int(number) :][:1]
        case (("@leader" | "@follower"), [topic, partition]) if partition.isdecimal():
            known = kafka.partitions.get((topic, int(partition)))
            if known is None:
                return []
            if kind == "@leader":
                wanted = [known.leader]
            else:
                wanted = [replica for replica in known.isr if replica != known.leader][:1]
            return [brokers[node] for node in wanted if node in brokers]
    return None
