"""How a cluster of controllers and brokers is laid out, whoever its nodes are: slots and links.

Controllers have ids from 101 on, brokers from 1: one space. Each broker has a twin slot, so that a
second live process with its id has addresses and links of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from fencepost import Layout, Link, Role, Shape, Slot, Spare, UsageError

FIRST_CONTROLLER_ID = 101
MAX_NODES = 60


@dataclass(frozen=True, slots=True)
class Ports:
    """Where nodes listen: for clients, for controllers' peers and brokers, and for other brokers.

    `metrics` is the port of the metrics page (0: there is none).
    """

    client: int = 9092
    controller: int = 9093
    replication: int = 9094
    metrics: int = 0


def lay_out(shape: Shape, ports: Ports) -> Layout:
    """Controllers, brokers with a twin each, spares and the clients' slot.

    Where a broker and a controller share a process, they share a slot. Raises UsageError for a
    number of nodes that cannot be.
    """
    if not 1 <= shape.controllers <= MAX_NODES or not 1 <= shape.brokers <= MAX_NODES:
        raise UsageError(f"a cluster has 1 to {MAX_NODES} controllers and as many brokers")
    if not 0 <= shape.combined <= min(shape.controllers, shape.brokers):
        raise UsageError("no more processes can be both than there are controllers and brokers")
    index = count(1)
    both = [FIRST_CONTROLLER_ID + n for n in range(shape.combined)]
    controllers = [
        Slot(f"controller-{n}", Role.CONTROLLER, FIRST_CONTROLLER_ID + n - 1, next(index))
        for n in range(shape.combined + 1, shape.controllers + 1)
    ]
    brokers = [
        Slot(
            f"broker-{n}", Role.BROKER, n, next(index),
            controller_id=both[n - 1] if n <= shape.combined else -1,
        )
        for n in range(1, shape.brokers + 1)
    ]  # fmt: skip
    twins = [
        Slot(f"{b.name}-twin", Role.BROKER, b.node_id, next(index), twin=True) for b in brokers
    ]
    spares = [
        Slot(_spare_name(spare), spare.role, spare.node_id, next(index), spare=True)
        for spare in shape.spares
    ]
    clients = Slot("clients", Role.CLIENT, -1, next(index))
    slots = (*controllers, *brokers, *twins, *spares, clients)
    return Layout(slots, tuple(_links(slots, ports)), ports.metrics)


def _spare_name(spare: Spare) -> str:
    if spare.role is Role.CONTROLLER and spare.node_id >= FIRST_CONTROLLER_ID:
        return f"controller-{spare.node_id - FIRST_CONTROLLER_ID + 1}"
    return f"{spare.role.value}-{spare.node_id}"


def _links(slots: Sequence[Slot], ports: Ports) -> list[Link]:
    """Every connection that one slot dials to another."""
    links: list[Link] = []
    for source in slots:
        for target in slots:
            if source.name == target.name or target.role is Role.CLIENT:
                continue
            if target.id_as(Role.CONTROLLER) is not None:
                links.append(Link(source.name, target.name, ports.controller))
            if target.role is Role.BROKER and source.role is Role.CLIENT:
                links.append(Link(source.name, target.name, ports.client))
            if target.role is Role.BROKER and source.role is Role.BROKER:
                links.append(Link(source.name, target.name, ports.replication))
    return links
