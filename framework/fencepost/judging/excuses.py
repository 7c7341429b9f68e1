"""The faults of a run, as excuses: what a node needed, and a fault took, while it took it.

The problem. A node is excused from what it could not do, and from nothing else. If the excuse is
too wide, it hides a broken cluster; if it is too narrow, it accuses a healthy one.

* A fault without directions excuses the processes of its targets from everything. One with
  directions excuses both ends of each link from what needs that link: an answer is lost by the
  way back. The neighbours of an isolated node reach each other, and are excused from nothing
  between them.
* It excuses from the moment at which its injection began: its event is written after the
  measurement, and what came of it may be recorded before.
* It does so until it is healed, as the harness saw it. What a node had no time for until then may
  come one recovery later: `since` also has the faults that were healed meanwhile, and each rule
  states its bound.
* What a fault does is on its event, derived by the runtime. Its name decides nothing, so a fault of
  another plugin is judged as ours.

A rule keeps one `Excuses` in its state, and gives it the events of `FAULT_KINDS`. Stalls of the
machine are no faults: see `fencepost.judging.deadlines`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import final

from msgspec import Struct, field
from msgspec.structs import replace

from fencepost.events import Effect, Event, FaultHealed, FaultInjected, began_ns
from fencepost.events.names import slot_of
from fencepost.judging.about import Reason, Scope, process_scope, slot_scope

FAULT_KINDS: frozenset[type[Struct]] = frozenset({FaultInjected, FaultHealed})
"""The events that `Excuses.take` applies."""


@final
class Excuse(Struct, frozen=True):
    """A fault: what it acts upon, since when, and until when."""

    fault_id: str
    began_ns: int
    slots: frozenset[str]
    """The slots that the fault names."""
    directions: frozenset[tuple[str, str]]
    """The (source, target) pairs of slots between which it affects data; none: it acts upon the
    slots themselves."""
    severs: bool = False
    """Whether no data passes in these directions."""
    doubles: bool = False
    """Whether it is a second process with the id of a node: that takes nothing from the first one,
    unless it takes the id over."""
    ended_ns: int | None = None
    """When it was healed; None: it still acts."""

    def hits(self, process: str) -> bool:
        """Whether it acts upon the process itself, or upon its slot."""
        # A fault of links names the slots at both ends as its targets. To take it for one of
        # processes excused every neighbour of an isolated node from everything.
        return not self.directions and slot_of(process) in self.slots

    def touches(self, process: str) -> bool:
        """Whether it acts upon a process, or upon any link of it."""
        slot = slot_of(process)
        return self.hits(process) or any(slot in pair for pair in self.directions)

    def between(self, one: str, other: str) -> bool:
        """Whether it affects the link of two processes, in either direction."""
        ends = slot_of(one), slot_of(other)
        if self.directions:
            return ends in self.directions or ends[::-1] in self.directions
        # Without directions, it acts upon the slots themselves: both must be among them.
        return self.slots.issuperset(ends)

    def parts(self, process: str, needed: Callable[[str], bool]) -> str:
        """The first slot that the process needs and that it affects the link to; empty if there is
        none."""
        own = slot_of(process)
        others = sorted({other for pair in self.directions if own in pair for other in pair})
        return next((one for one in others if one != own and needed(one)), "")

    def reason(self, process: str, needed: Callable[[str], bool]) -> Reason | None:
        """How it affects a process or its link to a slot that it needs; None if it does not."""
        if self.hits(process):
            return self.upon(process)
        other = self.parts(process, needed)
        return self.upon_link(process, other) if other else None

    def upon(self, process: str) -> Reason:
        """That it acted upon a process or a slot."""
        return Reason.of("{fault} acted upon {process}", fault=self.fault_id, process=_end(process))

    def upon_link(self, process: str, other: str) -> Reason:
        """That it acted upon the link of two processes or slots."""
        return Reason.of(
            "{fault} acted upon the link of {process} and {other}",
            fault=self.fault_id,
            process=_end(process),
            other=_end(other),
        )


def _end(name: str) -> Scope:
    return process_scope(name) if "#" in name else slot_scope(name)


@final
class Excuses(Struct):
    """The faults that act, and those that were healed."""

    now: dict[str, Excuse] = field(default_factory=dict)
    """The id of each fault that acts -> the fault."""
    healed: list[Excuse] = field(default_factory=list)
    """The others, in the order in which they were healed."""

    def take(self, event: Event) -> Excuse | None:
        """Applies an event; returns the fault that it ends."""
        match event.body:
            case FaultInjected() as body:
                self.now[body.fault_id] = Excuse(
                    body.fault_id,
                    began_ns(event),
                    # By the slot: a fault of a process names the process, and one of links names
                    # slots.
                    frozenset(map(slot_of, body.targets)),
                    body.pairs(),
                    severs=bool(body.acts(Effect.SEVERS)),
                    doubles=bool(body.acts(Effect.DOUBLES)),
                )
            # A heal of an unknown fault is passed over: its injection may be missing in a damaged
            # history.
            case FaultHealed(fault_id=fault_id) if fault_id in self.now:
                ended = replace(self.now.pop(fault_id), ended_ns=event.at_ns)
                self.healed.append(ended)
                return ended
        return None

    def since(self, from_ns: int) -> Iterator[Excuse]:
        """The faults that act, then those that acted at this time or later."""
        yield from self.now.values()
        yield from (one for one in self.healed if one.ended_ns is None or one.ended_ns >= from_ns)

    def on(self, *processes: str) -> Reason | None:
        """How the first fault that does so acts upon one of these processes, or upon a link between
        two of them; None if none does."""
        return next((reason for _, reason in self.among(processes)), None)

    def among(
        self, processes: tuple[str, ...], needed: Callable[[str], bool] = lambda slot: False
    ) -> Iterator[tuple[Excuse, Reason]]:
        """The faults that act upon one of these processes, upon a link between two of them, or upon
        a link from one of them to a slot that they need; each with what it does."""
        # A link between two of these processes counts as needed by both.
        slots = frozenset(map(slot_of, processes))
        for fault in self.now.values():
            reasons = (
                fault.reason(one, lambda slot: slot in slots or needed(slot)) for one in processes
            )
            reason = next(filter(None, reasons), None)
            if reason is not None:
                yield fault, reason
