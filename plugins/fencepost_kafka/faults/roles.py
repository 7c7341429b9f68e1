"""Faults of `fencepost_plugins` that are aimed at Kafka's roles."""

from __future__ import annotations

from fencepost import Cut, Handle, Layout, NotApplicable, needs
from fencepost_kafka.vocabulary import Role
from fencepost_plugins.partition import Partition, between_node_and_role
from fencepost_plugins.targets import Names, as_names


@needs(Handle.PEERS)
def cut_from_controllers(broker: Names) -> Partition:
    """Nothing passes between a broker and any controller; brokers and clients still reach it."""
    return Partition("cut_from_controllers", {"broker": as_names(broker)}, _from_controllers)


def _from_controllers(layout: Layout, broker: tuple[str, ...]) -> Cut:
    if not layout.of(Role.CONTROLLER):
        raise NotApplicable("any broker may be the controller here: cut off the one that is")
    return between_node_and_role(layout, broker, (Role.CONTROLLER,))
