"""Serves fetches: a client's up to the high watermark, a follower's by its session; long polls.

A client's fetch that finds fewer bytes than it wants is parked until its time is up, or there are
enough. A replica that changes is the only one that is looked at then. Clients have no sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from fencepost import MS, Cause
from fencepost_clusters.reference.core.node.deadlines import Deadlines, earlier
from fencepost_clusters.reference.core.node.effects import LONGEST_WAIT_MS, Instant, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState, Session
from fencepost_clusters.reference.core.replication.fetch_sessions import FetchSessions
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import Key, Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.core.replication.roles import APPENDED
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import FetchServed


@dataclass(frozen=True, slots=True)
class _Parked:
    """A client's fetch that waits. `asked` has its partitions by topic id, though clients send
    names; `sizes` are the bytes that it would get of each."""

    received: Received
    request: m.FetchRequest
    deadline_ns: int
    cause: Cause | None
    asked: Mapping[Key, tuple[str, m.FetchPartition]]
    sizes: dict[Key, int] = field(default_factory=dict)

    @property
    def wanted(self) -> int:
        """How many bytes end its wait: no more than its answer may have."""
        return min(self.request.min_bytes, self.request.max_bytes)


class _Readable(Struct, frozen=True, gc=False):
    """What a client may read of a partition, below an offset: the batches of a span, or none."""

    replica: Replica | None
    error: Error
    below: int = -1
    start: int = -1
    end: int = -1
    size: int = 0
    """The bytes of the span."""

    @property
    def urgent(self) -> bool:
        """Whether the client gets its answer at once: more bytes will not come, or the answer has
        no room for them."""
        return self.error is not Error.NONE or self.end < self.below


class Fetching:
    """See the module. `refuse` answers a client's request that arrived or waits while the broker is
    fenced."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        session: Session,
        refuse: Callable[[Received], None],
        policies: ReplicationPolicies,
        out: Outbox,
    ) -> None:
        self._replicas = replicas
        self._session = session
        self._refuse = refuse
        self._policies = policies
        self._out = out
        self._followers = FetchSessions(replicas, session, policies, out)
        self._parked: dict[int, _Parked] = {}
        """By the number of the request, in the order in which they came."""
        self._waiting: dict[Key, set[int]] = {}
        """The parked fetches that wait for a change of a replica."""
        self._times: Deadlines[int] = Deadlines()
        """When they have waited long enough."""

    def deadline_ns(self) -> int | None:
        """When the first parked fetch has waited long enough."""
        return earlier(self._times.earliest_ns(), self._followers.deadline_ns())

    def fetch(
        self, received: Received, request: m.FetchRequest, state: ClusterState, now: Instant
    ) -> None:
        """Answers a fetch, now or once there are records to return."""
        if received.listener == REPLICATION_LISTENER:
            self._followers.fetch(received, request, state, now)
            return
        # A client that believes it has a session begins again without one, as after the loss of a
        # session.
        if request.session_id != 0:
            answer = m.FetchResponse(error_code=Error.FETCH_SESSION_ID_NOT_FOUND, responses=())
            self._out.add(Reply(received.request_id, answer))
            return
        parked = _Parked(
            received,
            request,
            now.monotonic_ns + min(request.max_wait, LONGEST_WAIT_MS) * MS,
            self._out.cause,
            _by_id(request, state),
        )
        if not self._try_fetch(parked, state, final=request.max_wait == 0):
            self._park(parked)

    def release(self, state: ClusterState, now: Instant) -> None:
        """Answers the parked fetches that have records to return, or whose time is up."""
        changed = self._replicas.changed
        self._followers.release(changed, now)
        if self._parked:
            # A broker that was fenced serves no client any more: another one may lead its
            # partitions by now.
            if not self._session.finishing(now):
                self._refuse_all()
            else:
                self._look(changed, set(self._times.due(now.monotonic_ns)), state)
        # This is the last part of a step that reads the changes: Produce requests have been settled
        # by now.
        changed.clear()

    def _look(self, changed: Mapping[Key, int], due: Collection[int], state: ClusterState) -> None:
        """Answers the parked fetches that have enough now, or whose time is up."""
        if not changed and not due:
            return
        enough = {
            number
            for key, change in changed.items()
            # Clients read what is committed. So an append alone gives them nothing, and with many
            # parked fetches it would cost a look at each.
            if change != APPENDED or self._reads_uncommitted(key)
            for number in self._waiting.get(key, ())
            if number not in due and self._has_enough(self._parked[number], key, state)
        }
        # Numbers of requests rise, so the fetches are answered in the order in which they came.
        for number in sorted(enough.union(due)):
            parked = self._parked[number]
            with self._out.caused_by(parked.cause):
                self._try_fetch(parked, state, final=True)
            self._unpark(number)

    def _reads_uncommitted(self, key: Key) -> bool:
        """Whether clients read more of a replica than is committed, so that an append counts."""
        one = self._replicas.by_key[key]
        return self._policies.readable_end(one.high_watermark, one.log.end) != one.high_watermark

    def _has_enough(self, parked: _Parked, changed: Key, state: ClusterState) -> bool:
        """Whether a fetch is answered now that a replica has changed."""
        topic, asked = parked.asked[changed]
        # Without the bytes of the other partitions, which would need a look at each of them. The
        # answer itself is made by `_try_fetch`, which counts them all.
        found = self._readable(parked, state, topic, asked, 0)
        parked.sizes[changed] = found.size
        return found.urgent or sum(parked.sizes.values()) >= parked.wanted

    def _refuse_all(self) -> None:
        """Clients are not served any more."""
        for number, parked in tuple(self._parked.items()):
            with self._out.caused_by(parked.cause):
                self._refuse(parked.received)
            self._unpark(number)

    def _park(self, parked: _Parked) -> None:
        number = parked.received.request_id
        self._parked[number] = parked
        self._times.set(number, parked.deadline_ns)
        for key in parked.asked:
            self._waiting.setdefault(key, set()).add(number)

    def _unpark(self, number: int) -> None:
        self._times.drop(number)
        for key in self._parked.pop(number).asked:
            self._waiting[key].discard(number)
            if not self._waiting[key]:
                del self._waiting[key]

    def _try_fetch(self, parked: _Parked, state: ClusterState, final: bool) -> bool:
        """Answers a fetch if there are as many bytes as it wants; `final`: also with fewer."""
        ids = state.topics
        topics: list[m.FetchableTopicResponse] = []
        served: list[FetchServed] = []
        size = 0
        enough = final
        for topic in parked.request.topics:
            parts: list[m.PartitionData] = []
            for asked in topic.partitions:
                found = self._readable(parked, state, topic.topic, asked, size)
                parts.append(_answer_of(found, asked.partition))
                size += found.size
                enough = enough or found.urgent
                if found.replica is not None and found.size:
                    client, start = parked.received.client, asked.fetch_offset
                    served.append(self._event(found.replica, found, client, start))
                    parked.sizes[ids[topic.topic], asked.partition] = found.size
            topics.append(m.FetchableTopicResponse(partitions=tuple(parts), topic=topic.topic))
        if not enough and size < parked.wanted:
            return False
        for event in served:
            self._out.note(event)
        answer = m.FetchResponse(error_code=Error.NONE, responses=tuple(topics))
        self._out.add(Reply(parked.received.request_id, answer))
        return True

    def _readable(
        self,
        parked: _Parked,
        state: ClusterState,
        topic: str,
        asked: m.FetchPartition,
        taken: int,
    ) -> _Readable:
        """What a client may read of a partition now. `taken` bytes are of the partitions before.

        Only the first batch of a whole answer may be larger than the fetch allows: without it a
        reader would never get past such a batch.
        """
        known = state.partition(topic, asked.partition)
        if known is None:
            return _Readable(None, Error.UNKNOWN_TOPIC_OR_PARTITION)
        one = self._replicas.get(known.topic_id, asked.partition)
        if one is None or not one.leading:
            return _Readable(None, Error.NOT_LEADER_OR_FOLLOWER)
        error = one.epoch_error(asked.current_leader_epoch)
        if error is not Error.NONE:
            return _Readable(None, error)
        below = self._policies.readable_end(one.high_watermark, one.log.end)
        # Just after an election the high watermark may be below offsets that were read before.
        # Compared with the log's end and not with `below`: a client at an offset that it read from
        # the former leader waits; an error would make it start over.
        if not one.log.start <= asked.fetch_offset <= one.log.end:
            return _Readable(one, Error.OFFSET_OUT_OF_RANGE, below)
        most = min(asked.partition_max_bytes, parked.request.max_bytes - taken)
        start, end = one.log.span(asked.fetch_offset, below, most, at_least_one=taken == 0)
        size = one.log.size(start, end)
        return _Readable(one, Error.NONE, below, start=start, end=end, size=size)

    def _event(self, one: Replica, found: _Readable, client: str, from_offset: int) -> FetchServed:
        """The record that a client got a span of a replica."""
        return FetchServed(
            topic=one.topic,
            partition=one.index,
            client=client,
            from_offset=from_offset,
            to_offset=found.end,
            high_watermark=one.high_watermark,
            leader_epoch=one.epoch,
            state=self._session.state.label,
            log_end=one.log.end,
        )


