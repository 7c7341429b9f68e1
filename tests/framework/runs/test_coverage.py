"""What a schedule has reached: the states in which operations met their victims."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fencepost import Event, Layout, ProcessExited, ProcessSpawned, Slot, View
from fencepost.events import Administered, FaultInjected, FaultTookEffect
from fencepost.model.system.topology import CLIENT
from fencepost.runs.coverage import (
    Met,
    counted,
    counts,
    in_words,
    met,
    states_named,
    states_of,
    victims,
)

ONE, TWO = Slot("node-1", "node", 1, 1), Slot("node-2", "node", 2, 2)
SECOND = Slot("node-1-duplicate", "node", 1, 3, duplicate=True)
LAYOUT = Layout((ONE, TWO, SECOND, Slot("clients", CLIENT, -1, 4)), ())


class Named:
    """A system that names states."""

    states = ("odd", "even")

    def states_of(self, slot: Slot, view: View, layout: Layout) -> tuple[str, ...]:
        return ("odd",) if slot.node_id % 2 else ("even",)


def add(view: View, *bodies: Struct) -> View:
    for body in bodies:
        view.apply(
            Event(
                run="r",
                process="harness",
                node_seq=view.count + 1,
                at_ns=view.count,
                body=body,
                cause=None,
            )
        )
    return view


def spawned(slot: Slot) -> ProcessSpawned:
    return ProcessSpawned(
        started=f"{slot.name}#1", slot=slot.name, role=slot.role, node_id=slot.node_id, pid=1
    )


def injected(fault: str, receipt: bool, *states: str) -> FaultInjected:
    return FaultInjected(
        fault_id=f"{fault}-1",
        fault=fault,
        targets=("node-1",),
        receipt=receipt,
        evidence="",
        states=states,
    )


def events(bodies: Sequence[Struct]) -> list[Event]:
    return [
        Event(run="r", process="harness", node_seq=n, at_ns=n, body=body, cause=None)
        for n, body in enumerate(bodies)
    ]


def test_a_slot_has_the_states_that_its_system_names_and_those_of_its_processes() -> None:
    system: object = Named()
    view = add(View(), spawned(ONE))

    def found(slot: Slot, *under: str) -> tuple[str, ...]:
        return tuple(states_of(system, slot, view, LAYOUT, under))  # type: ignore[arg-type]

    assert found(ONE) == ("odd",)
    assert found(TWO) == ("down",)
    add(view, spawned(SECOND))
    assert found(ONE) == ("odd", "doubled")
    add(view, ProcessExited(ended="node-1#1", exit_code=0, signal=9, expected=True))
    assert found(ONE, "kill", "cut", "kill") == (
        *("down", "doubled", "struck", "under cut", "under kill"),
    )
    assert states_named(system) == (  # type: ignore[arg-type]
        *("odd", "even", "doubled", "struck", "down"),
    )


def test_a_system_that_names_no_states_has_holders_of_authority() -> None:
    system: object = object()
    assert states_named(system)[0] == "holder"  # type: ignore[arg-type]


def test_a_fault_of_links_is_aimed_at_the_slots_that_each_direction_has() -> None:
    view = add(View(), spawned(ONE), spawned(SECOND))

    def aimed(targets: list[str], *pairs: tuple[str, str]) -> list[str]:
        return [slot.name for slot in victims(targets, frozenset(pairs), view, LAYOUT)]

    both = ["node-1", "node-2", "clients"]
    assert aimed(both, ("node-1", "node-2"), ("clients", "node-1")) == ["node-1"]
    assert aimed(["node-1", "node-2"], ("node-1", "node-2")) == ["node-1", "node-2"]
    assert aimed(["node-1#1", "node-1-duplicate#1"]) == ["node-1"]
    assert aimed(["clients", "node-2"], ("clients", "node-2")) == ["node-2"]


def test_a_fault_counts_once_it_has_its_receipt() -> None:
    bodies = [
        injected("hold", False, "node-1: odd"),
        injected("cut", False, "node-1: odd"),
        injected("kill", True, "node-1: odd", "node-1: under cut", "node-2: odd"),
        FaultTookEffect(fault_id="cut-1", evidence=""),
        Administered(operation="grow", arguments="{}", targets=(), states=("node-2: even",)),
        injected("kill", True, "node-1: odd"),
    ]
    found = met(events(bodies))
    assert found == {
        Met("kill", "odd"): 2,
        Met("kill", "under cut"): 1,
        Met("cut", "odd"): 1,
        Met("grow", "even"): 1,
    }
    assert counted(counts(found)) == found


def test_the_states_that_were_not_met_are_named() -> None:
    found = {"kill": {"odd": 2, "under cut": 1}, "grow": {"even": 1, "odd": 3}}
    assert in_words(found, ("odd", "even")) == [
        "3 of 4 pairs of an operation and a state of its victim were reached",
        "  kill  odd 2, under cut 1; not even",
        "  grow  odd 3, even 1",
    ]
    assert in_words({}, ("odd",)) == ()
