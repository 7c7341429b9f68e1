"""Which controllers a majority of the voters reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    Event,
    Excuses,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    slot_of,
)
from fencepost_clusters.apache_kafka.log_memory import QuorumConfigured
from fencepost_kafka import ControllerElected, ControllerResigned
from fencepost_kafka.voter_sets import VOTER_KINDS, VoterSets


@final
@dataclass(slots=True)
class Voters:
    """The controllers, those that are active, and the links between them."""

    fetch_timeout_ns: int = 0
    processes: dict[str, str] = field(default_factory=dict)
    """The slot of each controller -> its living process (empty: it has none)."""
    active: dict[str, int] = field(default_factory=dict)
    """Each process that was elected and has not resigned -> its epoch. There may be several: one
    that is cut off, and its successor."""
    sets: VoterSets = field(default_factory=VoterSets)
    faults: Excuses = field(default_factory=Excuses)

    def learn(self, event: Event) -> None:
        """Applies an event of one of `QUORUM_KINDS`."""
        self.sets.take(event)
        match event.body:
            case QuorumConfigured() as body:
                self.fetch_timeout_ns = body.fetch_timeout_ms * MS
            case NodeStarted(role="controller"):
                self.processes[slot_of(event.process)] = event.process
            case ProcessExited() as body if self.processes.get(slot_of(body.ended)) == body.ended:
                self.processes[slot_of(body.ended)] = ""
                self.active.pop(body.ended, None)
            case FaultInjected(receipt=True) | FaultHealed():
                self.faults.take(event)
            case ControllerElected() as body:
                self.active[event.process] = body.epoch
            case ControllerResigned():
                self.active.pop(event.process, None)

    def unheard(self, listener: str) -> Iterator[str]:
        """The other controllers from which nothing reaches a slot: dead, stopped or cut off."""
        faults = self.faults.now.values()
        for slot, process in self.processes.items():
            silent = not process or any(
                one.hits(process) or (one.severs and (slot, listener) in one.directions)
                for one in faults
            )
            if slot != listener and silent:
                yield slot

    def starved(self, process: str) -> bool:
        """Whether a controller is unaffected itself, and no majority can reach it, whichever of
        the known sets of voters counts."""
        if any(one.hits(process) for one in self.faults.now.values()):
            return False
        return not self.sets.may_decide(self._heard(process), self.processes.keys())

    def may_be_starved(self, process: str) -> bool:
        """Whether it is so, or may be: no majority reaches it of the voters that it, or another
        controller that lives, has read last."""
        living = [one for one in self.processes.values() if one]
        return self.starved(process) or self.sets.may_lack(self._heard(process), living)

    def _heard(self, process: str) -> set[str]:
        """The controllers that reach one, and itself."""
        return self.processes.keys() - set(self.unheard(slot_of(process)))


QUORUM_KINDS: frozenset[type[Struct]] = frozenset(
    {
        *VOTER_KINDS,
        *(QuorumConfigured, NodeStarted, ProcessExited, FaultInjected, FaultHealed),
        *(ControllerElected, ControllerResigned),
    }
)
"""The kinds that `Voters` reads."""
