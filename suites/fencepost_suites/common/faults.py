"""The faults in effect, by the harness's events: the excuse of a node that a fault names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from msgspec import Struct, field

from fencepost import Event, FaultHealed, FaultInjected
from fencepost_suites.common.keys import slot_of

FAULT_KINDS: frozenset[type[Struct]] = frozenset({FaultInjected, FaultHealed})
"""The events that `Faults.take` applies."""


class InEffect(Struct, frozen=True):
    """A fault in effect. A fault that cuts links names both ends of each, so that the neighbours of
    an isolated node are named, too."""

    began_ns: int
    slots: frozenset[str]


@final
class Faults(Struct):
    """The faults that are in effect."""

    now: dict[str, InEffect] = field(default_factory=dict)
    """The fault's id -> the fault."""

    def take(self, event: Event) -> None:
        """Applies an event."""
        match event.body:
            case FaultInjected() as body:
                slots = frozenset(slot_of(one) for one in body.targets)
                self.now[body.fault_id] = InEffect(body.began_at_ns or event.at_ns, slots)
            case FaultHealed():
                self.now.pop(event.body.fault_id, None)

    def naming(self, *processes: str) -> Iterator[InEffect]:
        """The faults that name the slot of one of these processes."""
        slots = {slot_of(one) for one in processes}
        return (one for one in self.now.values() if one.slots & slots)

    def between(self, one: str, other: str) -> bool:
        """Whether a fault is in effect that names the slots of both processes, as a fault of their
        link does."""
        both = {slot_of(one), slot_of(other)}
        return any(both <= fault.slots for fault in self.now.values())

    def on(self, *processes: str) -> bool:
        """Whether a fault is in effect that names the slot of one of these processes."""
        return any(True for _ in self.naming(*processes))
