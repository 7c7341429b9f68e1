"""The sets of voters of the quorum that nodes have read, for rules that ask for a majority."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from msgspec import Struct, field

from fencepost import Event, NodeStarted, slot_of
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
    newest: dict[str, frozenset[int]] = field(default_factory=dict)
    """process -> the set that it has read last."""

    def take(self, event: Event) -> None:
        """Applies an event of one of `VOTER_KINDS`."""
        match event.body:
            case NodeStarted(role="controller", node_id=node_id):
                self.slots[node_id] = slot_of(event.process)
            case QuorumLearned(voters=voters) if voters:
                self.read.add(frozenset(voters))
                self.newest[event.process] = frozenset(voters)

    def may_decide(self, having: Collection[str], among: Collection[str]) -> bool:
        """Whether the first slots may be a majority of the voters among the second ones."""
        some, every = frozenset(having), frozenset(among)
        sets = [self._slots_of(voters) for voters in self.read]
        return any(2 * len(voters & some) > len(voters & every) for voters in sets or [every])

    def may_lack(self, having: Collection[str], readers: Collection[str]) -> bool:
        """Whether the first slots are no majority of the voters that one of these processes has
        read last: a set counts for its leader once that has stored it."""
        some = frozenset(having)
        sets = [self._slots_of(self.newest[one]) for one in readers if one in self.newest]
        return any(2 * len(voters & some) <= len(voters) for voters in sets)

    def _slots_of(self, voters: Collection[int]) -> frozenset[str]:
        return frozenset(self.slots.get(one, str(one)) for one in voters)
