"""The layout of a cluster of controllers and brokers: slots and links.

Brokers have ids from 1 on, controllers from 101: one space. Where brokers reach as far,
controllers begin at the next hundred. Each broker has a duplicate slot, so that a second live
process with its id has addresses and links of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from fencepost import Layout, Link, Shape, Slot, Spare, UsageError, no_such
from fencepost_kafka.vocabulary import CLIENTS, COMBINED, COUNTS, Role

FIRST_CONTROLLER_ID = 101
"""That of clusters with less than a hundred brokers."""
MOST_CONTROLLERS = 60
MOST_BROKERS = 400
"""Of a layout. A runtime may have room for less: see `check_layout`."""
SPARE_ROLES = (Role.CONTROLLER, Role.BROKER)


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports on which nodes listen: for clients, for controllers' peers and brokers, and for
    other brokers.

    `metrics` is the port of the metrics page (0: there is none). A `controller` port of 0 is the
    replication port.
    """

    client: int = 9092
    controller: int = 9093
    replication: int = 9094
    metrics: int = 0


def lay_out(shape: Shape, ports: Ports) -> Layout:
    """Controllers, brokers with a duplicate each, spares and the clients' slot.

    If a broker and a controller share a process, they share a slot. Raises UsageError for an
    impossible number of nodes, and for a spare of another role.
    """
    counts = {**COUNTS, **shape.counts}
    controllers_wanted, brokers_wanted = counts[Role.CONTROLLER], counts[Role.BROKER]
    combined = counts[COMBINED]
    if not 1 <= controllers_wanted <= MOST_CONTROLLERS:
        raise UsageError(f"a cluster has 1 to {MOST_CONTROLLERS} controllers")
    _check_brokers(brokers_wanted)
    if not 0 <= combined <= min(controllers_wanted, brokers_wanted):
        raise UsageError("no more processes can be both than there are controllers and brokers")
    index = count(1)
    first = first_controller_id(brokers_wanted)
    controllers = [
        Slot(f"controller-{n}", Role.CONTROLLER, first + n - 1, next(index))
        for n in range(combined + 1, controllers_wanted + 1)
    ]
    brokers = [
        Slot(f"broker-{n}", Role.BROKER, n, next(index), also=_also(n, combined, first))
        for n in range(1, brokers_wanted + 1)
    ]
    duplicates = [
        Slot(f"{b.name}-duplicate", Role.BROKER, b.node_id, next(index), duplicate=True)
        for b in brokers
    ]
    spares = [
        Slot(_spare_name(spare, first), _spare_role(spare), spare.node_id, next(index), spare=True)
        for spare in shape.spares
    ]
    clients = Slot(CLIENTS, Role.CLIENT, -1, next(index))
    slots = (*controllers, *brokers, *duplicates, *spares, clients)
    bootstrap = tuple((broker.name, ports.client) for broker in brokers)
    return Layout(slots, tuple(_links(slots, ports)), ports.metrics, bootstrap, _framed(ports))


def lay_out_beside(
    shape: Shape,
    ports: Ports,
    servers: Sequence[Slot],
    links_to_servers: Callable[[Sequence[Slot]], Sequence[Link]],
    unasked: frozenset[int],
    *,
    controllers: bool = True,
) -> Layout:
    """Brokers over servers of other software, which keep the metadata. Every broker may be the
    controller, so each is both, with one id; unless there are no `controllers`.

    `links_to_servers` makes the links of these slots to the servers; the index of no server is
    above their number. With a `controller` port of 0, requests of controllers go to the replication
    port, too. Raises UsageError as `lay_out` does.
    """
    wanted = {**COUNTS, **shape.counts}[Role.BROKER]
    _check_brokers(wanted)
    for spare in shape.spares:
        if spare.role != Role.BROKER:
            raise no_such("role of a spare node", spare.role, (Role.BROKER,))
    index = count(len(servers) + 1)

    def broker(name: str, number: int, *, duplicate: bool = False, spare: bool = False) -> Slot:
        also = ((Role.CONTROLLER, number),) if controllers else ()
        slot = Slot(name, Role.BROKER, number, next(index), also=also)
        return replace(slot, duplicate=duplicate, spare=spare)

    brokers = [broker(f"broker-{n}", n) for n in range(1, wanted + 1)]
    duplicates = [broker(f"{b.name}-duplicate", b.node_id, duplicate=True) for b in brokers]
    spares = [broker(f"broker-{one.node_id}", one.node_id, spare=True) for one in shape.spares]
    clients = Slot(CLIENTS, Role.CLIENT, -1, next(index))
    others = (*brokers, *duplicates, *spares, clients)
    links = (*links_to_servers(others), *_links(others, ports))
    bootstrap = tuple((one.name, ports.client) for one in brokers)
    return Layout(
        slots=(*servers, *others),
        links=links,
        metrics_port=ports.metrics,
        bootstrap=bootstrap,
        framed=_framed(ports),
        unasked=unasked,
    )


def _framed(ports: Ports) -> frozenset[int]:
    return frozenset({ports.client, ports.controller, ports.replication} - {0})


def listener_of(app: str) -> str:
    """The name of the listener for the program in a slot, in the letters that Kafka takes."""
    return f"CLIENT_{app.upper().replace('-', '_')}"


def first_controller_id(brokers: int) -> int:
    """The id of the first controller beside so many brokers.

    It is 101 as long as a spare broker has an id below that, so that histories of such clusters
    stay what they were.
    """
    return brokers // 100 * 100 + FIRST_CONTROLLER_ID


def _check_brokers(wanted: int) -> None:
    if not 1 <= wanted <= MOST_BROKERS:
        raise UsageError(f"a cluster has 1 to {MOST_BROKERS} brokers")


def _also(broker: int, combined: int, first: int) -> tuple[tuple[str, int], ...]:
    """The controller that shares a broker's process, if one does; `first` is the id of the first
    controller."""
    if broker > combined:
        return ()
    return ((Role.CONTROLLER, first + broker - 1),)


def _spare_role(spare: Spare) -> Role:
    if spare.role not in SPARE_ROLES:
        raise no_such("role of a spare node", spare.role, SPARE_ROLES)
    return Role(spare.role)


def _spare_name(spare: Spare, first: int) -> str:
    if spare.role == Role.CONTROLLER and spare.node_id >= first:
        return f"controller-{spare.node_id - first + 1}"
    return f"{spare.role}-{spare.node_id}"


def _links(slots: Sequence[Slot], ports: Ports) -> list[Link]:
    """Every connection that one slot dials to another."""
    links: list[Link] = []
    for source in slots:
        for target in slots:
            if source.name == target.name or target.role is Role.CLIENT:
                continue
            if target.id_as(Role.CONTROLLER) is not None and ports.controller:
                links.append(Link(source.name, target.name, ports.controller))
            if target.role is Role.BROKER and source.role is Role.CLIENT:
                links.append(Link(source.name, target.name, ports.client))
                if target.id_as(Role.CONTROLLER) is not None and not ports.controller:
                    links.append(Link(source.name, target.name, ports.replication))
            if target.role is Role.BROKER and source.role is Role.BROKER:
                links.append(Link(source.name, target.name, ports.replication))
    return links
