"""A node of a Kafka cluster, and conditions on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fencepost import Condition, Node, Slot, View, kind_name
from fencepost_kafka.events import ClusterSeen, HeartbeatAnswered, LeaseGranted
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import Role

_SEEN = kind_name(ClusterSeen)
_DISOWNED = ("DUPLICATE_BROKER_REGISTRATION", "STALE_BROKER_EPOCH")


@final
@dataclass(frozen=True, slots=True, order=True)
class KafkaNode:
    """A node, named by its slot. Conditions on it are about the newest process of the slot.

    `other` is set for a controller that shares a broker's process.
    """

    slot: Slot
    other: Role | None = None

    @property
    def name(self) -> str:
        """`broker-2`."""
        return self.slot.name

    @property
    def id(self) -> int:
        """2."""
        found = self.slot.id_as(self.role)
        assert found is not None, f"no {self.role} runs in {self}"
        return found

    @property
    def role(self) -> Role:
        """The role of the node: controller or broker."""
        return Role(self.other or self.slot.role)

    def __str__(self) -> str:
        return self.name

    def process(self, view: View) -> str:
        """Its newest process, alive or not; empty if it never had one."""
        return view.newest.get(self.name, "")

    @property
    def alive(self) -> Condition:
        """Its newest process runs."""
        return Node(self.slot).alive

    @property
    def started(self) -> Condition:
        """Its newest process has written `node.started`; a node of the reference listens by
        then."""
        return Node(self.slot).started

    @property
    def dead(self) -> Condition:
        """Its newest process has ended, or it never had one."""
        return Node(self.slot).dead

    @property
    def active(self) -> Condition:
        """The broker reports that it is ACTIVE."""
        return self._in_state("ACTIVE")

    @property
    def fenced(self) -> Condition:
        """The broker reports that it is FENCED."""
        return self._in_state("FENCED")

    @property
    def disowned(self) -> Condition:
        """The newest answer about its lease was that another process has its id or epoch."""

        def holds(view: View) -> bool:
            process = self.process(view)
            refusal = view.latest.get((process, "broker.heartbeat_refused"))
            granted = view.latest.get((process, "broker.lease_granted"))
            if refusal is None or getattr(refusal.body, "error", "") not in _DISOWNED:
                return False
            return granted is None or granted.node_seq < refusal.node_seq

        return Condition(f"{self} to be refused as no longer the owner of its id", holds)

    @property
    def refused(self) -> Condition:
        """A controller has refused a heartbeat of the broker, for another reason than being
        inactive."""

        def holds(view: View) -> bool:
            refusal = view.latest.get((self.process(view), "broker.heartbeat_refused"))
            error = getattr(refusal.body, "error", "") if refusal is not None else ""
            return error not in ("", "NOT_CONTROLLER")

        return Condition(f"{self} to be refused", holds)

    @property
    def fenced_by_controller(self) -> Condition:
        """The broker is fenced in the committed metadata."""
        return Condition(
            f"{self} to be fenced in the metadata",
            lambda view: view.of(KafkaView).fenced.get(self.id, False),
        )

    @property
    def caught_up(self) -> Condition:
        """The node has replayed every metadata record that any node has reported as committed.

        If nodes replay no records, as over ZooKeeper, it always holds.
        """

        def holds(view: View) -> bool:
            known = view.of(KafkaView)
            reached = known.applied.get(self.process(view), -1) >= known.committed
            return reached or not known.applied

        return Condition(f"{self} to have replayed all committed metadata", holds)

    @property
    def renewed(self) -> Condition:
        """The broker's newest lease is of the active controller. Where brokers report no leases,
        the active controller has just answered its heartbeat."""

        def holds(view: View) -> bool:
            known = view.of(KafkaView)
            if known.active_controller is None:
                return False
            lease = view.latest.get((self.process(view), kind_name(LeaseGranted)))
            if lease is not None and isinstance(lease.body, LeaseGranted):
                return lease.body.controller_epoch == known.controller_epoch
            heard = view.latest.get((known.controller_process, kind_name(HeartbeatAnswered)))
            return (
                heard is not None
                and isinstance(heard.body, HeartbeatAnswered)
                and (heard.body.broker_id, heard.body.error) == (self.id, "NONE")
            )

        return Condition(f"{self} to hold a lease of the active controller", holds)

    @property
    def elected(self) -> Condition:
        """It was the last controller to report that it is the active one."""
        return Condition(
            f"{self} to be the active controller",
            lambda view: (
                self.role is Role.CONTROLLER and view.of(KafkaView).active_controller == self.id
            ),
        )

    @property
    def from_snapshot(self) -> Condition:
        """Its newest process has rebuilt its metadata from a snapshot."""
        return Condition(
            f"{self} to load a snapshot",
            lambda view: (self.process(view), "snapshot.loaded") in view.latest,
        )

    def refused_with(self, error: str) -> Condition:
        """The newest refusal of its heartbeats has this error."""

        def holds(view: View) -> bool:
            refusal = view.latest.get((self.process(view), "broker.heartbeat_refused"))
            return refusal is not None and getattr(refusal.body, "error", "") == error

        return Condition(f"{self} to be refused with {error}", holds)

    def leads(self, topic: str, partition: int) -> Condition:
        """The broker serves as the partition's leader, in its newest epoch."""
        return Condition(
            f"{self} to lead {topic}-{partition}",
            lambda view: serving(view, topic, partition) == self.id,
        )

    def in_sync(self, topic: str, partition: int) -> Condition:
        """The broker is in the partition's committed ISR."""

        def holds(view: View) -> bool:
            known = view.of(KafkaView).partitions.get((topic, partition))
            return known is not None and self.id in known.isr

        return Condition(f"{self} to be in the ISR of {topic}-{partition}", holds)

    def checkpointed(self, topic: str, partition: int) -> Condition:
        """The broker's process has stored a high watermark above 0 of its replica."""
        return Condition(
            f"{self} to checkpoint {topic}-{partition}",
            lambda view: (
                view.of(KafkaView).checkpointed.get((self.process(view), topic, partition), 0) > 0
            ),
        )

    def _in_state(self, state: str) -> Condition:
        return Condition(
            f"{self} to be {state}",
            lambda view: view.of(KafkaView).state.get(self.process(view)) == state,
        )


def serving(view: View, topic: str, partition: int) -> int | None:
    """The broker that leads in the committed metadata and has begun to serve in that epoch, if
    brokers say so."""
    known = view.of(KafkaView).partitions.get((topic, partition))
    if known is not None and view.kinds[_SEEN]:
        # Of this cluster no more is known than what its nodes tell clients.
        return known.leader if known.leader >= 0 else None
    if known is None or known.serving != known.leader or known.serving_epoch < known.leader_epoch:
        return None
    return known.leader
