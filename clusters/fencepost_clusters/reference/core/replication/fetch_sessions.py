"""The leader's side of replication: the fetch sessions of followers (KIP-227).

A full fetch names every partition that the follower has of this leader, and opens a session. Each
later fetch names only the partitions whose position is another one since, and its answer only those
with news: records, an error, the offset where the logs diverge, or a new high watermark. Of the
partitions that neither names, the leader knows that the follower has all of the log. So neither
side looks at a partition in which nothing happens.

A fetch without news is parked. It is looked at again when its time is up, or when a replica of its
session has changed. A high watermark alone does not end the wait (KAFKA-9731).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from fencepost import MS, Cause
from fencepost_clusters.reference.core.node.deadlines import earlier
from fencepost_clusters.reference.core.node.effects import LONGEST_WAIT_MS, Instant, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState, Session
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import Key, Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.core.replication.roles import COMMITTED, Contact
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import RequestRefused

NEW_SESSION: Final = 0
"""The session epoch of a full fetch; -1 is that of a full fetch without a session."""
NO_TOPIC = UUID(int=0)


@dataclass(slots=True)
class _Position:
    """A partition in a session: what the follower asked for, and the high watermark that it was
    answered."""

    asked: m.FetchPartition
    watermark: int = -1


@dataclass(slots=True)
class _Waiting:
    """A parked fetch."""

    received: Received
    deadline_ns: int
    cause: Cause | None


@dataclass(slots=True)
class _FetchSession:
    """The session of one follower; it has one fetch at a time.

    `open` are the partitions at which the next fetch looks: they have changed, the last answer
    named them, or their position was not counted.
    """

    id: int
    follower: int
    client: str
    epoch: int = NEW_SESSION
    counted: bool = False
    """Whether the last fetch was of the registered process, so that its positions count."""
    positions: dict[Key, _Position] = field(default_factory=dict)
    open: dict[Key, _Position] = field(default_factory=dict)
    contact: Contact = field(default_factory=Contact)
    waiting: _Waiting | None = None


class FetchSessions:
    """See the module."""

    def __init__(
        self, replicas: Replicas, session: Session, policies: ReplicationPolicies, out: Outbox
    ) -> None:
        self._replicas = replicas
        self._session = session
        self._policies = policies
        self._out = out
        self._sessions: dict[int, _FetchSession] = {}
        """By the follower's id."""
        # The id of the last session; ids rise, so that a fetch of an earlier session is known as
        # such.
        self._opened = 0

    def deadline_ns(self) -> int | None:
        """When the first parked fetch has waited long enough."""
        first_ns = None
        for one in self._sessions.values():
            if one.waiting is not None:
                first_ns = earlier(first_ns, one.waiting.deadline_ns)
        return first_ns

    def fetch(
        self, received: Received, request: m.FetchRequest, state: ClusterState, now: Instant
    ) -> None:
        """Answers a follower's fetch, now or once there is news."""
        error = self._judge(received, request, state)
        if error is Error.NONE:
            error = self._admit(received, request)
        if error is not Error.NONE:
            answer = m.FetchResponse(error_code=error, responses=())
            self._out.add(Reply(received.request_id, answer))
            return
        one = self._sessions[request.replica_state.replica_id]
        self._count(one, request, state, now)
        opens = request.session_epoch <= NEW_SESSION
        # The follower needs the session's id before it can go on, so the fetch that opens it does
        # not wait.
        wait_ms = 0 if opens else min(request.max_wait, LONGEST_WAIT_MS)
        one.waiting = _Waiting(received, now.monotonic_ns + wait_ms * MS, self._out.cause)
        self._try(one, now)

    def release(self, changed: Mapping[Key, int], now: Instant) -> None:
        """Answers the parked fetches with news, or whose time is up."""
        for one in self._sessions.values():
            news = False
            for key, change in changed.items():
                position = one.positions.get(key)
                if position is not None:
                    one.open[key] = position
                    # A new high watermark is told with the next answer. Were it news, each commit
                    # would cost every follower an answer and a fetch (KAFKA-9731).
                    news = news or change != COMMITTED
            waiting = one.waiting
            if waiting is not None and (news or now.monotonic_ns >= waiting.deadline_ns):
                with self._out.caused_by(waiting.cause):
                    self._try(one, now)

    # ------------------------------------------------------------------------------------ sessions

    def _judge(self, received: Received, request: m.FetchRequest, state: ClusterState) -> Error:
        """Whether a fetch of another broker may be served at all (QC-19)."""
        replica = request.replica_state
        known = state.brokers.get(replica.replica_id)
        # A newer epoch than the known one is served, but not counted yet (`_count`): this leader's
        # metadata is late.
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

    def _admit(self, received: Received, request: m.FetchRequest) -> Error:
        """Finds or opens the session of a fetch, and applies what the fetch changes in it."""
        follower = request.replica_state.replica_id
        one = self._sessions.get(follower)
        if request.session_epoch <= NEW_SESSION:
            if one is not None:
                self._close(one)
            self._opened += 1
            one = self._sessions[follower] = _FetchSession(self._opened, follower, received.client)
        # The client's name tells two processes with one id apart: the second one must not go on in
        # the session of the first.
        elif one is None or (one.id, one.client) != (request.session_id, received.client):
            return Error.FETCH_SESSION_ID_NOT_FOUND
        # A request was lost or came twice. What it would have changed in the session is unknown, so
        # the follower begins anew.
        elif request.session_epoch != one.epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        one.epoch += 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget(one, (forgotten.topic_id or NO_TOPIC, index))
        for topic in request.topics:
            for asked in topic.partitions:
                key = topic.topic_id or NO_TOPIC, asked.partition
                known = one.positions.get(key)
                if known is None:
                    known = one.positions[key] = _Position(asked)
                else:
                    known.asked = asked
                one.open[key] = known
        return Error.NONE

    def _close(self, one: _FetchSession) -> None:
        """A session ends, since its follower opens another one."""
        if one.waiting is not None:
            ended = m.FetchResponse(error_code=Error.FETCH_SESSION_ID_NOT_FOUND, responses=())
            self._out.add(Reply(one.waiting.received.request_id, ended))

    def _forget(self, one: _FetchSession, key: Key) -> None:
        one.open.pop(key, None)
        if one.positions.pop(key, None) is not None and key in self._replicas.by_key:
            known = self._replicas.by_key[key].followers.get(one.follower)
            if known is not None:
                # Later fetches do not speak for this partition any more, so their time must not
                # count for it.
                known.fall_behind()

    # ------------------------------------------------------------------------------------- serving

    def _count(
        self, one: _FetchSession, request: m.FetchRequest, state: ClusterState, now: Instant
    ) -> None:
        """Counts how far the follower has come, if it is the registered process (QC-19)."""
        claimed = request.replica_state.replica_epoch
        known = state.brokers.get(one.follower)
        one.counted = self._policies.is_current_epoch(claimed, known.epoch if known else None)
        # Its positions are kept open: they count with the first fetch after this leader has learned
        # the registration, although that fetch need not name them.
        if not one.counted:
            one.open.update(one.positions)
            return
        for key, position in one.open.items():
            replica, asked = self._replicas.by_key.get(key), position.asked
            if replica is not None and self._refusal(replica, asked) is None:
                replica.fetched(
                    one.follower,
                    client=one.client,
                    broker_epoch=claimed,
                    offset=asked.fetch_offset,
                    contact=one.contact,
                    now=now,
                )
        # Last, since `Follower.fetched` still needs the time of the fetch before. A partition that
        # this fetch does not name is caught up by it, if the follower had all of its log.
        one.contact.last_ns = now.monotonic_ns

    def _try(self, one: _FetchSession, now: Instant) -> None:
        """Answers the waiting fetch of a session if there is news, or its time is up."""
        assert one.waiting is not None
        named: list[tuple[Key, _Position, m.PartitionData]] = []
        settled: list[tuple[Key, bool]] = []
        is_due = now.monotonic_ns >= one.waiting.deadline_ns
        for key, position in one.open.items():
            replica = self._replicas.by_key.get(key)
            part = self._read(replica, key[1], position.asked)
            news = _is_news(part)
            is_due = is_due or news
            # Answered, but not counted as news: it rides with the answer.
            behind = news or part.high_watermark != position.watermark
            if behind:
                named.append((key, position, part))
            # The follower has all of this log, and the leader knows it. Only a change opens the
            # partition again; a fetch without changes then costs nothing for it.
            if not news and self._is_counted(one, replica):
                settled.append((key, behind))
        if is_due:
            self._answer(one, named)
        for key, behind in settled:
            # A partition whose new high watermark was not told, since no answer left, stays open.
            if is_due or not behind:
                del one.open[key]

    @staticmethod
    def _is_counted(one: _FetchSession, replica: Replica | None) -> bool:
        """Whether the position of the follower in a partition is known to its replica. A leader
        that forgets a follower counts it again at the next fetch, which does not name the
        partition."""
        return one.counted and replica is not None and replica.end_of(one.follower) >= 0

    def _answer(
        self, one: _FetchSession, named: Iterable[tuple[Key, _Position, m.PartitionData]]
    ) -> None:
        waiting, one.waiting = one.waiting, None
        assert waiting is not None
        topics: dict[UUID, list[m.PartitionData]] = {}
        for key, position, part in named:
            position.watermark = part.high_watermark
            topics.setdefault(key[0], []).append(part)
        answer = m.FetchResponse(
            error_code=Error.NONE,
            session_id=one.id,
            responses=tuple(
                m.FetchableTopicResponse(partitions=tuple(several), topic_id=topic)
                for topic, several in topics.items()
            ),
        )
        self._out.add(Reply(waiting.received.request_id, answer))

    def _read(
        self, replica: Replica | None, index: int, asked: m.FetchPartition
    ) -> m.PartitionData:
        """What a follower gets of a partition."""
        refusal = self._refusal(replica, asked)
        if replica is None or refusal is not None:
            assert refusal is not None
            return refusal
        start, end = replica.log.span(
            asked.fetch_offset, replica.log.end, asked.partition_max_bytes
        )
        return m.PartitionData(
            partition_index=index,
            error_code=Error.NONE,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.high_watermark,
            log_start_offset=replica.log.start,
            records=m.LogSlice(log=replica.name, start=start, end=end) if end > start else b"",
        )

    def _refusal(self, replica: Replica | None, asked: m.FetchPartition) -> m.PartitionData | None:
        """The answer to a follower that cannot go on from its position: an error, or the offset
        where its log diverges."""
        error = Error.NONE
        if replica is None or not replica.serves_followers:
            error = Error.NOT_LEADER_OR_FOLLOWER
        # Both directions are refused: in an older epoch the follower follows a leader of the past,
        # and of a newer one this leader has not heard, so it may be deposed.
        elif asked.current_leader_epoch < replica.epoch:
            error = Error.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > replica.epoch:
            error = Error.UNKNOWN_LEADER_EPOCH
        else:
            epoch, end = replica.log.end_for_epoch(asked.last_fetched_epoch)
            if self._policies.diverges(asked.last_fetched_epoch, asked.fetch_offset, epoch, end):
                return m.PartitionData(
                    partition_index=asked.partition,
                    error_code=error,
                    high_watermark=replica.high_watermark,
                    last_stable_offset=-1,
                    log_start_offset=0,
                    diverging_epoch=m.EpochEndOffset(epoch=max(epoch, 0), end_offset=end),
                    records=b"",
                )
            if asked.fetch_offset > replica.log.end:
                error = Error.OFFSET_OUT_OF_RANGE
        if error is Error.NONE:
            return None
        return m.PartitionData(partition_index=asked.partition, error_code=error, high_watermark=-1)


def _is_news(part: m.PartitionData) -> bool:
    """Whether a follower gets its answer at once."""
    return bool(part.error_code != Error.NONE or part.records or part.diverging_epoch.epoch >= 0)
