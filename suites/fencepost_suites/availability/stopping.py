"""A node of a Kafka cluster that is asked to end does so soon, unless a fault keeps it from those
that it must tell.

Before it ends, a broker hands its leaderships over, which takes the servers that decide about them.
So the clock of the bound stands still while a fault acts upon the node, upon its link with the one
of these that acts, or leaves no majority of them. The rule of any system
(`fencepost_plugins.stopping`) knows no such servers, and excuses more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Event, Findings, Reason, on, slot_of
from fencepost_plugins.stopping import EndsWhenAsked, Stops
from fencepost_suites.availability.surroundings import SURROUNDINGS, Surroundings


@dataclass(slots=True)
class _Deciders:
    """The servers that decide about brokers, around a node that was asked to end."""

    around: Surroundings = field(default_factory=Surroundings)

    def take(self, event: Event) -> None:
        """Applies an event."""
        self.around.take(event)

    def keeps(self, process: str) -> Reason | None:
        """What keeps a process from ending; a server that decides tells none before."""
        deciders = self.around.deciders()
        decides = slot_of(process) in deciders
        # Of those that decide, it tells the one that acts: a slow link to a standby kept nobody.
        needed = frozenset() if decides else self.around.relied()
        upon = self.around.faults.among((process,), needed.__contains__)
        by_fault = next((why for _, why in upon), None)
        return by_fault or (None if decides else self.around.undecided())

    def needs(self, process: str) -> Collection[str]:
        """The slots of the process and of those that decide."""
        return {slot_of(process), *self.around.deciders()}


@final
class BrokersEndWhenAsked(EndsWhenAsked):
    """AVAIL-stopped, for systems whose servers that decide about brokers are known: a broker that
    is asked to end tells them first, and waits while none of them can decide. Exercised by each
    process that ends within the bound."""

    around = _Deciders

    @on(*SURROUNDINGS)
    def step(self, state: Stops, event: Event, body: Struct) -> Findings:
        return super().step(state, event, body)
