"""What random schedules have reached: which operations met their victims in which states.

The state of a victim right before an operation is in the operation's event (`FaultInjected`,
`Administered`). So the coverage of a run is a pure function of its history. A fault without a
receipt reached nothing.

See docs/decisions/20-coverage.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from fencepost.events import Administered, Event, FaultInjected, FaultTookEffect
from fencepost.events.run import WAS
from fencepost.model.faults.random_faults import NamesStates
from fencepost.model.system.capabilities import System
from fencepost.model.system.topology import CLIENT, Cut, Layout, Slot
from fencepost.model.view import Holders, View

DOWN = "down"
"""No process runs in the slot."""
DOUBLED = "doubled"
"""A second process with the node's id runs."""
STRUCK = "struck"
"""A fault affects the slot already."""
UNDER = "under "
"""Before the name of that fault."""
HOLDER = "holder"
"""A process of the slot holds authority. A system's own names say of what kind (`NamesStates`)."""


class Met(NamedTuple):
    """An operation and a state of its victim."""

    operation: str
    state: str


Counts = Mapping[str, Mapping[str, int]]
"""operation -> state -> how often."""


def states_named(system: System) -> Sequence[str]:
    """Every state that a node of the system can be in, in the order in which they are shown. The
    names of single faults (`UNDER`) are not among them."""
    own = system.states if isinstance(system, NamesStates) else (HOLDER,)
    return (*own, DOUBLED, STRUCK, DOWN)


def states_of(
    system: System, slot: Slot, view: View, layout: Layout, under: Collection[str] = ()
) -> Sequence[str]:
    """The states of a slot now; `under` are the names of the faults that affect it."""
    process = view.newest.get(slot.name, "")
    alive = process in view.alive
    # A slot may be in several states at once: a holder with a second process of its id, under a
    # cut.
    found = [] if alive else [DOWN]
    if alive and isinstance(system, NamesStates):
        found += system.states_of(slot, view, layout)
    elif alive and view.of(Holders).holds_any(process):
        found.append(HOLDER)
    if any(view.newest.get(one.name, "") in view.alive for one in layout.rivals(slot)):
        found.append(DOUBLED)
    if under:
        found += [STRUCK, *(f"{UNDER}{name}" for name in sorted({*under}))]
    return found


def victims(
    targets: Collection[str], directions: Cut, view: View, layout: Layout
) -> Sequence[Slot]:
    """The slots of the nodes that a fault is aimed at. A fault of links is aimed at the slots that
    take part in each direction; if none does, at all. Targets may be processes."""
    named = {view.slot_of.get(target, target) for target in targets}
    if directions:
        ends = [frozenset(pair) for pair in directions]
        # An isolation has one slot in each of its directions, which is the victim; its neighbours
        # are at the other ends. A partition has none such, and then every slot is one.
        named &= frozenset.intersection(*ends) or named
    return [
        slot
        for slot in layout.slots
        if slot.name in named and slot.role != CLIENT and not slot.duplicate
    ]


def met(events: Iterable[Event]) -> Counter[Met]:
    """How often each operation met a victim in each state; `events` are those of the harness, in
    order."""
    found: Counter[Met] = Counter()
    waiting: dict[str, FaultInjected] = {}
    for event in events:
        match event.body:
            # It reached nothing so far; the receipt may come while it acts.
            case FaultInjected() as body if not body.receipt:
                waiting[body.fault_id] = body
            case FaultInjected() as body:
                found.update(_met(body.fault, body.states))
            case FaultTookEffect(fault_id=one) if one in waiting:
                body = waiting.pop(one)
                found.update(_met(body.fault, body.states))
            case Administered() as asked:
                found.update(_met(asked.operation, asked.states))
    return found


def _met(operation: str, states: Iterable[str]) -> set[Met]:
    # A set: two victims in one state are one meeting.
    return {Met(operation, one.partition(WAS)[2]) for one in states}


def counts(found: Mapping[Met, int]) -> Counts:
    """The same as plain data."""
    plain: dict[str, dict[str, int]] = {}
    for (operation, state), number in sorted(found.items()):
        plain.setdefault(operation, {})[state] = number
    return plain


def counted(plain: Counts) -> Counter[Met]:
    """The inverse of `counts`."""
    return Counter(
        {Met(o, s): number for o, states in plain.items() for s, number in states.items()}
    )


def in_words(found: Counts, states: Sequence[str]) -> Sequence[str]:
    """What was reached: a line of how many pairs, and a line for each operation with the states
    that it met its victims in, and those that it did not. Not every pair can be reached."""
    if not found:
        return ()
    width = max(map(len, found))
    reached = sum(1 for met in found.values() for state in states if state in met)
    never = [state for state in states if all(state not in met for met in found.values())]
    lacking = f"; no victim was {', '.join(never)}" if never else ""
    lines = [
        f"{reached} of {len(found) * len(states)} pairs of an operation and a state of its victim "
        f"were reached{lacking}"
    ]
    for operation, met in found.items():
        there = [f"{state} {met[state]}" for state in states if state in met]
        under = [f"{state} {number}" for state, number in met.items() if state.startswith(UNDER)]
        lacks = [state for state in states if state not in met]
        not_met = f"; not {', '.join(lacks)}" if lacks else ""
        lines.append(f"  {operation:{width}}  {', '.join([*there, *under])}{not_met}")
    return lines
