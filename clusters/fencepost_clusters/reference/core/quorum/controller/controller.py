"""A controller node: the quorum's log, and, while it leads, the decisions of the active controller.

Two images: the committed one, which every controller has, and, on the active controller, one that
runs ahead of it to the log's end. Decisions read the image that runs ahead. Every answer waits
until the log that it depends on is committed. At the end of the term the image that runs ahead is
dropped (QC-08, QC-09).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast
from uuid import UUID

from msgspec import Struct

from fencepost import Cause, NodeStopped
from fencepost_clusters.reference.core.cluster import reassigning, topics
from fencepost_clusters.reference.core.cluster.decisions import DecisionContext
from fencepost_clusters.reference.core.cluster.image import Image, OtherHistory
from fencepost_clusters.reference.core.node.deadlines import earlier
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
    Reply,
    ShutdownAsked,
    Tick,
)
from fencepost_clusters.reference.core.node.process import Process
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller import admission, registration
from fencepost_clusters.reference.core.quorum.controller.answers import Answers, balance_ms
from fencepost_clusters.reference.core.quorum.controller.changes import CHANGES
from fencepost_clusters.reference.core.quorum.controller.decision_context import (
    Quorum,
    QuorumContext,
)
from fencepost_clusters.reference.core.quorum.controller.registration import Leases
from fencepost_clusters.reference.core.quorum.controller.snapshot_coordination import (
    Coordination,
    Reporting,
)
from fencepost_clusters.reference.core.quorum.metadata import features
from fencepost_clusters.reference.core.quorum.metadata.committed import Committed
from fencepost_clusters.reference.core.quorum.metadata.snapshots import Snapshots
from fencepost_clusters.reference.core.quorum.metrics import Metrics
from fencepost_clusters.reference.core.quorum.policies import QuorumPolicies
from fencepost_clusters.reference.core.quorum.raft import messages as quorum_messages
from fencepost_clusters.reference.core.quorum.raft.electorate import Electorate
from fencepost_clusters.reference.core.quorum.raft.metadata_log import MetadataLog
from fencepost_clusters.reference.core.quorum.raft.raft import Raft
from fencepost_clusters.reference.core.quorum.raft.timing import Member, Vote, raft_timing
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import LeaseExpired, MetricsReported, StateReverted

_Serve = Callable[[Received, Any, Instant], None]
"""Serves the requests of one kind: the request as it came, its message, and the time."""


class ControllerNode:
    """See the module: `handle(input, now) -> effects`, and `deadline_ns()` says when to Tick."""

    def __init__(
        self,
        settings: Settings,
        log: MetadataLog,
        vote: Vote,
        process: Process,
        policies: QuorumPolicies,
    ) -> None:
        now = process.started
        self.settings = settings
        self._policies = policies.controller
        self._cluster = policies.cluster
        self._metadata_policies = policies.metadata
        self._out = process.start("controller", settings.node_id, log.end)
        self.log = log
        electorate = Electorate(settings.voters, (), policies.raft, self._out)
        self.raft = Raft(
            member=Member(settings.node_id, raft_timing(settings), process.chance, policies.raft),
            electorate=electorate,
            log=self.log,
            vote=vote,
            out=self._out,
            now=now,
        )
        self.committed = Committed(self._out, log, "controller")
        self.snapshots = Snapshots(settings, log, policies.metadata, self._out)
        # Set exactly during this controller's term, as is `_ahead`.
        self._coordination: Coordination | None = None
        self._reporting = Reporting(settings, electorate, self._out, now)
        # The image at the log's end, which only the active controller has. Decisions build on it:
        # of two requests to create one topic, the second one must be refused although the first one
        # is not committed yet.
        self._ahead: Image | None = None
        # The epoch of the term that goes on, or of the last one.
        self._led_epoch = -1
        self._leases = Leases()
        self._answers = Answers(settings, self.raft, self.committed, self._policies, self._out)
        # When every partition is looked at next, for reassignments and preferred leaders.
        self._next_check_ns = 0
        self._of_quorum: dict[type[Struct], _Serve] = {
            m.VoteRequest: self.raft.vote,
            m.BeginQuorumEpochRequest: self.raft.begin_epoch,
            m.EndQuorumEpochRequest: self.raft.end_epoch,
            m.FetchRequest: self.raft.fetch,
            m.FetchSnapshotRequest: self.raft.fetch_snapshot,
        }
        self._of_nodes: dict[type[Struct], _Serve] = {
            m.BrokerHeartbeatRequest: self._heartbeat,
            m.ControllerHeartbeatRequest: self._report,
        }
        self.metrics = Metrics("controller", settings.node_id, policies.metadata, self._out, now)

    # ------------------------------------------------------------------------------------- driver

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        """One step. If the input arrives after the deadline, the Tick is done first."""
        try:
            self._step(what, now)
        except OtherHistory as found:
            self._out.end(f"the metadata log cannot be read on: {found}", EXIT_UNREADABLE)
        return self._out.drain()

    def _step(self, what: Input, now: Instant) -> None:
        # What is due comes before the input. A heartbeat that arrives late, after its lease has
        # ended, finds the broker fenced; a leader that has lost its majority resigns before it
        # takes a request.
        self.raft.tick(now)
        self._follow_leadership(now)
        self._expire(now)
        ends = False
        match what:
            case Received():
                cause = Cause(process=what.client, seq=what.correlation, request=True)
                with self._out.caused_by(cause):
                    self._request(what, now)
            case Tick():
                pass
            case Answered():
                asked = self._reporting.answered(
                    what.call_id, what.message, self.snapshots.last_offset
                )
                if asked:
                    self.snapshots.start(self.committed.image, now, self.raft.epoch)
                elif asked is None:
                    handled = self.raft.answered(what.call_id, what.message, now)
                    assert handled, f"no part of this node made call {what.call_id}"
            case CallFailed():
                self._reporting.failed(what.call_id)
                self.raft.failed(what.call_id, now)
            case ShutdownAsked():
                # The term ends before the process does, so that its waiting requests are refused
                # and not dropped.
                self.raft.step_down(now)
                self._follow_leadership(now)
                self._out.note(NodeStopped(reason="asked to stop"))
                self._out.add(Exit("asked to stop"))
                ends = True
        # The input may have ended or begun a term. The log comes next, since the answers wait for
        # what is committed in it, and the snapshot last, since it is made of what was replayed.
        self._follow_leadership(now)
        self._follow_log()
        self._maintain(now)
        self._answers.send_committed()
        self._snapshot(now)
        if not ends:  # NodeStopped is its last event
            self.metrics.observe(self.raft, self.committed, self.snapshots.last_offset, now)

    def deadline_ns(self) -> int | None:
        """The monotonic time of the next Tick."""
        first_ns = earlier(self.raft.deadline_ns(), self.snapshots.deadline_ns())
        if self._ahead is None:
            return earlier(first_ns, self._reporting.deadline_ns(self.raft.leader))
        lease_ns = self._policies.leases.next_check_ns(self._leases.ends_ns)
        return earlier(first_ns, min(self._next_check_ns, lease_ns))

    def metrics_now(self) -> tuple[MetricsReported, ...]:
        """The newest metrics of this node."""
        return (self.metrics.latest,)

    @property
    def active(self) -> bool:
        """Whether this is the active controller."""
        return self._ahead is not None

    def _follow_leadership(self, now: Instant) -> None:
        """Begins or ends this controller's term if the quorum's leadership has changed."""
        if self._ahead is not None:
            if not self.raft.leading:
                self._leave()
        # A term begins with the image at the log's end: the committed one, and the records of
        # former leaders after it. This leader's own first record commits those, too.
        elif self.raft.leading:
            self._led_epoch = self.raft.epoch
            self._ahead = self.committed.image.copy()
            for batch in self.log.batches(self.committed.applied, self.log.end):
                for at, record in enumerate(batch.records, batch.base):
                    self._ahead.replay(record, at)
            # The former leader's leases are not known here. Each broker gets one full period, so no
            # lease that the former leader granted is cut short (QC-31).
            self._leases = registration.at_takeover(
                self._ahead, now, self.settings.lease_ms * 1_000_000, self._policies.leases
            )
            self._coordination = Coordination(
                self.settings, self.raft.epoch, self._policies.term, self._out
            )
            wanted = self.settings.ms("metadata.format.level")
            self._apply(features.finalize(self._ahead, wanted), now)

    def _follow_log(self) -> None:
        """Replays the committed records; if a leader's snapshot replaced the log, from its
        start."""
        self.committed.advance(self.log, self.raft.high_watermark)
        if self.committed.was_replaced and self.log.snapshot is not None:
            self.snapshots.replaced(self.log.snapshot)

    def _snapshot(self, now: Instant) -> None:
        """Continues a snapshot; a standby reports it, the active controller also starts one."""
        me, offset = self.settings.node_id, self.snapshots.last_offset
        if self.snapshots.tick(self.committed.image, now):
            offset = self.snapshots.last_offset
            self._reporting.hurry(now)
        if self._coordination is None:
            self._reporting.tick(self.raft.leader, offset, now)
            return
        self._coordination.report(me, offset, now)
        if not self.snapshots.under_way and self._coordination.should_start(
            me, self.committed.applied, now
        ):
            self.snapshots.start(self.committed.image, now, self.raft.epoch)

    def _leave(self) -> None:
        """Ends the term: drops all records that are not committed (QC-09)."""
        # The image ahead may hold what no majority has. The next leader may drop those records, so
        # nothing of it may show in an answer or stay (QC-09).
        ahead, self._ahead = self._ahead, None
        self._coordination = None
        self.metrics.term_ended()
        assert ahead is not None
        image, applied = self._policies.term.kept_on_deposition(
            (self.committed.image, self.committed.applied), (ahead, self.log.end)
        )
        self.committed.image, self.committed.applied = image, applied
        self._out.note(
            StateReverted(
                offset=applied, high_watermark=self.raft.high_watermark, epoch=self._led_epoch
            )
        )
        self._answers.refuse_waiting()

    # ----------------------------------------------------------------------------------- deciding

    def _apply(self, records: Iterable[r.Record], now: Instant) -> int:
        """Appends records as one batch and replays them ahead; returns the log's end, to wait
        for."""
        batch = list(records)
        assert self._ahead is not None
        # One decision is one batch: it is replicated, committed and read back as a whole.
        if batch:
            base = self.log.end
            level = self._metadata_policies.record_level(self._ahead)
            self.raft.append([r.encode(record, level) for record in batch], now)
            for at, record in enumerate(batch, base):
                self._ahead.replay(record, at)
            self.metrics.appended(self.log.end, now)
        return self.log.end

    def _expire(self, now: Instant) -> None:
        check_ns = self._policies.leases.next_check_ns(self._leases.ends_ns)
        if self._ahead is None or now.monotonic_ns < check_ns:
            return
        lease_ns = self.settings.lease_ms * 1_000_000
        for broker in registration.expired(self._ahead, self._leases, now, lease_ns):
            self._out.note(
                LeaseExpired(
                    broker_id=broker,
                    broker_epoch=self._ahead.brokers[broker].epoch,
                    last_heard_ns=self._leases.heard_ns[broker],
                    now_ns=now.monotonic_ns,
                    lease_period_ms=self.settings.lease_ms,
                    controller_epoch=self.raft.epoch,
                )
            )
            self._apply(registration.fence(self._ahead, broker, self._cluster.election), now)
        self._leases.looked_at(self._ahead, lease_ns)

    def _request(self, received: Received, now: Instant) -> None:
        self.metrics.requested()
        if admission.refused(
            received, self.settings.rights, self._policies.registration, self._out
        ):
            return
        message = received.message
        kind = type(message)
        if kind in self._of_quorum:
            asked = cast(quorum_messages.Request, message)
            is_known, me = self.raft.electorate.is_known, self.settings.node_id
            # Any process may connect. An invented epoch near the last one would use up the epochs
            # of the quorum, and an invented candidate would be voted for.
            fault = quorum_messages.fault(asked, is_known, me, self.raft.epoch)
            if fault is not None:
                self._out.add(Close(received.request_id, fault))
            else:
                self._of_quorum[kind](received, message, now)
        elif kind in self._of_nodes:
            self._of_nodes[kind](received, message, now)
        elif CHANGES.is_change(message):
            self._change(received, now)
        else:
            self._out.add(Close(received.request_id, "no request for a controller"))

    def _report(
        self, received: Received, asked: m.ControllerHeartbeatRequest, now: Instant
    ) -> None:
        self._out.add(Reply(received.request_id, self._take_report(asked, now)))

    def _take_report(
        self, asked: m.ControllerHeartbeatRequest, now: Instant
    ) -> m.ControllerHeartbeatResponse:
        if self._coordination is None:
            return m.ControllerHeartbeatResponse(error_code=Error.NOT_CONTROLLER)
        reporter = asked.controller_id
        if reporter == self.settings.node_id or not self.raft.electorate.is_known(reporter):
            return m.ControllerHeartbeatResponse(error_code=Error.INVALID_REQUEST)
        self._coordination.report(reporter, asked.last_snapshot_offset, now)
        start = self._coordination.should_start(reporter, self.committed.applied, now)
        return m.ControllerHeartbeatResponse(error_code=Error.NONE, start_snapshot=start)

    def _heartbeat(self, received: Received, asked: m.BrokerHeartbeatRequest, now: Instant) -> None:
        # Only the active controller renews a lease (QC-22). A former one that still answered would
        # let a broker go on which its successor has fenced.
        image = self._policies.leases.renewing_image(
            self._ahead, self.committed.image, self._led_epoch
        )
        if image is None:
            self._answers.refuse(received, self._out.cause)
            return
        decision = registration.heartbeat(
            image,
            self._leases,
            asked=asked,
            now=now,
            next_offset=self.log.end,
            settings=self.settings,
            controllers=self.raft.voters,
            policies=self._policies,
            election=self._cluster.election,
        )
        granted = decision.error is Error.NONE
        # The lease is counted from the time at which the broker sent the heartbeat, by the broker's
        # own clock, and this controller fences a period after the heartbeat came. The second time
        # is later, whatever the message took, so the broker has stopped serving before it is fenced
        # (QC-13).
        start_ms = self._policies.leases.lease_start_ms(asked.lease_start_time_ms, now.wall_ms)
        end_ms = start_ms + self.settings.lease_ms if granted else -1
        offset = 0
        if self._ahead is not None:
            # The renewal counts before the answer is sent: a lease that the broker never hears of
            # only makes this controller wait longer.
            if decision.renews:
                lease_ns = self.settings.lease_ms * 1_000_000
                self._leases.renew(asked, self.committed.applied, now, lease_ns)
            offset = self._apply(decision.records, now)
        answer = m.BrokerHeartbeatResponse(
            error_code=decision.error,
            active_controller_id=self.settings.node_id,
            next_state=decision.next_state,
            broker_epoch=decision.broker_epoch,
            lease_end_time_ms=end_ms,
            controller_epoch=self.raft.epoch,
        )
        self._answers.to_heartbeat(received, answer, offset, self.active)

    def _change(self, received: Received, now: Instant) -> None:
        """A request for a change: decided at once, answered once it is committed."""
        if self._ahead is None:
            self._answers.refuse(received, self._out.cause)
            return
        ends = self.raft.ends()
        quorum = Quorum(
            leader=self.settings.node_id,
            epoch=self.raft.epoch,
            high_watermark=self.raft.high_watermark,
            ends=tuple((voter, ends.get(voter, -1)) for voter in sorted(self.raft.voters)),
            voters=self.raft.voters,
            settled=self.raft.settled,
            observed=self.raft.observed,
            now_ms=now.wall_ms,
        )
        start, epoch = self.log.end, self.raft.epoch
        cluster = DecisionContext(
            image=self._ahead,
            ready=self._ready(),
            settings=self.settings,
            policies=self._cluster,
            topic_id=lambda name, before: _topic_id(epoch, start + before),
        )
        context = QuorumContext(cluster, quorum, self._policies)
        decided = CHANGES.decide(context, received.message)
        end = self._apply(decided.records, now)
        # A new ISR is what a reassignment or a preferred leader waits for.
        if isinstance(received.message, m.AlterPartitionRequest):
            self._settle(decided.records, now)
        # Even a request that changes nothing waits for the log's end: its answer may depend on a
        # record that is not committed yet.
        offset = end - 1 if decided.records else -1
        self._answers.to_change(received, decided.answer, end, offset)

    # ------------------------------------------------------------------------- without a request

    def _ready(self) -> frozenset[int]:
        """The brokers that may be given leaderships: active, and not about to stop (RP-21)."""
        assert self._ahead is not None
        targets = self._leases.targets
        return frozenset(b for b in self._ahead.live() if targets.get(b) is BrokerState.ACTIVE)

    def _willing(self) -> frozenset[int]:
        """The brokers to which leaderships return without a request."""
        return self._ready() if balance_ms(self.settings) else frozenset()

    def _settle(self, records: Iterable[r.Record], now: Instant) -> None:
        """Ends the reassignments, and returns the leaderships, that were waiting for these
        partitions."""
        assert self._ahead is not None
        places = [
            self._ahead.named(record) for record in records if isinstance(record, r.IsrChangeRecord)
        ]
        self._apply(reassigning.settle(self._ahead, places, self._willing(), self._cluster), now)

    def _maintain(self, now: Instant) -> None:
        """Finishes marked deletions, and checks every partition at intervals."""
        if self._ahead is None:
            return
        # The mark must be committed: whichever controller is active then finishes the deletion,
        # even if another one wrote the mark (QC-26).
        if self.committed.image.deleting:
            self._apply(topics.finish_deletions(self.committed.image, self._ahead), now)
        if now.monotonic_ns >= self._next_check_ns:
            every = self._ahead.all_partitions()
            self._apply(reassigning.settle(self._ahead, every, self._willing(), self._cluster), now)
            self._next_check_ns = now.monotonic_ns + self.settings.ns(
                "leader.imbalance.check.interval.ms"
            )


def _topic_id(controller_epoch: int, offset: int) -> UUID:
    """A unique topic id: made of an offset, and of the epoch in which only this leader writes."""
    return UUID(int=(1 << 127) | (controller_epoch << 64) | offset)
