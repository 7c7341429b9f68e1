"""The sets of voters of the quorum that nodes have read, for rules that ask for a majority."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from msgspec import Struct, field

from fencepost import Event, NodeStarted
from fencepost_kafka.active_faults import slot_of
from fencepost_kafka.events import QuorumLearned

VOTER_KINDS: frozenset[type[Struct]] = frozenset({NodeStarted, QuorumLearned})
"""The events that `VoterSets.take` applies."""


@final
class VoterSets(Struct):
    """Every set of voters that a node has read. Which of them counted at a moment is for the leader
    of the quorum to know, so a majority of any may have decided. Where no node has read one, all
    controllers vote."""

    slots: dict[int, str] = field(default_factory=dict)
    """controller id -> its slot."""
    read: set[frozenset[int]] = field(default_factory=set)

    def take(self, event: Event) -> None:
        """Applies an event of one of `VOTER_KINDS`."""
        match event.body:
            case NodeStarted(role="controller", node_id=node_id):
                self.slots[node_id] = slot_of(event.process)
            case QuorumLearned(voters=voters) if voters:
                self.read.add(frozenset(voters))

    def may_decide(self, having: Collection[str], among: Collection[str]) -> bool:
        """Whether the first slots may be a majority of the voters among the second ones."""
        some, every = frozenset(having), frozenset(among)
        sets = [frozenset(self.slots.get(one, str(one)) for one in voters) for voters in self.read]
        return any(2 * len(voters & some) > len(voters & every) for voters in sets or [every])
