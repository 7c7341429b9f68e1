"""A Kafka cluster as a test sees it: controllers, brokers, leaders, and the only way to wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from fencepost import Cluster, ClusterRecovered, Condition, Event, Slot, UsageError, View
from fencepost_kafka.facade.node import KafkaNode, serving
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import Role, Timing


@final
class KafkaCluster:
    """The cluster under test, with Kafka's terms. Waiting is the framework's `Cluster`."""

    def __init__(self, base: Cluster, timing: Timing, *, topics: str = "") -> None:
        """`topics` is what the names of all topics begin with that clients of the run may touch."""
        self._base = base
        self.topics = topics
        """What the names begin with of all topics that clients of the run may touch; empty where
        the whole cluster is the run's."""
        self.timing = timing
        """The bounds of this cluster's configuration, in milliseconds."""

    @property
    def base(self) -> Cluster:
        """The framework's own cluster."""
        return self._base

    @property
    def brokers(self) -> tuple[KafkaNode, ...]:
        """Every broker, without duplicates and spares."""
        return self._of(Role.BROKER)

    @property
    def controllers(self) -> tuple[KafkaNode, ...]:
        """Every controller, without duplicates and spares."""
        return self._of(Role.CONTROLLER)

    def node(self, name: str) -> KafkaNode:
        """The node of that name, duplicates too; raises UsageError with the nearest one."""
        return KafkaNode(self._base.node(name).slot)

    def start(self, node: KafkaNode) -> None:
        """See `Cluster.start`."""
        self._base.start(node)

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """See `Cluster.effective`."""
        return self._base.effective(properties)

    @property
    def recovered(self) -> Condition:
        """Every broker is active, every partition led, every ISR full, and no duplicate runs."""
        return self._base.recovered

    def holds(self, condition: Condition) -> bool:
        """See `Cluster.holds`."""
        return self._base.holds(condition)

    def eventually(self, condition: Condition, within_ms: int | None = None) -> Event:
        """See `Cluster.eventually`."""
        return self._base.eventually(condition, within_ms)

    def comes_to(self, condition: Condition, within_ms: int | None = None) -> bool:
        """See `Cluster.comes_to`."""
        return self._base.comes_to(condition, within_ms)

    def await_recovery(self) -> ClusterRecovered:
        """See `Cluster.await_recovery`."""
        return self._base.await_recovery()

    @property
    def active_controller(self) -> KafkaNode:
        """The active controller, once there is one."""
        found = self._base.found(
            "an active controller", lambda view: view.of(KafkaView).active_controller
        )
        return self._by_id(Role.CONTROLLER, found)

    @property
    def led_by_controllers(self) -> Condition:
        """Some live controller is the active one."""

        def holds(view: View) -> bool:
            slots = self._base.runtime.layout.of(Role.CONTROLLER, spares=True)
            return any(
                slot.id_as(Role.CONTROLLER) == view.of(KafkaView).active_controller
                and view.newest.get(slot.name, "") in view.alive
                for slot in slots
            )

        return Condition("a live controller to be active", holds)

    def another_controller(self, old: KafkaNode) -> Condition:
        """Some other controller reports that it is the active one."""
        return Condition(
            f"a controller other than {old} to be active",
            lambda view: view.of(KafkaView).active_controller not in (None, old.id),
        )

    def leader(self, topic: str, partition: int) -> KafkaNode:
        """The broker that serves as the partition's leader; waits until there is one."""
        wanted = self.led(topic, partition).description
        found = self._base.found(wanted, lambda view: serving(view, topic, partition))
        return self._by_id(Role.BROKER, found)

    def followers(self, topic: str, partition: int) -> tuple[KafkaNode, ...]:
        """The other replicas of the partition, in its order."""
        leader = self.leader(topic, partition)
        replicas = self._base.runtime.view.of(KafkaView).partitions[topic, partition].replicas
        return tuple(self._by_id(Role.BROKER, r) for r in replicas if r != leader.id)

    def led(self, topic: str, partition: int) -> Condition:
        """Some broker serves as the partition's leader, in its newest epoch."""
        return Condition(
            f"{topic}-{partition} to have a leader",
            lambda view: serving(view, topic, partition) is not None,
        )

    def another_leader(self, topic: str, partition: int, old: KafkaNode) -> Condition:
        """Some other broker serves as the partition's leader, in its newest epoch."""
        return Condition(
            f"a broker other than {old} to lead {topic}-{partition}",
            lambda view: serving(view, topic, partition) not in (None, old.id),
        )

    def leaderless(self, topic: str, partition: int) -> Condition:
        """The partition has no leader in the committed metadata."""

        def holds(view: View) -> bool:
            known = view.of(KafkaView).partitions.get((topic, partition))
            return known is not None and known.leader < 0

        return Condition(f"{topic}-{partition} to have no leader", holds)

    def next_flush(self, node: KafkaNode, topic: str, partition: int) -> Condition:
        """The broker reports that more of the partition's log is synced than before."""
        key = (node.process(self._base.runtime.view), topic, partition)
        before = self._base.runtime.view.of(KafkaView).flushed.get(key, 0)
        return Condition(
            f"{node} to flush more of {topic}-{partition}",
            lambda view: view.of(KafkaView).flushed.get(key, 0) > before,
        )

    @property
    def all_committed(self) -> Condition:
        """Every leader has reported that everything it stored is below its high watermark.

        For a system whose nodes report no watermarks this holds at once.
        """

        def holds(view: View) -> bool:
            if not view.kinds["replica.high_watermark"]:
                return True
            return all(
                p.high_watermark >= p.log_end for p in view.of(KafkaView).partitions.values()
            )

        return Condition("everything stored to be committed", holds)

    def assigned(
        self, topic: str, partition: int, replicas: Sequence[KafkaNode | int]
    ) -> Condition:
        """The partition has these replicas, in this order, and no reassignment is under way."""
        wanted = tuple(r.id if isinstance(r, KafkaNode) else r for r in replicas)

        def holds(view: View) -> bool:
            known = view.of(KafkaView).partitions.get((topic, partition))
            moving = known is not None and (known.adding or known.removing)
            return known is not None and not moving and known.replicas == wanted

        return Condition(f"{topic}-{partition} to be on brokers {list(wanted)}", holds)

    def _of(self, role: Role) -> tuple[KafkaNode, ...]:
        return tuple(_node(slot, role) for slot in self._base.runtime.layout.of(role))

    def _by_id(self, role: Role, node_id: int) -> KafkaNode:
        slots = self._base.runtime.layout.of(role, spares=True)
        (found,) = (slot for slot in slots if slot.id_as(role) == node_id)
        return _node(found, role)


def kafka_cluster(facade: object) -> KafkaCluster:
    """The facade of a Kafka cluster; raises UsageError for that of another system."""
    if not isinstance(facade, KafkaCluster):
        raise UsageError("this needs a cluster of Kafka's kind: its system has another facade")
    return facade


def _node(slot: Slot, role: Role) -> KafkaNode:
    return KafkaNode(slot, None if role == slot.role else role)
