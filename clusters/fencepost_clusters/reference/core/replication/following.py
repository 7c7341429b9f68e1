"""Replication by fetching: a follower has a fetch session (KIP-227) with each broker that leads a
partition it follows, with one fetch in flight. `fetch_sessions` is the leader's side.

See docs/decisions/38-fetch-sessions.md.
See docs/decisions/41-kafka-messages.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from fencepost import MS
from fencepost_clusters.reference.core.node.deadlines import earlier
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState, Session
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import Key, Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.core.replication.roles import Part
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error

# How long a follower waits after a refusal: by then the metadata may have come that explains it.
BACKOFF_NS: Final = 50 * MS


Position = tuple[int, int, int]
"""The log end, leader epoch and last epoch of a replica: what a fetch says of it."""


@dataclass(slots=True)
class _Fetcher:
    """The fetches to one leading broker, in a session. `held` are the positions that the leader has
    of us; `look` are the replicas whose position may be another one since."""

    call: int | None = None
    next_ns: int = 0
    session: int = 0
    epoch: int = 0
    broker_epoch: int = -1
    held: dict[Key, Position] = field(default_factory=dict)
    look: dict[Key, Replica] = field(default_factory=dict)

    def start_over(self) -> None:
        """The session is over: the next fetch is a full one."""
        self.session = self.epoch = 0


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
        # The answer of `_followed`, as of `_version` of the replicas.
        self._by_leader: dict[int, dict[Key, Replica]] = {}
        self._version = -1

    def _followed(self) -> dict[int, dict[Key, Replica]]:
        """The followed partitions, by leader, in the order of the leaders' ids."""
        if self._version != self._replicas.version:
            self._version = self._replicas.version
            by_leader: dict[int, dict[Key, Replica]] = {}
            for one in self._replicas.all():
                if one.part is Part.FOLLOWER:
                    by_leader.setdefault(one.partition.leader, {})[one.key] = one
            self._by_leader = dict(sorted(by_leader.items()))
            for leader, several in self._by_leader.items():
                # Roles may have changed, so each replica's position is looked at again. What the
                # leader has of us (`held`) stays, so only changed ones are named.
                self._fetchers.setdefault(leader, _Fetcher()).look = dict(several)
        return self._by_leader

    def deadline_ns(self) -> int | None:
        """When the next fetch is due."""
        due_ns: int | None = None
        for leader in self._followed():
            one = self._fetchers[leader]
            if one.call is None:
                due_ns = earlier(due_ns, one.next_ns)
        return due_ns

    def hurry(self, now: Instant) -> None:
        """Makes refused fetches due at once: after a change of the metadata they may be
        answered."""
        for fetcher in self._fetchers.values():
            fetcher.next_ns = min(fetcher.next_ns, now.monotonic_ns)

    def tick(self, state: ClusterState, now: Instant) -> None:
        """Sends the fetches that are due."""
        for leader, replicas in self._followed().items():
            fetcher = self._fetchers[leader]
            if fetcher.call is None and now.monotonic_ns >= fetcher.next_ns:
                self._fetch(leader, fetcher, replicas, state, now)

    def _fetch(
        self,
        leader: int,
        fetcher: _Fetcher,
        replicas: dict[Key, Replica],
        state: ClusterState,
        now: Instant,
    ) -> None:
        known = state.brokers.get(leader)
        address = known.endpoint(REPLICATION_LISTENER) if known is not None else None
        fetcher.next_ns = now.monotonic_ns + BACKOFF_NS
        if address is None or self._session.epoch < 0:
            return
        # The leader counts positions under the broker epoch of the fetch. Under another epoch all
        # of them have to be told again, so the session begins anew.
        if fetcher.broker_epoch != self._session.epoch or fetcher.session == 0:
            fetcher.start_over()
            fetcher.broker_epoch = self._session.epoch
            fetcher.held, fetcher.look = {}, dict(replicas)
        wait_ms = self._settings.ms("replica.fetch.wait.max.ms")
        request = m.FetchRequest(
            max_wait=wait_ms,
            min_bytes=1,
            max_bytes=self._settings.ms("replica.fetch.max.bytes"),
            topics=self._moved(fetcher),
            replica_state=m.ReplicaState(
                replica_id=self._settings.node_id, replica_epoch=self._session.epoch
            ),
            session_id=fetcher.session,
            session_epoch=fetcher.epoch,
            forgotten_topics_data=_forgotten(fetcher, replicas),
        )
        # The leader may park the fetch for the first part, and then has the usual time to answer.
        timeout_ms = wait_ms + self._settings.ms("request.timeout.ms")
        call = self._out.call(address, "replication", request, timeout_ms)
        fetcher.call = call
        self._calls[call] = leader

    def _moved(self, fetcher: _Fetcher) -> tuple[m.FetchTopic, ...]:
        """The partitions with another position than the leader has of us."""
        max_bytes = self._settings.ms("replica.fetch.max.bytes")
        topics: dict[UUID, list[m.FetchPartition]] = {}
        for key, one in fetcher.look.items():
            position = one.log.end, one.epoch, one.log.last_epoch
            # The leader epoch is a part of the position: the same log end in a new epoch is news to
            # the leader.
            if fetcher.held.get(key) != position:
                fetcher.held[key] = position
                offset, epoch, last_epoch = position
                topics.setdefault(key[0], []).append(
                    m.FetchPartition(
                        partition=key[1],
                        fetch_offset=offset,
                        partition_max_bytes=max_bytes,
                        current_leader_epoch=epoch,
                        last_fetched_epoch=last_epoch,
                    )
                )
        fetcher.look = {}
        return tuple(m.FetchTopic(partitions=tuple(p), topic_id=t) for t, p in topics.items())

    def failed(self, call_id: int, now: Instant) -> bool:
        """A fetch got no answer; False if the call was no fetch."""
        leader = self._calls.pop(call_id, None)
        if leader is None:
            return False
        fetcher = self._fetchers[leader]
        if fetcher.call == call_id:
            fetcher.call = None
            fetcher.start_over()
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
        clean = answer.error_code == Error.NONE
        if clean:
            fetcher.session, fetcher.epoch = answer.session_id, fetcher.epoch + 1
        else:
            fetcher.start_over()
        for topic in answer.responses:
            for part in topic.partitions:
                one = self._replicas.get(topic.topic_id, part.partition_index)
                if part.error_code != Error.NONE:
                    clean = False
                # The answer must be for the position that was asked. Since then this replica may
                # have got another leader, or another epoch of the same one, or have left the
                # session.
                elif (
                    one is not None
                    and one.part is Part.FOLLOWER
                    and one.partition.leader == leader
                    and one.key in fetcher.held
                    and fetcher.held[one.key][1] == one.epoch
                ):
                    self._store(one, part)
                    fetcher.look[one.key] = one
        fetcher.next_ns = now.monotonic_ns + (0 if clean else BACKOFF_NS)
        return True

    @staticmethod
    def _store(one: Replica, part: m.PartitionData) -> None:
        # The cut first; the records come with the next fetch, from the new end.
        if part.diverging_epoch.epoch >= 0:
            one.diverged(part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
            return
        assert isinstance(part.records, bytes | None)
        for header, data in record_batch.split(part.records or b""):
            one.take(header, data)
        # After the records: the high watermark is never above this log's end (RP-27).
        one.learn(part.high_watermark)


def _forgotten(fetcher: _Fetcher, replicas: Collection[Key]) -> tuple[m.ForgottenTopic, ...]:
    """The partitions of a session that we do not follow any more, or from another leader."""
    if len(fetcher.held) == len(replicas):  # all that we follow are in the session
        return ()
    topics: dict[UUID, list[int]] = {}
    for key in [key for key in fetcher.held if key not in replicas]:
        del fetcher.held[key]
        topics.setdefault(key[0], []).append(key[1])
    return tuple(m.ForgottenTopic(partitions=tuple(p), topic_id=t) for t, p in topics.items())
