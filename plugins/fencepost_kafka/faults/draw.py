"""The chance of a random schedule: which nodes, links and times a fault gets.

Nodes that hold authority are drawn most often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import final

from fencepost_kafka.faults.situation import Situation
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import Role


@final
@dataclass(slots=True)
class Draw:
    """A source of chance with the choices that a fault needs."""

    random: Random
    situation: Situation

    def one(self, several: Sequence[str]) -> str:
        return several[self.random.randrange(len(several))]

    def between(self, least: int, most: int) -> int:
        """A number of that range; the least one if a short lease leaves none above it."""
        return self.random.randint(least, max(least, most))

    def broker(self) -> str:
        """A leader, the newest incarnation, or any broker."""
        view, layout = self.situation.view, self.situation.layout
        names = {slot.node_id: slot.name for slot in layout.of(Role.BROKER)}
        leaders = [p.leader for p in view.of(KafkaView).partitions.values() if p.leader in names]
        newest = max(
            view.of(KafkaView).broker_offset,
            key=lambda b: view.of(KafkaView).broker_offset[b],
            default=-1,
        )
        draw = self.random.random()
        if leaders and draw < 0.6:
            return names[leaders[self.random.randrange(len(leaders))]]
        if newest in names and draw < 0.75:
            return names[newest]
        return self.one(sorted(names.values()))

    def controller(self) -> str:
        """The active controller, most often; a broker where there are no controllers."""
        active = self.active()
        if active is not None and self.random.random() < 0.7:
            return active
        return self.one(self.names(Role.CONTROLLER) or self.names(Role.BROKER))

    def active(self) -> str | None:
        """The slot of the active controller."""
        return next(iter(self.situation.asked(Role.CONTROLLER)), None)

    def node(self) -> str:
        return self.broker() if self.random.random() < 0.65 else self.controller()

    def another(self, than: str, role: Role) -> str:
        """Another node of that role with which the given node has traffic. If the given node leads
        or is the active controller, this is any node, otherwise the active controller or a
        leader."""
        names = [name for name in self.names(role) if name != than]
        asked = self.situation.asked(role)
        if than not in asked:
            names = [name for name in names if name in asked] or names
        return self.one(names or [than])

    def fetching(self) -> tuple[str, str] | None:
        """A node, and one that it fetches from continuously: the leader of a partition of which the
        node is an in-sync follower, or the active controller, unless servers keep the metadata."""
        pairs = self.situation.following
        in_quorum = not self.situation.servers
        if pairs and (not in_quorum or self.random.random() < 0.6):
            return pairs[self.random.randrange(len(pairs))]
        if not in_quorum:
            return None
        target = self.active() or self.controller()
        others = [name for name in self.situation.members if name != target]
        return self.one(others or [target]), target

    def commanded(self) -> tuple[str, str]:
        """The active controller, and another broker, which it commands."""
        controller = self.active() or self.controller()
        others = [name for name in self.names(Role.BROKER) if name != controller]
        return controller, self.one(others or [controller])

    def fate(self) -> Mapping[str, object]:
        """What happens to a request that is chosen."""
        action = ("hold", "drop", "delay")[self.between(0, 2)]
        delay_ms = self.situation.timing.lease_ms // 4
        return {
            "action": action,
            **({"delay_ms": delay_ms} if action == "delay" else {}),
            **({"outlives": False} if self.situation.layout.logs_in else {}),
        }

    def names(self, role: Role) -> Sequence[str]:
        return [slot.name for slot in self.situation.layout.of(role)]

    def around_lease(self) -> int:
        """A time well within the lease, close to its end, or after it."""
        lease_ms = self.situation.timing.lease_ms
        least, most = ((5, 40), (80, 120), (130, 220))[self.random.randrange(3)]
        return lease_ms * self.between(least, most) // 100
