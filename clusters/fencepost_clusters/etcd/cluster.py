"""An etcd cluster as a test sees it: members, their leader, and the only way to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fencepost import Cluster, Condition, Node, Slot, UsageError, View, kind_name
from fencepost_clusters.etcd.events import CampaignStarted
from fencepost_clusters.etcd.log_parser import MEMBER
from fencepost_clusters.etcd.view import EtcdView, leading_slot


@final
@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A member, named by its slot. Conditions on it are about the newest process of the slot."""

    slot: Slot

    @property
    def name(self) -> str:
        """`etcd-2`."""
        return self.slot.name

    @property
    def number(self) -> int:
        """2."""
        return self.slot.node_id

    def __str__(self) -> str:
        return self.name

    def process(self, view: View) -> str:
        """Its newest process, alive or not; empty if it never had one."""
        return view.newest.get(self.name, "")

    @property
    def alive(self) -> Condition:
        return Node(self.slot).alive

    @property
    def dead(self) -> Condition:
        return Node(self.slot).dead

    @property
    def serving(self) -> Condition:
        """It serves clients; it knew a leader when it began to."""
        return Condition(
            f"{self} to serve clients",
            lambda view: self.process(view) in view.of(EtcdView).ready,
        )

    @property
    def leading(self) -> Condition:
        """It leads, by its own log; a newer leader may have been elected meanwhile."""
        return Condition(
            f"{self} to lead", lambda view: self.process(view) in view.of(EtcdView).leading
        )

    @property
    def standing(self) -> Condition:
        """It has stood for election since it started."""
        return Condition(
            f"{self} to stand for election",
            lambda view: (self.process(view), kind_name(CampaignStarted)) in view.latest,
        )

    @property
    def leaderless(self) -> Condition:
        """It knows no leader."""
        return Condition(
            f"{self} to know no leader",
            lambda view: self.process(view) not in view.of(EtcdView).known_leader,
        )


@final
class EtcdCluster:
    """The cluster under test, with etcd's terms. To wait, and to ask whether something holds, is
    the framework's own: a facade has it from there."""

    def __init__(self, base: Cluster) -> None:
        self.base = base
        """The framework's own cluster."""
        self.recovered, self.holds = base.recovered, base.holds
        self.eventually, self.comes_to = base.eventually, base.comes_to

    @property
    def members(self) -> tuple[Member, ...]:
        """Every member, without duplicates."""
        return tuple(Member(slot) for slot in self.base.runtime.layout.of(MEMBER))

    def member(self, number: int) -> Member:
        """Member 2 is `etcd-2`; raises UsageError for a number without a member."""
        return self.node(f"etcd-{number}")

    def node(self, name: str) -> Member:
        """The member of that name, `etcd-2-duplicate` too; raises UsageError for no such one."""
        return Member(self.base.node(name).slot)

    def leader(self) -> Member:
        """The member that leads in the newest term, once there is one."""
        return self.node(self.base.found(self.led.description, leading_slot))

    def followers(self) -> tuple[Member, ...]:
        """Every member but the leader."""
        leader = self.leader()
        return tuple(member for member in self.members if member != leader)

    @property
    def led(self) -> Condition:
        """Some member leads."""
        return Condition("a member to lead", lambda view: leading_slot(view) is not None)

    def another_leader(self, old: Member) -> Condition:
        """A member other than this one leads, in a newer term."""
        return Condition(
            f"a member other than {old} to lead",
            lambda view: leading_slot(view) not in (None, old.name),
        )


def etcd_cluster(facade: object) -> EtcdCluster:
    """The facade of an etcd cluster; raises UsageError for that of another system."""
    if not isinstance(facade, EtcdCluster):
        raise UsageError("this needs a cluster of etcd: its system has another facade")
    return facade
