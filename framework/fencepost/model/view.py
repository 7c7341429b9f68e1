"""The state of a cluster as its events tell it: a fold, kept up to date as events arrive.

It is what conditions and faults ask: who leads, who is the active controller, which broker is
active. It knows only what nodes, clients and the harness wrote; it never asks a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from fencepost.events import kinds as e

TopicPartition = tuple[str, int]


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
    """The broker that last said it serves as leader, in `serving_epoch`."""
    serving_epoch: int = -1
    log_end: int = 0
    """The end of the leader's log and its high watermark, as it last told them."""
    high_watermark: int = 0


@dataclass(slots=True)
class View:
    """See the module. All dictionaries are keyed by the names and ids the events use."""

    count: int = 0
    last: e.Event | None = None
    active_controller: int | None = None
    controller_epoch: int = -1
    node_of: dict[str, tuple[str, int]] = field(default_factory=dict)
    """process -> (role, node id), from its newest node.started."""
    ids: dict[tuple[str, str], int] = field(default_factory=dict)
    """(process, role) -> node id: a process may be both broker and controller."""
    slot_of: dict[str, str] = field(default_factory=dict)
    """process -> slot, from process.spawned."""
    alive: set[str] = field(default_factory=set)
    newest: dict[str, str] = field(default_factory=dict)
    """slot -> newest process."""
    state: dict[str, str] = field(default_factory=dict)
    """broker process -> its own KIP-631 state."""
    fenced: dict[int, bool] = field(default_factory=dict)
    """broker id -> fenced, by the newest committed record."""
    incarnation: dict[int, str] = field(default_factory=dict)
    broker_epoch: dict[int, int] = field(default_factory=dict)
    broker_offset: dict[int, int] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    """live topic -> topic id."""
    deleted: dict[str, int] = field(default_factory=dict)
    """topic -> the offset of its newest deletion: what is older is of a topic that is gone."""
    partitions: dict[TopicPartition, PartitionView] = field(default_factory=dict)
    early: dict[TopicPartition, tuple[int, e.LeadershipStarted]] = field(default_factory=dict)
    """Who began to serve last, of partitions whose record was not heard of yet."""
    checkpointed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(process, topic, partition) -> the high watermark it checkpointed last."""
    flushed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(broker process, topic, partition) -> up to where it said that its log is synced."""
    applied: dict[str, int] = field(default_factory=dict)
    """process -> offset of the newest metadata record it replayed."""
    committed: int = -1
    """The offset of the newest committed metadata record that anybody told of."""
    invoked: Counter[str] = field(default_factory=Counter)
    """client process -> produces invoked."""
    completed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(client process, outcome) -> produces completed."""
    polled: Counter[str] = field(default_factory=Counter)
    read_completed: dict[TopicPartition, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    """event kind -> how often."""
    latest: dict[tuple[str, str], e.Event] = field(default_factory=dict)
    """(process, event kind) -> newest such event."""

    def apply(self, event: e.Event) -> None:
        """Takes one event in."""
        self.count += 1
        self.last = event
        kind = event.kind
        self.kinds[kind] += 1
        self.latest[event.process, kind] = event
        handler = _HANDLERS.get(type(event.body))
        if handler is not None:
            handler(self, event, event.body)


def _spawned(view: View, event: e.Event, body: e.ProcessSpawned) -> None:
    view.slot_of[body.started] = body.slot
    view.newest[body.slot] = body.started
    view.alive.add(body.started)


def _exited(view: View, event: e.Event, body: e.ProcessExited) -> None:
    view.alive.discard(body.ended)
    view.state.pop(body.ended, None)


def _started(view: View, event: e.Event, body: e.NodeStarted) -> None:
    view.node_of[event.process] = (body.role, body.node_id)
    view.ids[event.process, body.role] = body.node_id


def _elected(view: View, event: e.Event, body: e.ControllerElected) -> None:
    me = view.ids.get((event.process, "controller"))
    if body.epoch > view.controller_epoch and me is not None:
        view.controller_epoch = body.epoch
        view.active_controller = me


def _resigned(view: View, event: e.Event, body: e.ControllerResigned) -> None:
    if body.epoch == view.controller_epoch:
        view.active_controller = None


def _state(view: View, event: e.Event, body: e.BrokerStateChanged) -> None:
    view.state[event.process] = body.new


def _broker(view: View, event: e.Event, body: e.BrokerCommitted) -> None:
    view.committed = max(view.committed, body.offset)
    if body.offset > view.broker_offset.get(body.broker_id, -1):
        view.broker_offset[body.broker_id] = body.offset
        view.fenced[body.broker_id] = body.fenced
        view.incarnation[body.broker_id] = body.incarnation
        view.broker_epoch[body.broker_id] = body.broker_epoch


def _topic(view: View, event: e.Event, body: e.TopicCommitted) -> None:
    view.committed = max(view.committed, body.offset)
    gone = view.deleted.get(body.topic, -1)
    if not body.deleted:
        if body.offset > gone:
            view.topics[body.topic] = body.topic_id
        return
    view.deleted[body.topic] = max(body.offset, gone)
    if view.topics.get(body.topic) == body.topic_id:
        del view.topics[body.topic]
        for key in [k for k in view.partitions if k[0] == body.topic]:
            del view.partitions[key]
    # Who tells of it late may have begun to lead what was gone.
    me = view.ids.get((event.process, "broker"))
    for key in [k for k, (who, _) in view.early.items() if k[0] == body.topic and who == me]:
        del view.early[key]


def _partition(view: View, event: e.Event, body: e.PartitionCommitted) -> None:
    view.committed = max(view.committed, body.offset)
    if body.offset < view.deleted.get(body.topic, -1):
        return
    key = (body.topic, body.partition)
    known = view.partitions.get(key)
    if known is None:
        view.partitions[key] = PartitionView(
            body.offset, body.leader, body.leader_epoch, body.isr, body.replicas, body.adding,
            body.removing,
        )  # fmt: skip
        early = view.early.pop(key, None)
        if early is not None:
            _serves(view.partitions[key], *early)
    elif body.offset > known.offset:
        known.offset, known.leader, known.leader_epoch = (
            body.offset,
            body.leader,
            body.leader_epoch,
        )
        known.isr, known.replicas = body.isr, body.replicas
        known.adding, known.removing = body.adding, body.removing


def _leading(view: View, event: e.Event, body: e.LeadershipStarted) -> None:
    key = (body.topic, body.partition)
    broker = view.ids.get((event.process, "broker"), -1)
    known = view.partitions.get(key)
    if known is not None:
        _serves(known, broker, body)
    else:
        view.early[key] = broker, body


def _serves(known: PartitionView, broker: int, body: e.LeadershipStarted) -> None:
    if body.leader_epoch > known.serving_epoch:
        known.serving = broker
        known.serving_epoch = body.leader_epoch
        known.log_end, known.high_watermark = body.log_end, body.high_watermark


def _appended(view: View, event: e.Event, body: e.LogAppended) -> None:
    if body.as_leader:
        known = view.partitions.get((body.topic, body.partition))
        if known is not None and body.leader_epoch == known.serving_epoch:
            known.log_end = body.log_end


def _watermark(view: View, event: e.Event, body: e.HighWatermarkAdvanced) -> None:
    if body.as_leader:
        known = view.partitions.get((body.topic, body.partition))
        if known is not None and body.leader_epoch == known.serving_epoch:
            known.high_watermark = body.high_watermark


def _checkpointed(view: View, event: e.Event, body: e.ReplicaCheckpointed) -> None:
    view.checkpointed[event.process, body.topic, body.partition] = body.high_watermark
    view.flushed[event.process, body.topic, body.partition] = body.flushed


def _metadata(view: View, event: e.Event, body: e.MetadataCommitted | e.MetadataApplied) -> None:
    view.committed = max(view.committed, body.offset)
    view.applied[event.process] = body.offset


def _invoked(view: View, event: e.Event, body: e.ProduceInvoked) -> None:
    view.invoked[event.process] += 1


def _produced(view: View, event: e.Event, body: e.ProduceCompleted) -> None:
    view.completed[event.process, body.outcome] += 1


def _polled(view: View, event: e.Event, body: e.Polled) -> None:
    view.polled[event.process] += len(body.offsets)


def _read(view: View, event: e.Event, body: e.ReadCompleted) -> None:
    view.read_completed[body.topic, body.partition] = body.outcome


_HANDLERS: dict[type[Struct], Callable[[View, e.Event, Any], None]] = {
    e.ProcessSpawned: _spawned,
    e.ProcessExited: _exited,
    e.NodeStarted: _started,
    e.ControllerElected: _elected,
    e.ControllerResigned: _resigned,
    e.BrokerStateChanged: _state,
    e.BrokerCommitted: _broker,
    e.TopicCommitted: _topic,
    e.PartitionCommitted: _partition,
    e.LeadershipStarted: _leading,
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
