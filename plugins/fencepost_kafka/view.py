"""The state of a Kafka cluster by its events: leaders, leases, committed metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from fencepost import (
    HARMS_DISK,
    Administered,
    Effect,
    Event,
    FaultInjected,
    ProcessExited,
    ProcessSpawned,
    View,
    slot_of,
)
from fencepost_kafka import events as e

TopicPartition = tuple[str, int]
"""A topic's name and a partition's number."""
REMOVE_BROKER = "remove_broker"
"""The operation of a schedule that removes a broker for good."""


def is_internal(topic: str) -> bool:
    """Whether a topic is Kafka's own."""
    return topic.startswith("_")


@dataclass(slots=True)
class PartitionView:
    """A partition as its newest committed record has it."""

    offset: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    serving: int | None = None
    """The broker that last reported to serve as leader, in `serving_epoch`."""
    serving_epoch: int = -1
    log_end: int = 0
    """The end of the leader's log and its high watermark, as last reported."""
    high_watermark: int = 0


@dataclass(slots=True)
class KafkaView:
    """The state of a Kafka cluster by its events. All dictionaries are keyed by the names and ids
    that the events use."""

    active_controller: int | None = None
    controller_epoch: int = -1
    controller_process: str = ""
    """The process that became the controller of that epoch."""
    state: dict[str, str] = field(default_factory=dict)
    """broker process -> its own KIP-631 state."""
    fenced: dict[int, bool] = field(default_factory=dict)
    """broker id -> fenced, by the newest committed record."""
    deleted_at: dict[int, int] = field(default_factory=dict)
    """broker id -> the offset of its newest deletion."""
    removed: set[str] = field(default_factory=set)
    """The slots of brokers that an administrator removes for good, by the harness's word."""
    incarnation: dict[int, str] = field(default_factory=dict)
    broker_epoch: dict[int, int] = field(default_factory=dict)
    broker_offset: dict[int, int] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    """live topic -> topic id."""
    deleted: dict[str, int] = field(default_factory=dict)
    """topic -> the offset of its newest deletion: an older record is about the deleted topic."""
    partitions: dict[TopicPartition, PartitionView] = field(default_factory=dict)
    early: dict[TopicPartition, tuple[int, e.LeadershipStarted]] = field(default_factory=dict)
    """For partitions without a record so far: the broker that began to serve last."""
    checkpointed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(process, topic, partition) -> the high watermark it checkpointed last."""
    flushed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(broker process, topic, partition) -> the offset up to which its log is synced, as
    reported."""
    applied: dict[str, int] = field(default_factory=dict)
    """process -> offset of the newest metadata record it replayed."""
    committed: int = -1
    """The offset of the newest metadata record that any node has reported as committed."""
    invoked: Counter[str] = field(default_factory=Counter)
    """client process -> produces invoked."""
    completed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(client process, outcome) -> produces completed."""
    polled: Counter[str] = field(default_factory=Counter)
    shown: dict[TopicPartition, int] = field(default_factory=dict)
    """The end of each partition by the offsets that clients got, or were acknowledged with
    acks=all."""
    read_completed: dict[TopicPartition, str] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    """The slots whose disk may have no messages of clients: a fault has harmed it, another process
    may have got its broker's id and the messages, or a replica dropped its whole log; and no
    process of the slot has reported messages since."""

    def registered(self, broker: int) -> bool:
        """Whether a broker is registered, by committed records."""
        return self.broker_offset.get(broker, -1) > self.deleted_at.get(broker, -1)

    def has_left(self, slot: str, view: View) -> bool:
        """Whether the broker of a slot was removed for good, and has stopped."""
        return slot in self.removed and view.newest.get(slot, "") not in view.alive

    def replicas_of(self, broker: int) -> Sequence[TopicPartition]:
        """The partitions that have a replica on a broker, or get one, in order."""
        return sorted(place for place, one in self.partitions.items() if broker in one.replicas)

    def apply(self, view: View, event: Event) -> None:
        """Applies one event."""
        handler = _HANDLERS.get(type(event.body))
        if handler is not None:
            handler(self, view, event, event.body)


def _exited(kafka: KafkaView, view: View, event: Event, body: ProcessExited) -> None:
    kafka.state.pop(body.ended, None)
    if body.ended != kafka.controller_process:
        return  # a duplicate has the controller's id, too
    # The end of a controller that is no broker does not change `active_controller`: whoever asks
    # checks whether `controller_process` lives.
    if view.ids.get((body.ended, "broker")) == kafka.active_controller:
        kafka.active_controller = None  # from a controller that is a broker too


def _elected(kafka: KafkaView, view: View, event: Event, body: e.ControllerElected) -> None:
    me = view.ids.get((event.process, "controller"))
    # Lines of two nodes come out of order: an older term that is reported later must not take the
    # place of the newer one.
    if body.epoch > kafka.controller_epoch and me is not None:
        kafka.controller_epoch = body.epoch
        kafka.active_controller, kafka.controller_process = me, event.process


def _resigned(kafka: KafkaView, view: View, event: Event, body: e.ControllerResigned) -> None:
    if body.epoch == kafka.controller_epoch:
        kafka.active_controller = None


def _began(kafka: KafkaView, view: View, event: Event, body: e.ControllerBegan) -> None:
    if body.epoch > kafka.controller_epoch:
        kafka.controller_epoch, kafka.active_controller = body.epoch, body.broker_id
        kafka.controller_process = event.process
        # A new controller declares only the brokers that it finds registered.
        living = {view.ids.get((process, "broker")) for process in view.alive}
        kafka.fenced |= {broker: True for broker in kafka.fenced if broker not in living}


def _ended(kafka: KafkaView, view: View, event: Event, body: e.ControllerEnded) -> None:
    if body.epoch == kafka.controller_epoch:
        kafka.active_controller = None


# A controller of a former term may go on declaring brokers until it learns of the next one: only
# the newest term's declarations count.
def _declared(kafka: KafkaView, view: View, event: Event, body: e.BrokerDeclared) -> None:
    if body.controller_epoch == kafka.controller_epoch:
        kafka.fenced[body.broker_id] = body.new not in ("Active", "Stopping")
        kafka.broker_epoch[body.broker_id] = body.incarnation_id


def _seen(kafka: KafkaView, view: View, event: Event, body: e.ClusterSeen) -> None:
    if body.controller_epoch >= kafka.controller_epoch:
        kafka.controller_epoch = body.controller_epoch
        kafka.active_controller = body.controller if body.controller >= 0 else None


def _state(kafka: KafkaView, view: View, event: Event, body: e.BrokerStateChanged) -> None:
    kafka.state[event.process] = body.new


def _broker(kafka: KafkaView, view: View, event: Event, body: e.BrokerCommitted) -> None:
    kafka.committed = max(kafka.committed, body.offset)
    # Each node that replays a record reports it, so an older one comes after a newer one.
    if body.offset > kafka.broker_offset.get(body.broker_id, -1):
        kafka.broker_offset[body.broker_id] = body.offset
        kafka.fenced[body.broker_id] = body.fenced
        kafka.incarnation[body.broker_id] = body.incarnation
        kafka.broker_epoch[body.broker_id] = body.broker_epoch


def _broker_deleted(kafka: KafkaView, view: View, event: Event, body: e.BrokerDeleted) -> None:
    kafka.committed = max(kafka.committed, body.offset)
    known = kafka.deleted_at.get(body.broker_id, -1)
    kafka.deleted_at[body.broker_id] = max(known, body.offset)


def _administered(kafka: KafkaView, view: View, event: Event, body: Administered) -> None:
    if body.operation == REMOVE_BROKER:
        kafka.removed.update(body.targets)


def _spawned(kafka: KafkaView, view: View, event: Event, body: ProcessSpawned) -> None:
    kafka.removed.discard(body.slot)


def _topic(kafka: KafkaView, view: View, event: Event, body: e.TopicCommitted) -> None:
    kafka.committed = max(kafka.committed, body.offset)
    if body.deleted:
        _gone(kafka, view, event, body)
    # A node that replays late reports the record of a topic that is deleted already.
    elif body.offset > kafka.deleted.get(body.topic, -1):
        kafka.topics[body.topic] = body.topic_id


def _gone(
    kafka: KafkaView, view: View, event: Event, body: e.TopicCommitted | e.TopicMarked
) -> None:
    """Removes a topic that was deleted, or marked as being deleted: no client sees it any more."""
    gone = kafka.deleted.get(body.topic, -1)
    kafka.deleted[body.topic] = max(body.offset, gone)
    # By the id, since the topic may have been made again before this word about the former one
    # came.
    if kafka.topics.get(body.topic) == body.topic_id:
        del kafka.topics[body.topic]
        _forget(kafka, [k for k in kafka.partitions if k[0] == body.topic])
    # Records may follow the mark of a topic that is being deleted; they are older than its end.
    _forget(
        kafka,
        [k for k, p in kafka.partitions.items() if k[0] == body.topic and p.offset < body.offset],
    )
    # A node that replays the deletion late may have begun to lead a deleted partition.
    me = view.ids.get((event.process, "broker"))
    for key in [
        k for k, (process, _) in kafka.early.items() if k[0] == body.topic and process == me
    ]:
        del kafka.early[key]


def _forget(kafka: KafkaView, places: Iterable[TopicPartition]) -> None:
    for place in places:
        del kafka.partitions[place]
        kafka.shown.pop(place, None)


def _partition(kafka: KafkaView, view: View, event: Event, body: e.PartitionCommitted) -> None:
    kafka.committed = max(kafka.committed, body.offset)
    # As for topics, a record of the deleted topic may be replayed late.
    if body.offset < kafka.deleted.get(body.topic, -1):
        return
    key = (body.topic, body.partition)
    known = kafka.partitions.get(key)
    if known is None:
        kafka.partitions[key] = PartitionView(
            offset=body.offset,
            leader=body.leader,
            leader_epoch=body.leader_epoch,
            isr=body.isr,
            replicas=body.replicas,
            adding=body.adding,
            removing=body.removing,
        )
        # The record is often reported by another node than the one that begins to lead, and so
        # after that.
        early = kafka.early.pop(key, None)
        if early is not None:
            _serves(kafka.partitions[key], *early)
    elif body.offset > known.offset:
        known.offset, known.leader, known.leader_epoch = (
            body.offset,
            body.leader,
            body.leader_epoch,
        )
        known.isr, known.replicas = body.isr, body.replicas
        known.adding, known.removing = body.adding, body.removing


def _harmed(kafka: KafkaView, view: View, event: Event, body: FaultInjected) -> None:
    if body.acts(*HARMS_DISK, Effect.DOUBLES):
        kafka.emptied.update(slot_of(target) for target in body.targets)


def _truncated(kafka: KafkaView, view: View, event: Event, body: e.LogTruncated) -> None:
    if body.to_offset == 0 and not is_internal(body.topic):
        kafka.emptied.add(slot_of(event.process))


def _following(kafka: KafkaView, view: View, event: Event, body: e.FollowingStarted) -> None:
    _stores(kafka, event, body)


def _stores(
    kafka: KafkaView, event: Event, body: e.LeadershipStarted | e.FollowingStarted | e.LogAppended
) -> None:
    """A process reports the end of one of its logs."""
    # A log of an internal topic says nothing: faults that damage a disk leave these out.
    if kafka.emptied and body.log_end > 0 and not is_internal(body.topic):
        kafka.emptied.discard(slot_of(event.process))


def _leading(kafka: KafkaView, view: View, event: Event, body: e.LeadershipStarted) -> None:
    _stores(kafka, event, body)
    key = (body.topic, body.partition)
    broker = view.ids.get((event.process, "broker"), -1)
    known = kafka.partitions.get(key)
    if known is not None:
        _serves(known, broker, body)
    else:
        kafka.early[key] = broker, body


def _serves(known: PartitionView, broker: int, body: e.LeadershipStarted) -> None:
    # An earlier leader may report late, or may not know yet that another one leads.
    if body.leader_epoch > known.serving_epoch:
        known.serving = broker
        known.serving_epoch = body.leader_epoch
        known.log_end, known.high_watermark = body.log_end, body.high_watermark


def _appended(kafka: KafkaView, view: View, event: Event, body: e.LogAppended) -> None:
    _stores(kafka, event, body)
    if body.as_leader:
        known = kafka.partitions.get((body.topic, body.partition))
        if known is not None and body.leader_epoch == known.serving_epoch:
            known.log_end = body.log_end


def _watermark(kafka: KafkaView, view: View, event: Event, body: e.HighWatermarkAdvanced) -> None:
    if body.as_leader:
        known = kafka.partitions.get((body.topic, body.partition))
        if known is not None and body.leader_epoch == known.serving_epoch:
            known.high_watermark = body.high_watermark


def _checkpointed(kafka: KafkaView, view: View, event: Event, body: e.ReplicaCheckpointed) -> None:
    kafka.checkpointed[event.process, body.topic, body.partition] = body.high_watermark
    kafka.flushed[event.process, body.topic, body.partition] = body.flushed


def _metadata(
    kafka: KafkaView, view: View, event: Event, body: e.MetadataCommitted | e.MetadataApplied
) -> None:
    kafka.committed = max(kafka.committed, body.offset)
    kafka.applied[event.process] = body.offset


def _invoked(kafka: KafkaView, view: View, event: Event, body: e.ProduceInvoked) -> None:
    kafka.invoked[event.process] += 1


def _produced(kafka: KafkaView, view: View, event: Event, body: e.ProduceCompleted) -> None:
    kafka.completed[event.process, body.outcome] += 1
    # With acks=1 the leader alone has stored the message, and it may be lost with the leader.
    if body.acks == -1:
        _show(kafka, (body.topic, body.partition), body.offset)


def _polled(kafka: KafkaView, view: View, event: Event, body: e.Polled) -> None:
    kafka.polled[event.process] += len(body.offsets)
    _show(kafka, (body.topic, body.partition), max(body.offsets, default=-1))


def _show(kafka: KafkaView, place: TopicPartition, offset: int) -> None:
    if offset >= kafka.shown.get(place, 0):
        kafka.shown[place] = offset + 1


def _read(kafka: KafkaView, view: View, event: Event, body: e.ReadCompleted) -> None:
    kafka.read_completed[body.topic, body.partition] = body.outcome


_HANDLERS: dict[type[Struct], Callable[[KafkaView, View, Event, Any], None]] = {
    Administered: _administered,
    ProcessSpawned: _spawned,
    ProcessExited: _exited,
    FaultInjected: _harmed,
    e.ControllerElected: _elected,
    e.ControllerResigned: _resigned,
    e.ControllerBegan: _began,
    e.ControllerEnded: _ended,
    e.BrokerDeclared: _declared,
    e.BrokerStateChanged: _state,
    e.ClusterSeen: _seen,
    e.BrokerCommitted: _broker,
    e.BrokerDeleted: _broker_deleted,
    e.TopicCommitted: _topic,
    e.TopicMarked: _gone,
    e.PartitionCommitted: _partition,
    e.LeadershipStarted: _leading,
    e.FollowingStarted: _following,
    e.LogTruncated: _truncated,
    e.LogAppended: _appended,
    e.HighWatermarkAdvanced: _watermark,
    e.ReplicaCheckpointed: _checkpointed,
    e.MetadataCommitted: _metadata,
    e.MetadataApplied: _metadata,
    e.ProduceInvoked: _invoked,
    e.ProduceCompleted: _produced,
    e.Polled: _polled,
    e.ReadCompleted: _read,
}
