"""What the faults of this package strike: slots of the cluster by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost import Layout, Role, Slot, UsageError, no_such

Names = str | Sequence[str]
"""One slot's name, or several."""


def as_names(given: Names) -> tuple[str, ...]:
    """The names; raises UsageError when there is none."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise UsageError("a fault needs at least one node to strike")
    return names


def find_slot(layout: Layout, name: str) -> Slot:
    """The slot; raises UsageError with the nearest right name."""
    for slot in layout.slots:
        if slot.name == name:
            return slot
    raise no_such("slot", name, (slot.name for slot in layout.slots))


def find_slots(layout: Layout, names: Iterable[str]) -> tuple[Slot, ...]:
    """The slots, in the order of the names; raises UsageError for an unknown one."""
    return tuple(find_slot(layout, name) for name in names)


def node_names(layout: Layout) -> tuple[str, ...]:
    """Every node's name, clients and twins left out, in the layout's order."""
    return tuple(s.name for s in layout.slots if s.role is not Role.CLIENT and not s.twin)
