"""Replication by fetching: a follower has one fetch in flight to each broker that leads a partition
it follows. The leader's side is here, too."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fencepost_clusters.reference.core.node.effects import (
    Call,
    Instant,
    Outbox,
    Received,
)
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState, Session
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.core.replication.roles import Part
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import RequestRefused

MS = 1_000_000
BACKOFF_NS = 50 * MS


@dataclass(slots=True)
class _Fetcher:
    """The fetches to one leading broker."""

    call: int | None = None
    next_ns: int = 0
    asked: tuple[tuple[UUID, int, int], ...] = ()
    """(topic id, partition, leader epoch) of the request: an answer of another epoch is ignored."""


class Following:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        replicas: Replicas,
        session: Session,
        policies: ReplicationPolicies,
        out: Outbox,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._session = session
        self._policies = policies
        self._out = out
        self._fetchers: dict[int, _Fetcher] = {}
        self._calls: dict[int, int] = {}
        self._by_leader: dict[int, list[Replica]] = {}
        self._version = -1

    # ------------------------------------------------------------------------- the follower's side

    def _followed(self) -> dict[int, list[Replica]]:
        """The followed partitions, by leader, in the order of the leaders' ids."""
        if self._version != self._replicas.version:
            self._version = self._replicas.version
            by_leader: dict[int, list[Replica]] = {}
            for one in self._replicas.all():
                if one.part is Part.FOLLOWER:
                    by_leader.setdefault(one.partition.leader, []).append(one)
            self._by_leader = dict(sorted(by_leader.items()))
        return self._by_leader

    def deadline_ns(self) -> int | None:
        """When the next fetch is due."""
        times = [
            self._fetchers[leader].next_ns if leader in self._fetchers else 0
            for leader in self._followed()
            if leader not in self._fetchers or self._fetchers[leader].call is None
        ]
        return min(times, default=None)

    def hurry(self, now: Instant) -> None:
        """Makes refused fetches due at once: after a change of the metadata they may be
        answered."""
        for fetcher in self._fetchers.values():
            fetcher.next_ns = min(fetcher.next_ns, now.monotonic_ns)

    def tick(self, state: ClusterState, now: Instant) -> None:
        """Sends the fetches that are due."""
        for leader, replicas in self._followed().items():
            fetcher = self._fetchers.setdefault(leader, _Fetcher())
            if fetcher.call is None and now.monotonic_ns >= fetcher.next_ns:
                self._fetch(leader, fetcher, replicas, state, now)

    def _fetch(
        self,
        leader: int,
        fetcher: _Fetcher,
        replicas: list[Replica],
        state: ClusterState,
        now: Instant,
    ) -> None:
        known = state.brokers.get(leader)
        address = known.endpoint(REPLICATION_LISTENER) if known is not None else None
        fetcher.next_ns = now.monotonic_ns + BACKOFF_NS
        if address is None or self._session.epoch < 0:
            return
        max_bytes = self._settings.ms("replica.fetch.max.bytes")
        topics: dict[UUID, list[m.FetchPartition]] = {}
        for one in replicas:
            topics.setdefault(one.partition.topic_id, []).append(
                m.FetchPartition(
                    partition=one.index,
                    fetch_offset=one.log.end,
                    partition_max_bytes=max_bytes,
                    current_leader_epoch=one.epoch,
                    last_fetched_epoch=one.log.last_epoch,
                )
            )
        wait_ms = self._settings.ms("replica.fetch.wait.max.ms")
        request = m.FetchRequest(
            max_wait=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=tuple(
                m.FetchTopic(partitions=tuple(parts), topic="", topic_id=topic)
                for topic, parts in topics.items()
            ),
            replica_state=m.ReplicaState(
                replica_id=self._settings.node_id, replica_epoch=self._session.epoch
            ),
        )
        call = self._out.next_call()
        timeout_ms = wait_ms + self._settings.ms("request.timeout.ms")
        self._out.add(
            Call(
                call_id=call,
                address=address,
                channel="replication",
                message=request,
                timeout_ms=timeout_ms,
            )
        )
        fetcher.call = call
        fetcher.asked = tuple((o.partition.topic_id, o.index, o.epoch) for o in replicas)
        self._calls[call] = leader

    def failed(self, call_id: int, now: Instant) -> bool:
        """A fetch got no answer; False if the call was no fetch."""
        leader = self._calls.pop(call_id, None)
        if leader is None:
            return False
        fetcher = self._fetchers[leader]
        if fetcher.call == call_id:
            fetcher.call = None
            fetcher.next_ns = now.monotonic_ns + BACKOFF_NS
        return True

    def answered(self, call_id: int, answer: m.Response, now: Instant) -> bool:
        """Stores the fetched batches; False if the call was no fetch of ours."""
        leader = self._calls.pop(call_id, None)
        if leader is None:
            return False
        assert isinstance(answer, m.FetchResponse), answer
        fetcher = self._fetchers[leader]
        fetcher.call = None
        asked = {(topic, index): epoch for topic, index, epoch in fetcher.asked}
        clean = answer.error_code == Error.NONE
        for topic in answer.responses:
            for part in topic.partitions:
                one = self._replicas.get(topic.topic_id, part.partition_index)
                if part.error_code != Error.NONE:
                    clean = False
                elif (
                    one is not None
                    and one.part is Part.FOLLOWER
                    and one.partition.leader == leader
                    and asked.get((one.partition.topic_id, one.index)) == one.epoch
                ):
                    self._store(one, part)
        fetcher.next_ns = now.monotonic_ns + (0 if clean else BACKOFF_NS)
        return True

    @staticmethod
    def _store(one: Replica, part: m.PartitionData) -> None:
        if part.diverging_epoch.epoch >= 0:
            one.diverged(part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
            return
        assert isinstance(part.records, bytes | None)
        for header, data in record_batch.split(part.records or b""):
            one.take(header, data)
        one.learn(part.high_watermark)

    # --------------------------------------------------------------------------- the leader's side

    def judge(self, received: Received, request: m.FetchRequest, state: ClusterState) -> Error:
        """Whether a fetch of another broker may be served at all (QC-19)."""
        replica = request.replica_state
        known = state.brokers.get(replica.replica_id)
        if known is not None and self._policies.is_past_epoch(replica.replica_epoch, known.epoch):
            self._out.note(
                RequestRefused(
                    api="Fetch",
                    topic="",
                    partition=-1,
                    client=received.client,
                    requester=replica.replica_id,
                    error=Error.STALE_BROKER_EPOCH.name,
                    reason="stale_broker_epoch",
                    state=self._session.state.label,
                )
            )
            return Error.STALE_BROKER_EPOCH
        return Error.NONE

    def serve(
        self,
        received: Received,
        request: m.FetchRequest,
        *,
        topic_id: UUID | None,
        asked: m.FetchPartition,
        state: ClusterState,
        now: Instant,
    ) -> m.PartitionData:
        """Serves one partition of a follower's fetch, which also reports that follower's log
        end."""
        one = self._replicas.get(topic_id, asked.partition)
        error = Error.NONE
        if one is None or not one.serves_followers:
            error = Error.NOT_LEADER_OR_FOLLOWER
        elif asked.current_leader_epoch < one.epoch:
            error = Error.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > one.epoch:
            error = Error.UNKNOWN_LEADER_EPOCH
        if one is None or error is not Error.NONE:
            return m.PartitionData(
                partition_index=asked.partition, error_code=error, high_watermark=-1
            )
        epoch, end = one.log.end_for_epoch(asked.last_fetched_epoch)
        if asked.fetch_offset > 0 and self._policies.diverges(
            asked.last_fetched_epoch, asked.fetch_offset, epoch, end
        ):
            diverging = m.EpochEndOffset(epoch=max(epoch, 0), end_offset=end)
            return m.PartitionData(
                partition_index=asked.partition,
                error_code=error,
                high_watermark=one.high_watermark,
                last_stable_offset=-1,
                log_start_offset=0,
                diverging_epoch=diverging,
                records=b"",
            )
        if asked.fetch_offset > one.log.end:
            return m.PartitionData(
                partition_index=asked.partition,
                error_code=Error.OFFSET_OUT_OF_RANGE,
                high_watermark=-1,
            )
        replica = request.replica_state
        known = state.brokers.get(replica.replica_id)
        epoch_now = known.epoch if known is not None else None
        if self._policies.is_current_epoch(replica.replica_epoch, epoch_now):
            one.fetched(
                replica.replica_id, received.client, replica.replica_epoch, asked.fetch_offset, now
            )
        start, end = one.log.span(asked.fetch_offset, one.log.end, asked.partition_max_bytes)
        records = m.LogSlice(log=one.name, start=start, end=end) if end > start else b""
        return m.PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=one.high_watermark,
            last_stable_offset=one.high_watermark,
            log_start_offset=one.log.start,
            records=records,
        )

    def has_news(self, request: m.FetchRequest) -> bool:
        """Whether the answer to a parked follower fetch would contain a change."""
        follower = request.replica_state.replica_id
        for topic in request.topics:
            for asked in topic.partitions:
                one = self._replicas.get(topic.topic_id, asked.partition)
                if (
                    one is None
                    or not one.serves_followers
                    or one.epoch != asked.current_leader_epoch
                    or one.log.end > asked.fetch_offset
                    or follower not in one.followers
                    or one.followers[follower].answered_watermark < one.high_watermark
                ):
                    return True
        return False

    def remember_answer(
        self, request: m.FetchRequest, topic_id: UUID | None, part: m.PartitionData
    ) -> None:
        """Remembers the high watermark in the last answer to a follower."""
        one = self._replicas.get(topic_id, part.partition_index)
        if one is not None and part.error_code == Error.NONE:
            follower = one.followers.get(request.replica_state.replica_id)
            if follower is not None:
                follower.answered_watermark = part.high_watermark
