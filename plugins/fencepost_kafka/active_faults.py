"""The faults in effect, by the harness's events: the excuse of a node for what it could not do.

A fault excuses a node only from what the node needed, and the fault took: the process that a fault
stops, or the link that it cuts, in that direction. The neighbours of an isolated node reach each
other, and are not excused from anything between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import final

from msgspec import Struct, field

from fencepost import Effect, Event, FaultHealed, FaultInjected

FAULT_KINDS: frozenset[type[Struct]] = frozenset({FaultInjected, FaultHealed})
"""The events that `ActiveFaults.take` applies."""
LOSES_DATA: frozenset[str] = frozenset({"wipe_disk", "damage_disk", "lose_power"})
"""The faults of schedules after which a disk may have less than what was written to it. What a
fault did is on its event (`acts`)."""
_FORMERLY: Mapping[Effect, frozenset[str]] = {
    Effect.SEVERS: frozenset(
        {
            *("cut", "partition", "isolate", "cut_from_role", "isolate_role", "halves", "bridge"),
            *("majorities_ring", "cut_from_controllers"),
        }
    ),
    Effect.SLOWS: frozenset({"slow_link"}),
    Effect.HOLDS: frozenset({"hold"}),
    Effect.STOPS: frozenset({"pause"}),
    Effect.EMPTIES_DISK: frozenset({"wipe_disk"}),
    Effect.DAMAGES_DISK: frozenset({"damage_disk"}),
    Effect.LOSES_UNFLUSHED: frozenset({"lose_power"}),
    Effect.DOUBLES: frozenset({"duplicate_id"}),
}
"""The effects of the faults in histories of before effects were written, by their names."""


def acts(body: FaultInjected, effect: Effect) -> frozenset[str]:
    """What a fault acts upon with this effect: slots, or directions; none: it has no such
    effect."""
    if body.effects:
        return body.acts(effect)
    if body.fault not in _FORMERLY.get(effect, ()):
        return frozenset()
    return frozenset(body.directions or map(slot_of, body.targets))


def lacks_flushed(body: FaultInjected) -> frozenset[str]:
    """The slots whose disks may lack by a fault even what was flushed."""
    return acts(body, Effect.EMPTIES_DISK) | acts(body, Effect.DAMAGES_DISK)


def lacks_data(body: FaultInjected) -> frozenset[str]:
    """The slots whose disks may lack by a fault what was written to them."""
    return lacks_flushed(body) | acts(body, Effect.LOSES_UNFLUSHED)


class ActiveFault(Struct, frozen=True):
    """A fault in effect: what it acts upon, and since when."""

    fault_id: str
    began_ns: int
    slots: frozenset[str]
    """The slots that the fault names."""
    directions: frozenset[tuple[str, str]]
    """The (source, target) pairs of slots between which it affects data; none: it acts upon the
    slots themselves."""
    severs: bool = False
    """Whether no data passes in these directions."""

    def hits(self, process: str) -> bool:
        """Whether it acts upon the process itself, or upon its slot."""
        return not self.directions and slot_of(process) in self.slots

    def between(self, one: str, other: str) -> bool:
        """Whether it affects the link of two processes, in either direction."""
        ends = slot_of(one), slot_of(other)
        if self.directions:
            return ends in self.directions or ends[::-1] in self.directions
        return self.slots.issuperset(ends)

    def parts(self, process: str, needed: Callable[[str], bool]) -> str:
        """The first slot that the process needs and that it affects the link to; empty if there is
        none."""
        own = slot_of(process)
        others = sorted({other for pair in self.directions if own in pair for other in pair})
        return next((one for one in others if one != own and needed(one)), "")

    def reason(self, process: str, needed: Callable[[str], bool]) -> str:
        """How it affects a process or its link to a slot that it needs, in words; empty if it does
        not."""
        if self.hits(process):
            return f"{self.fault_id} acted upon {process}"
        other = self.parts(process, needed)
        return f"{self.fault_id} acted upon the link of {process} and {other}" if other else ""


@final
class ActiveFaults(Struct):
    """The faults that are in effect."""

    now: dict[str, ActiveFault] = field(default_factory=dict)
    """The fault's id -> the fault."""

    def take(self, event: Event) -> ActiveFault | None:
        """Applies an event; returns the fault that it ends."""
        match event.body:
            case FaultInjected() as body:
                self.now[body.fault_id] = ActiveFault(
                    body.fault_id,
                    body.began_at_ns or event.at_ns,
                    frozenset(map(slot_of, body.targets)),
                    body.pairs(),
                    severs=bool(acts(body, Effect.SEVERS)),
                )
            case FaultHealed():
                return self.now.pop(event.body.fault_id, None)
        return None

    def on(self, *processes: str) -> str:
        """The first fault that acts upon one of these processes, or upon a link between two of
        them, in words; empty if none does."""
        return next((reason for _, reason in self.among(processes)), "")

    def among(
        self, processes: tuple[str, ...], needed: Callable[[str], bool] = lambda slot: False
    ) -> Iterator[tuple[ActiveFault, str]]:
        """The faults that act upon one of these processes, upon a link between two of them, or upon
        a link from one of them to a slot that they need; each with what it does, in words."""
        slots = frozenset(map(slot_of, processes))
        for fault in self.now.values():
            reasons = (
                fault.reason(one, lambda slot: slot in slots or needed(slot)) for one in processes
            )
            reason = next(filter(None, reasons), "")
            if reason:
                yield fault, reason


DUPLICATES = ("-duplicate", "-twin")
"""How the slot name of a second process with a node's id ends; the last one is of older
histories."""


def second_of(slot: str) -> str:
    """The slot of a second process with the id of a slot's node."""
    return f"{slot}{DUPLICATES[0]}"


@lru_cache(maxsize=4096)
def slot_of(process: str) -> str:
    """`broker-2` of `broker-2#1`, and of itself."""
    return process.partition("#")[0]
