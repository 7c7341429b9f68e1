"""A broker node: it observes the quorum's log, holds a lease, replicates, and serves clients."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fencepost import Cause, NodeStopped
from fencepost_clusters.reference.core.cluster.data_plane import DataPlane
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
    Recovered,
    Reply,
    ShutdownAsked,
    Tick,
)
from fencepost_clusters.reference.core.node.process import Process
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.broker import isr_requests
from fencepost_clusters.reference.core.quorum.broker.isr_requests import AlterIsr
from fencepost_clusters.reference.core.quorum.broker.lifecycle import Identity, Lifecycle
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.changes import CHANGES
from fencepost_clusters.reference.core.quorum.metadata.committed import Committed
from fencepost_clusters.reference.core.quorum.metadata.snapshots import Snapshots
from fencepost_clusters.reference.core.quorum.metrics import Metrics
from fencepost_clusters.reference.core.quorum.policies import QuorumPolicies
from fencepost_clusters.reference.core.quorum.raft.electorate import Electorate
from fencepost_clusters.reference.core.quorum.raft.metadata_log import MetadataLog, Snapshot
from fencepost_clusters.reference.core.quorum.raft.raft import Raft
from fencepost_clusters.reference.core.quorum.raft.timing import Member, Vote, raft_timing
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import MetricsReported

_OF_MESSAGES: Final = frozenset({m.FetchRequest, m.ProduceRequest})
"""The requests that concern messages alone."""


class BrokerNode:
    """See the module: `handle(input, now) -> effects`, and `deadline_ns()` says when to Tick."""

    def __init__(
        self,
        settings: Settings,
        log: MetadataLog,
        process: Process,
        policies: QuorumPolicies,
    ) -> None:
        now = process.started
        self.settings = settings
        self._policies = policies.broker
        self._out = process.start("broker", settings.node_id, log.end)
        self.log = log
        electorate = Electorate({}, settings.bootstrap, policies.raft, self._out)
        self.raft = Raft(
            member=Member(settings.node_id, raft_timing(settings), process.chance, policies.raft),
            electorate=electorate,
            log=self.log,
            # A broker stores no vote. Its log's last epoch is the newest that it can prove.
            vote=Vote(max(0, self.log.last_epoch)),
            out=self._out,
            now=now,
        )
        controllers = electorate.voters
        self.committed = Committed(self._out, log, "broker")
        self.snapshots = Snapshots(settings, log, policies.metadata, self._out)
        self.lifecycle = Lifecycle(
            settings=settings,
            identity=Identity(
                process.incarnation,
                tuple(m.Listener(name=n, host=h, port=p) for n, h, p in process.site.endpoints()),
            ),
            controllers=controllers,
            policies=policies.broker,
            out=self._out,
            now=now,
        )
        self.forwarding = Forwarding(settings, controllers, CHANGES, self._out)
        self.data = DataPlane(
            settings,
            self.lifecycle,
            isr_requests=AlterIsr(settings, controllers, self.raft, self.lifecycle, self._out),
            changes=self.forwarding,
            policies=policies,
            out=self._out,
        )
        # The partitions whose records were replayed since the replicas adopted them last. They wait
        # here until this process is the broker of its id.
        self._changed: set[tuple[UUID, int]] = set()
        self._due_ns = now.monotonic_ns
        # When a part is due that does not replicate messages; `_due_ns` is that, or the data
        # plane's time if it is earlier.
        self._coordination_ns = now.monotonic_ns
        self.metrics = Metrics("broker", settings.node_id, policies.metadata, self._out, now)
        self.data.recover()

    # ------------------------------------------------------------------------------------- driver

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        """One step. If the input arrives after the deadline, the Tick is done first."""
        try:
            self._step(what, now)
        except OtherHistory as found:
            self._out.end(f"the metadata log cannot be read on: {found}", EXIT_UNREADABLE)
        return self._out.drain()

    def _step(self, what: Input, now: Instant) -> None:
        # What is due comes before the input (rule 3 of `lifecycle.py`): a broker that was paused
        # past its lease refuses the request that woke it.
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
            self._stop(now)

    def _replicate(self, what: Input, now: Instant) -> bool:
        """Handles an input that concerns messages alone; False if it is another one.

        Such inputs are by far the most, and no other part of this broker can be due after one.
        """
        if type(what) is Received and type(what.message) in _OF_MESSAGES:
            self._request(what, now)
            return True
        if type(what) is Answered and type(what.message) is m.FetchResponse:
            return self.data.following.answered(what.call_id, what.message, now)
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
                self.data.take_disk(what)
                self.lifecycle.recovered()
            case ShutdownAsked():
                self.lifecycle.stop(now)
        self._follow_metadata(now)
        self.metrics.observe(self.raft, self.committed, self.snapshots.last_offset, now)
        self._coordination_ns = self._coordination_due_ns()

    def _finish_step(self, now: Instant) -> None:
        """Answers what can be answered now, and sets the time of the next Tick."""
        self.data.settle(self.committed.image, now)
        self._due_ns = no_later(self._coordination_ns, (self.data.deadline_ns(),))

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
            # Before the metadata is followed and before waiting requests are looked at: nothing is
            # acknowledged as committed any more from the moment at which the lease ends (QC-17).
            self._fail_unserved(now)
            self.forwarding.tick(now, leader)
            self._follow_metadata(now)
            self._coordination_ns = self._coordination_due_ns()
        self.data.tick(self.committed.image, now)

    def _fail_unserved(self, now: Instant) -> None:
        """Once it serves no client, answers the waiting client requests, none as committed."""
        if not self.lifecycle.serving(now):
            self.data.producing.fail_all(now)

    def _stop(self, now: Instant) -> None:
        self.data.stop(now)
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
        # Four steps in this order. The process takes part once its own registration is replayed,
        # and only then: until then the metadata speaks of a former process with this id. It leaves
        # if the broker is deleted, or if another process has the id. At last its replicas adopt
        # what has changed.
        mine = image.brokers.get(self.settings.node_id)
        holds = mine is not None and mine.incarnation == self.lifecycle.incarnation
        if holds and not self.data.takes_part and self.data.recovered:
            self.data.join()
            # Its replicas may have missed changes before.
            self._changed.update(
                (one.topic_id, one.index)
                for one in image.all_partitions()
                if self.settings.node_id in one.replicas
            )
            # By the image that has this registration: a log of a partition that was deleted, or
            # moved away, while this broker was down belongs to nothing (RP-25).
            self.data.replicas.delete_strays(image)
            # The next heartbeat says that the registration is replayed, which the controller waits
            # for.
            self.lifecycle.hurry(now)
        if self.data.takes_part and mine is None:
            self.lifecycle.deleted(now)
            self.data.leave("unassigned")
        if self.data.takes_part and self._policies.has_lost_id(mine, self.lifecycle.incarnation):
            self.lifecycle.taken_over()
            self.data.leave("taken_over")
        if self.data.takes_part:
            changed, self._changed = self._changed, set()
            self.data.replicas.adopt(image, changed, now)
            self.data.following.hurry(now)

    def _replaced(self, snapshot: Snapshot) -> None:
        """The metadata was replaced by a snapshot: any part of it may have changed."""
        self.snapshots.replaced(snapshot)
        image = self.committed.image
        self._changed.update(self.data.replicas.by_key)
        self._changed.update((one.topic_id, one.index) for one in image.all_partitions())
        for one in self.data.replicas.all():
            # A registration may be in the snapshot that this broker never saw as a record.
            for broker in image.brokers:
                one.forget(broker)

    def _replayed(self, record: r.Record, offset: int) -> None:
        match record:
            case r.PartitionRecord() | r.IsrChangeRecord():
                assert record.topic_id is not None
                self._changed.add((record.topic_id, record.partition_id))
            case r.DeleteTopicRecord():
                # The image has no partition of the topic any more: the replicas themselves say
                # which there were.
                self._changed.update(k for k in self.data.replicas.by_key if k[0] == record.name)
            case r.BrokerRecord():
                known = self.committed.image.brokers[record.broker_id]
                # A new process with this id: what its predecessor had fetched proves nothing about
                # its disk.
                if known.registered_at == offset:
                    for one in self.data.replicas.all():
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
            # The active controller's word about itself. Otherwise this observer would go on
            # fetching from a controller that is silent until the fetch times out.
            match what.message:
                case m.BrokerHeartbeatResponse(error_code=Error.NONE) as granted:
                    epoch, leader = granted.controller_epoch, granted.active_controller_id
                    self.raft.learn_leader(epoch, leader, now)
            return
        if self.data.replicas.is_isr_request(what.call_id):
            self.data.replicas.answered(what.call_id, isr_requests.outcome(what.message), now)
            return
        self.raft.answered(what.call_id, what.message, now)
        self.forwarding.answered(what.call_id, what.message, now)

    def _failed(self, what: CallFailed, now: Instant) -> None:
        self.lifecycle.failed(what.call_id, now)
        self.raft.failed(what.call_id, now)
        self.data.failed(what.call_id, now)
        self.forwarding.failed(what.call_id, now)

    # ------------------------------------------------------------------------------------ requests

    def _request(self, received: Received, now: Instant) -> None:
        cause = Cause(process=received.client, seq=received.correlation, request=True)
        with self._out.caused_by(cause):
            self._dispatch(received, now)

    def _dispatch(self, received: Received, now: Instant) -> None:
        if received.listener == "REPLICATION":
            self._from_node(received, now)
        else:
            self.data.client_request(received, self.committed.image, now)

    def _from_node(self, received: Received, now: Instant) -> None:
        message = received.message
        match message:
            case m.FetchRequest():
                self.data.fetching.fetch(received, message, self.committed.image, now)
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
