"""The leader's part for nodes that fetch its log: it answers and parks their fetches, tracks their
offsets, and serves its snapshot to a node that lacks dropped records (KIP-595, KIP-630).

All of this is soft state: a new leader starts without it.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from msgspec import Struct

from fencepost import MS
from fencepost_clusters.reference.core.node.effects import (
    LONGEST_WAIT_MS,
    NEVER_NS,
    Instant,
    Received,
    Reply,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.quorum.raft import messages
from fencepost_clusters.reference.core.quorum.raft.electorate import Electorate
from fencepost_clusters.reference.core.quorum.raft.metadata_log import MetadataLog
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

MOST_KNOWN: Final = 10_000
"""How many nodes, and clients, are remembered: the limit is needed since any process may invent
ids."""


class Standing(Protocol):
    """The state of the quorum that the serving side needs."""

    @property
    def epoch(self) -> int: ...
    @property
    def leader(self) -> int | None: ...
    @property
    def leading(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...


class Fetched(Struct, frozen=True):
    """A node's newest fetch, by the leader's wall clock: its offset, the end of the leader's log at
    that time, and when the node was last known to have all of the log."""

    offset: int
    at_ms: int
    end: int
    caught_up_ms: int

    def next(self, offset: int, end: int, now_ms: int) -> Fetched:
        """The node's next fetch. If it lacks the newest records, but not those that were there at
        its fetch before, it had the whole log then."""
        caught_up_ms = self.caught_up_ms
        if offset >= end:
            caught_up_ms = now_ms
        elif offset >= self.end:
            caught_up_ms = self.at_ms
        return Fetched(offset, now_ms, end, caught_up_ms)


NO_FETCH = Fetched(offset=-1, at_ms=-1, end=0, caught_up_ms=-1)


@final
class _Parked:
    """A fetch that waits for new records or a new high watermark."""

    def __init__(self, request_id: int, offset: int, requester: str, deadline_ns: int) -> None:
        self.request_id = request_id
        self.offset = offset
        self.requester = requester
        self.deadline_ns = deadline_ns


class Serving:
    """See the module."""

    def __init__(
        self,
        me: int,
        electorate: Electorate,
        log: MetadataLog,
        standing: Standing,
        out: Outbox,
    ) -> None:
        self._me = me
        self._electorate = electorate
        self._voters = electorate.voters
        self._log = log
        self._standing = standing
        self._out = out
        # A voter's log end is the offset of its newest fetch: it had stored and synced all below
        # before it asked. `observed` also has observers, which never count for a majority.
        self._ends: dict[int, int] = {}
        self.observed: dict[int, Fetched] = {}
        """The newest fetch of each other node, whether it votes or not."""
        self._fetched_ns: dict[int, int] = {}
        self._seen_ns: int | None = None
        """What `majority_seen_ns` has found last; None if that has to be found again."""
        self._parked: list[_Parked] = []
        self._due_ns = NEVER_NS
        """When the first of them has waited long enough."""
        self._looked: tuple[int, int] | None = None
        """The log's end and the high watermark when all of them were looked at last."""
        # Client -> the high watermark of its last answer. A fetch that would tell a new one is not
        # parked.
        self._answered_watermarks: dict[str, int] = {}

    def begin(self) -> None:
        """A new leader knows no other log yet; its first record gives each voter time to fetch."""
        self._ends = {}
        self.observed = {}
        self._fetched_ns = {}

    def seat(self, now: Instant) -> None:
        """Gives each new voter time to fetch."""
        for voter in self._voters:
            # A voter that has fetched already keeps its time, or each append would renew the
            # majority of a leader that nobody hears.
            self._fetched_ns.setdefault(voter, now.monotonic_ns)
        self._seen_ns = None

    # ------------------------------------------------------------------------------- questions

    def _majority(self) -> int:
        return len(self._voters) // 2 + 1

    def deadline_ns(self) -> int:
        """When the first parked fetch has waited long enough."""
        return self._due_ns

    def majority_seen_ns(self) -> int | None:
        """When the last fetch arrived that completed a majority; None if the leader is a majority
        by itself."""
        # A leader that was removed is no voter: it needs a majority of the others (Raft, section
        # 4.2.2).
        needed = self._majority() - (self._me in self._voters)
        if needed == 0:
            return None
        if self._seen_ns is None:
            seen = [self._fetched_ns[v] for v in self._voters if v != self._me]
            # The `needed`-th newest fetch is the one that completed the majority: with three voters
            # the newest of the two others, with five the second newest.
            self._seen_ns = sorted(seen, reverse=True)[needed - 1]
        return self._seen_ns

    def ends(self) -> dict[int, int]:
        """The voters' log ends, as far as the leader knows them."""
        known = {v: end for v, end in self._ends.items() if v in self._voters}
        return known | ({self._me: self._log.end} if self._me in self._voters else {})

    def held(self) -> int:
        """The offset below which a majority holds the log; -1 while no majority is known."""
        # In the order of falling ends, the entry at the place of the majority is the highest offset
        # that a majority has reached. A voter that has not fetched in this term is not in it.
        ends = sorted(self.ends().values(), reverse=True)
        return ends[self._majority() - 1] if len(ends) >= self._majority() else -1

    # ------------------------------------------------------------------------------------ fetching

    def refusal(self, current_leader_epoch: int) -> Error:
        """Why a fetch of that leader epoch is not served here, or NONE."""
        if not self._standing.leading:
            return Error.NOT_LEADER_OR_FOLLOWER
        if 0 <= current_leader_epoch < self._standing.epoch:
            return Error.FENCED_LEADER_EPOCH
        return Error.NONE

    def fetch(self, received: Received, request: m.FetchRequest, now: Instant) -> tuple[int, bool]:
        """Judges a fetch: the voter whose log end it moves (-1 for none), and whether to serve it.

        A fetch that may not be served has been answered.
        """
        asked = request.topics[0].partitions[0]
        error = self.refusal(asked.current_leader_epoch)
        if error is not Error.NONE:
            self._answer(received.request_id, error)
            return -1, False
        voter = request.replica_state.replica_id
        # The records after the fetcher's end were dropped below a snapshot, or its last epoch is
        # older than all that is kept, so a divergence could not be found. Its fetch shows that it
        # is alive, yet moves no log end: what it has need not be a prefix of this log.
        if asked.fetch_offset < self._log.start or asked.last_fetched_epoch < self._log.start_epoch:
            self._note_fetch(voter, now)
            self._answer(received.request_id, snapshot=True)
            return -1, False
        # Two logs are the same up to an offset if the epochs before it are (Raft's log matching).
        # If this log does not have the fetcher's last epoch, or less of it, then the fetcher has
        # records which this log lacks. It counts for nothing before it has truncated them.
        epoch, end = self._log.index.end_for_epoch(asked.last_fetched_epoch)
        if epoch != asked.last_fetched_epoch or end < asked.fetch_offset:
            diverging = m.EpochEndOffset(epoch=max(epoch, 0), end_offset=end)
            self._answer(received.request_id, diverging=diverging)
            return -1, False
        self._note_fetch(voter, now)
        if voter in self.observed or len(self.observed) < MOST_KNOWN:
            before = self.observed.get(voter, NO_FETCH)
            self.observed[voter] = before.next(asked.fetch_offset, self._log.end, now.wall_ms)
        if voter in self._voters and self._ends.get(voter) != asked.fetch_offset:
            self._ends[voter] = asked.fetch_offset
            return voter, True
        return -1, True

    def serve(self, received: Received, request: m.FetchRequest, now: Instant) -> None:
        """Answers a valid fetch, now or when there is a change for it."""
        asked = request.topics[0].partitions[0]
        answered = self._answered_watermarks.get(received.client, -1)
        parked = _Parked(
            received.request_id,
            asked.fetch_offset,
            received.client,
            now.monotonic_ns + min(request.max_wait, LONGEST_WAIT_MS) * MS,
        )
        # A new high watermark is news here, unlike between brokers: nodes replay committed records
        # only, and would learn of a commit a whole wait later.
        news = asked.fetch_offset < self._log.end or answered < self._standing.high_watermark
        if news or not request.max_wait:
            self._serve(parked)
        else:
            self._parked.append(parked)
            self._due_ns = min(self._due_ns, parked.deadline_ns)

    def _note_fetch(self, voter: int, now: Instant) -> None:
        if voter in self._voters:
            self._fetched_ns[voter] = now.monotonic_ns
            self._seen_ns = None

    def _serve(self, parked: _Parked) -> None:
        if len(self._answered_watermarks) >= MOST_KNOWN:
            self._answered_watermarks.clear()  # this costs each node one extra answer
        self._answered_watermarks[parked.requester] = self._standing.high_watermark
        # Up to the log's end, beyond what is committed: a majority has to hold a record before it
        # can be committed.
        data = self._log.read(parked.offset, messages.MAX_FETCH_BYTES)
        self._answer(parked.request_id, data=data)

    def _answer(
        self,
        request_id: int,
        error: Error = Error.NONE,
        data: bytes = b"",
        diverging: m.EpochEndOffset | None = None,
        snapshot: bool = False,
    ) -> None:
        wanted = (
            m.SnapshotId(end_offset=self._log.start, epoch=self._log.start_epoch)
            if snapshot
            else None
        )
        state = self._standing
        answer = messages.fetch_answer(
            state.leader,
            state.epoch,
            high_watermark=state.high_watermark,
            error=error,
            data=data,
            diverging=diverging,
            voters=self._electorate.endpoints(),
            snapshot=wanted,
        )
        self._out.add(Reply(request_id, answer))

    def release(self, now: Instant) -> None:
        """Answers the fetches that have waited long enough, or whose change has come."""
        if not self._parked:
            return
        now_ns, end, watermark = now.monotonic_ns, self._log.end, self._standing.high_watermark
        refused = not self._standing.leading
        state = (end, watermark)
        # Nothing that a parked fetch waits for has changed since all were looked at.
        if state == self._looked and now_ns < self._due_ns and not refused:
            return
        self._looked = state
        kept: list[_Parked] = []
        due_ns = NEVER_NS
        for parked in self._parked:
            if refused:
                self._answer(parked.request_id, Error.NOT_LEADER_OR_FOLLOWER)
            elif (
                parked.offset < end
                or self._answered_watermarks.get(parked.requester, -1) < watermark
                or now_ns >= parked.deadline_ns
            ):
                self._serve(parked)
            else:
                kept.append(parked)
                due_ns = min(due_ns, parked.deadline_ns)
        self._parked = kept
        self._due_ns = due_ns

    # ----------------------------------------------------------------------------------- snapshots

    def fetch_snapshot(
        self, received: Received, request: m.FetchSnapshotRequest, now: Instant
    ) -> None:
        """Answers with a part of the snapshot below the log (KIP-630)."""
        asked = request.topics[0].partitions[0]
        snapshot = self._log.snapshot
        error = self.refusal(asked.current_leader_epoch)
        data, size = b"", -1
        if error is Error.NONE:
            self._note_fetch(request.replica_id, now)
            wanted = (asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
            # A newer snapshot has replaced the one that was begun. The fetcher begins again, since
            # parts of two snapshots make no state.
            if snapshot is None or wanted != (snapshot.offset, snapshot.epoch):
                error = Error.SNAPSHOT_NOT_FOUND
            elif not 0 <= asked.position <= len(snapshot.data):
                error = Error.POSITION_OUT_OF_RANGE
            else:
                most = max(1, min(request.max_bytes, messages.MAX_FETCH_BYTES))
                data = snapshot.data[asked.position : asked.position + most]
                size = len(snapshot.data)
        state = self._standing
        part = m.PartitionSnapshotData(
            index=0,
            error_code=error,
            snapshot_id=asked.snapshot_id,
            current_leader=messages.current_leader(state.leader, state.epoch),
            size=size,
            position=asked.position,
            unaligned_records=data,
        )
        self._out.add(Reply(received.request_id, messages.snapshot_answer(part)))