def _answer_of(found: _Readable, index: int) -> m.PartitionData:
    """The part of an answer that is about one partition."""
    one = found.replica
    if one is None or found.error is not Error.NONE:
        return m.PartitionData(
            partition_index=index,
            error_code=found.error,
            high_watermark=found.below,
            records=b"",
        )
    records = m.LogSlice(log=one.name, start=found.start, end=found.end) if found.size else b""
    return m.PartitionData(
        partition_index=index,
        error_code=Error.NONE,
        high_watermark=found.below,
        last_stable_offset=found.below,
        log_start_offset=one.log.start,
        records=records,
    )


def _by_id(
    request: m.FetchRequest, state: ClusterState
) -> Mapping[Key, tuple[str, m.FetchPartition]]:
    """The partitions of a fetch by topic id, as far as there are such topics."""
    return {
        (topic_id, asked.partition): (topic.topic, asked)
        for topic in request.topics
        if (topic_id := state.topics.get(topic.topic)) is not None
        for asked in topic.partitions
    }


def refused(request: m.FetchRequest, error: Error) -> m.FetchResponse:
    """The same error for every partition of a fetch."""
    return m.FetchResponse(
        error_code=Error.NONE,
        responses=tuple(
            m.FetchableTopicResponse(
                partitions=tuple(
                    m.PartitionData(
                        partition_index=p.partition,
                        error_code=error,
                        high_watermark=-1,
                        records=b"",
                    )
                    for p in t.partitions
                ),
                topic=t.topic,
                topic_id=t.topic_id,
            )
            for t in request.topics
        ),
    )
