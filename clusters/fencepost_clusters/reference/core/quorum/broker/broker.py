"""A broker node: it observes the quorum's log, holds a lease, replicates, and serves clients."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fencepost import Cause, NodeStarted, NodeStopped
from fencepost_clusters.reference.core.cluster.client_requests import (
    ClientRequests,
    Serving,
    refuse_fenced,
)
from fencepost_clusters.reference.core.cluster.forwarding import Forwarding
from fencepost_clusters.reference.core.cluster.image import OtherHistory
from fencepost_clusters.reference.core.node.deadlines import no_later
from fencepost_clusters.reference.core.node.effects import (
    EXIT_UNREADABLE,
    Answered,
    CallFailed,
    Close,
    Effect,
    Exit,
    Input,
    Instant,
    Received,
    Recover,
    Recovered,
    Reply,
    ShutdownAsked,
    Tick,
)
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.broker import isr_requests
from fencepost_clusters.reference.core.quorum.broker.isr_requests import AlterIsr
from fencepost_clusters.reference.core.quorum.broker.lifecycle import Identity, Lifecycle
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.changes import CHANGES
from fencepost_clusters.reference.core.quorum.metadata.committed import Committed
from fencepost_clusters.reference.core.quorum.metadata.snapshots import Snapshots
from fencepost_clusters.reference.core.quorum.metrics import Metrics
from fencepost_clusters.reference.core.quorum.process import Process
from fencepost_clusters.reference.core.quorum.raft.electorate import Electorate
from fencepost_clusters.reference.core.quorum.raft.metadata_log import MetadataLog, Snapshot
from fencepost_clusters.reference.core.quorum.raft.raft import Raft
from fencepost_clusters.reference.core.quorum.raft.timing import Member, Vote, raft_timing
from fencepost_clusters.reference.core.replication.fetching import Fetching
from fencepost_clusters.reference.core.replication.following import Following
from fencepost_clusters.reference.core.replication.producing import Producing
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import MetricsReported, RecoveryEnded, RecoveryStarted

_OF_MESSAGES: Final = frozenset({m.FetchRequest, m.ProduceRequest})
"""The requests that concern messages alone."""


class BrokerNode:
    """See the module: `handle(input, now) -> effects`, and `deadline_ns()` says when to Tick."""

    def __init__(
        self,
        settings: Settings,
        listeners: tuple[m.Listener, ...],
        log: MetadataLog,
        process: Process,
    ) -> None:
        policies, now = process.policies, process.started
        self.settings = settings
        self._policies = policies.broker
        self._out = process.outbox()
        self.log = log
        self._out.note(
            NodeStarted(
                role="broker",
                node_id=settings.node_id,
                incarnation=str(process.incarnation),
                log_end=self.log.end,
            )
        )
        electorate = Electorate({}, settings.bootstrap, policies.raft, self._out)
        self.raft = Raft(
            member=Member(settings.node_id, raft_timing(settings), process.chance, policies.raft),
            electorate=electorate,
            log=self.log,
            vote=Vote(max(0, self.log.last_epoch)),
            out=self._out,
            now=now,
        )
        controllers = electorate.voters
        self.committed = Committed(self._out, log, "broker")
        self.snapshots = Snapshots(settings, log, policies.metadata, self._out)
        self.lifecycle = Lifecycle(
            settings=settings,
            identity=Identity(process.incarnation, listeners),
            controllers=controllers,
            policies=policies.broker,
            out=self._out,
            now=now,
        )
        rules = policies.replication
        alter_isr = AlterIsr(settings, controllers, self.raft, self.lifecycle, self._out)
        self.replicas = Replicas(settings, alter_isr, rules, self._out)
        self.following = Following(settings, self.replicas, self.lifecycle, rules, self._out)
        self.producing = Producing(settings, self.replicas, self.lifecycle, rules, self._out)
        self.fetching = Fetching(
            self.replicas,
            session=self.lifecycle,
            refuse=lambda received: refuse_fenced(received, self.lifecycle, self._out),
            policies=rules,
            out=self._out,
        )
        self._changed: set[tuple[UUID, int]] = set()
        self._joined = False
        self._due_ns = now.monotonic_ns
        self._coordination_ns = now.monotonic_ns
        self.forwarding = Forwarding(settings, controllers, CHANGES, self._out)
        self._clients = ClientRequests(
            settings=settings,
            session=self.lifecycle,
            parts=Serving(self.replicas, self.producing, self.fetching, self.forwarding),
            requests=CHANGES,
            policies=policies.cluster.serving,
            out=self._out,
        )
        self.metrics = Metrics("broker", settings.node_id, policies.metadata, self._out, now)
        self._recovered = False
        self._out.note(RecoveryStarted(node_id=settings.node_id))
        self._out.add(Recover())

    # ------------------------------------------------------------------------------------- driver

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        """One step. If the input arrives after the deadline, the Tick is done first."""
        try:
            self._step(what, now)
        except OtherHistory as found:
            self._out.end(f"the metadata log cannot be read on: {found}", EXIT_UNREADABLE)
        return self._out.drain()

    def _step(self, what: Input, now: Instant) -> None:
        if now.monotonic_ns >= self._due_ns:
            self._tick(now)
        if not self._replicate(what, now):
            self._coordinate(what, now)
        self._finish_step(now)
        if now.monotonic_ns >= self._due_ns:
            # This step may have made another action due: the next fetch, a heartbeat, an ISR
            # change.
            self._tick(now)
            self._finish_step(now)
        if self.lifecycle.granted_shutdown:
            self._stop()

    def _replicate(self, what: Input, now: Instant) -> bool:
        """Handles an input that concerns messages alone; False if it is another one.

        Such inputs are by far the most, and no other part of this broker can be due after one.
        """
        if type(what) is Received and type(what.message) in _OF_MESSAGES:
            self._request(what, now)
            return True
        if type(what) is Answered and type(what.message) is m.FetchResponse:
            return self.following.answered(what.call_id, what.message, now)
        return False

    def _coordinate(self, what: Input, now: Instant) -> None:
        match what:
            case Tick():
                pass
            case Answered():
                self._answered(what, now)
            case Received():
                self._request(what, now)
            case CallFailed():
                self._failed(what, now)
            case Recovered():
                self._take_disk(what)
            case ShutdownAsked():
                self.lifecycle.stop(now)
        self._follow_metadata(now)
        self.metrics.observe(self.raft, self.committed, self.snapshots.last_offset, now)
        self._coordination_ns = self._coordination_due_ns()

    def _finish_step(self, now: Instant) -> None:
        """Answers what can be answered now, and sets the time of the next Tick."""
        self.producing.settle(now)
        self.fetching.release(self.committed.image, now)
        self._due_ns = no_later(
            self._coordination_ns,
            (
                self.producing.deadline_ns(),
                self.fetching.deadline_ns(),
                self.replicas.deadline_ns() if self._joined else None,
                self.following.deadline_ns() if self._joined else None,
            ),
        )

    def _take_disk(self, found: Recovered) -> None:
        """The recovery of the node's own disk is done; the broker registers only now (REG-02)."""
        batches = sum(len(entries) for entries in found.logs.values())
        self._out.note(
            RecoveryEnded(node_id=self.settings.node_id, logs=len(found.logs), batches=batches)
        )
        self.replicas.recovered(found)
        self._recovered = True
        self.lifecycle.recovered()

    def deadline_ns(self) -> int:
        """The monotonic time of the next Tick."""
        return self._due_ns

    def metrics_now(self) -> tuple[MetricsReported, ...]:
        """The newest metrics of this node."""
        return (self.metrics.latest,)

    def _coordination_due_ns(self) -> int:
        """When a part is due that does not replicate messages."""
        return no_later(
            self.raft.deadline_ns(),
            (
                self.lifecycle.deadline_ns(),
                self.forwarding.deadline_ns(),
                self.snapshots.deadline_ns(),
            ),
        )

    def _tick(self, now: Instant) -> None:
        if now.monotonic_ns >= self._coordination_ns:
            self.raft.tick(now)
            leader = self.raft.leader
            self.lifecycle.tick(now, leader, self.committed.applied)
            self._fail_unserved(now)
            self.forwarding.tick(now, leader)
            self._follow_metadata(now)
            self._coordination_ns = self._coordination_due_ns()
        if self._joined:
            self.replicas.tick(self.committed.image, now)
            self.following.tick(self.committed.image, now)

    def _fail_unserved(self, now: Instant) -> None:
        """Once it serves no client, answers the waiting client requests, none as committed."""
        if not self.lifecycle.serving(now):
            self.producing.fail_all(now)

    def _stop(self) -> None:
        self.replicas.retire_all("shutdown")
        if self.replicas.by_key:
            self.replicas.checkpoint()
        self._out.note(NodeStopped(reason="shut down"))
        self._out.add(Exit("shut down"))

    # ----------------------------------------------------------------------------------- metadata

    def _follow_metadata(self, now: Instant) -> None:
        news = self.committed.advance(self.log, self.raft.high_watermark, self._replayed)
        image = self.committed.image
        self.snapshots.tick(image, now)
        if not news:
            return
        if self.committed.was_replaced and self.log.snapshot is not None:
            self._replaced(self.log.snapshot)
        if self.snapshots.due(self.committed.applied):
            self.snapshots.start(image, now)
        mine = image.brokers.get(self.settings.node_id)
        holds = mine is not None and mine.incarnation == self.lifecycle.incarnation
        if holds and not self._joined and self._recovered:
            # Later records about this broker id are about this process.
            self._joined = True
            # Its replicas may have missed changes before.
            self._changed.update(
                (one.topic_id, one.index)
                for one in image.all_partitions()
                if self.settings.node_id in one.replicas
            )
            self.replicas.delete_strays(image)
            self.lifecycle.hurry(now)
        if self._joined and mine is None:
            self._joined = False
            self.lifecycle.deleted(now)
            self.replicas.retire_all("unassigned")
        if self._joined and self._policies.has_lost_id(mine, self.lifecycle.incarnation):
            self._joined = False
            self.lifecycle.taken_over()
            self.replicas.retire_all("taken_over")
        if self._joined:
            changed, self._changed = self._changed, set()
            self.replicas.adopt(image, changed, now)
            self.following.hurry(now)

    def _replaced(self, snapshot: Snapshot) -> None:
        """The metadata was replaced by a snapshot: any part of it may have changed."""
        self.snapshots.replaced(snapshot)
        image = self.committed.image
        self._changed.update(self.replicas.by_key)
        self._changed.update((one.topic_id, one.index) for one in image.all_partitions())
        for one in self.replicas.all():
            for broker in image.brokers:
                one.forget(broker)

    def _replayed(self, record: r.Record, offset: int) -> None:
        match record:
            case r.PartitionRecord() | r.IsrChangeRecord():
                assert record.topic_id is not None
                self._changed.add((record.topic_id, record.partition_id))
            case r.DeleteTopicRecord():
                self._changed.update(k for k in self.replicas.by_key if k[0] == record.name)
            case r.BrokerRecord():
                known = self.committed.image.brokers[record.broker_id]
                if known.registered_at == offset:
                    for one in self.replicas.all():
                        one.forget(record.broker_id)
            case _:
                pass

    # ------------------------------------------------------------------------------------ answers

    def _answered(self, what: Answered, now: Instant) -> None:
        before = self.lifecycle.state
        if self.lifecycle.answered(what.call_id, what.message, now):
            self._fail_unserved(now)
            if before is BrokerState.INITIAL and self.lifecycle.state is BrokerState.FENCED:
                self.snapshots.checkpoint(self.committed.image, now)  # REG-04
            match what.message:
                case m.BrokerHeartbeatResponse(error_code=Error.NONE) as granted:
                    epoch, leader = granted.controller_epoch, granted.active_controller_id
                    self.raft.learn_leader(epoch, leader, now)
            return
        if self.replicas.is_isr_request(what.call_id):
            self.replicas.answered(what.call_id, isr_requests.outcome(what.message), now)
            return
        self.raft.answered(what.call_id, what.message, now)
        self.forwarding.answered(what.call_id, what.message, now)

    def _failed(self, what: CallFailed, now: Instant) -> None:
        self.lifecycle.failed(what.call_id, now)
        self.raft.failed(what.call_id, now)
        self.following.failed(what.call_id, now)
        self.replicas.failed(what.call_id, now)
        self.forwarding.failed(what.call_id, now)

    # ------------------------------------------------------------------------------------ requests

    def _request(self, received: Received, now: Instant) -> None:
        cause = Cause(process=received.client, seq=received.correlation, request=True)
        with self._out.caused_by(cause):
            self._dispatch(received, now)

    def _dispatch(self, received: Received, now: Instant) -> None:
        if received.listener == "REPLICATION":
            self._from_node(received, now)
        elif self.lifecycle.serving(now):
            self._clients.handle(received, self.committed.image, now)
        else:
            refuse_fenced(received, self.lifecycle, self._out)

    def _from_node(self, received: Received, now: Instant) -> None:
        message = received.message
        match message:
            case m.FetchRequest():
                self.fetching.fetch(received, message, self.committed.image, now)
            case m.BrokerHeartbeatRequest():
                leader = -1 if self.raft.leader is None else self.raft.leader
                answer = m.BrokerHeartbeatResponse(
                    error_code=Error.NOT_CONTROLLER,
                    active_controller_id=leader,
                    next_state=BrokerState.UNKNOWN,
                    broker_epoch=-1,
                    lease_end_time_ms=-1,
                )
                self._out.add(Reply(received.request_id, answer))
            case m.ControllerHeartbeatRequest():
                refusal = m.ControllerHeartbeatResponse(error_code=Error.NOT_CONTROLLER)
                self._out.add(Reply(received.request_id, refusal))
            case _:
                self._out.add(Close(received.request_id, "no request for a broker"))
