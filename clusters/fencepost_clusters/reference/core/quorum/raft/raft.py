"""The quorum: Raft with followers that pull (KIP-595), as one state machine.

Voters elect; the leader of an epoch is the active controller. Brokers are observers: they fetch and
never vote. A follower truncates its log to the offset of divergence in the leader's answer.

The problem beside Raft's own is leases. The leader renews leases of brokers. So two controllers
must not only commit nothing that contradicts the other; the old one must also have stopped renewing
before the new one decides that a lease is over.

The rules:

1. A leader resigns `resign_after_ns` after a fetch last completed a majority. A follower neither
   stands nor votes within `fetch_timeout_ns` of its last answer. The first time is the shorter one,
   and its measurement begins earlier: a fetch arrives before its answer does. So the leader is gone
   before anybody of that majority helps to replace it, and no two clocks are compared.
2. A voter that hears from its leader takes part in no election, and does not even adopt its epoch
   (QC-36). A restarted voter has forgotten whether it follows a leader, so it waits that long, too.
3. A vote is stored before its answer leaves, and so is a new epoch. A record is synced before a
   majority counts it: before the leader's `_advance`, and before a voter's next fetch says so. A
   broker does not sync, since no majority counts it.
4. A leader commits nothing before a record of its own epoch (Raft, section 5.4.2): the next leader
   could still drop a record of an earlier epoch that a majority has.
5. Voters change one at a time. A node uses the newest record of the voters in its log, committed or
   not; so `_reseat` follows each append and each truncation.

Counterexamples that put a line here:

* A controller that was removed while it was cut off knows nothing of that. Its ever higher epochs
  deposed one leader after the other, though a majority was well. So a leader ignores a candidate
  that is no voter (`vote`).
* An observer that adopted the epoch of such a candidate followed nobody: the others were still in
  the epoch before. So it ignores an epoch without a leader (`_adopt`), unless it is asked to vote.
* A controller that did not know yet that it votes gave its vote in the epoch before, where it may
  have given another one. So whoever votes is in that epoch (`vote`).
* A voter gave two votes in one epoch, so two leaders were possible. A candidate that follows the
  leader of its epoch is no candidate any more, and counts no later votes.
* A leader lost its majority before its own removal was committed, stood for election and counted
  its own vote, though by its log it was no voter: the others could elect another leader of that
  epoch. So it is an observer once it resigns (`_resign`).
* A removed controller leads until its removal is committed, and its answer names the other voters.
  A broker that it then sent to its snapshot had no address of it any more (`_fetch_snapshot`).

What is not done. There is no pre-vote: rule 2 stands in for it. A high watermark that falls, since
a leader lacks what was committed, stops nobody: the node follows its leader, and the history shows
it. What the leader does for those that fetch is in `serving.py`.

See docs/decisions/39-elections.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal

from fencepost import MS
from fencepost_clusters.reference.core.node.effects import (
    EXIT_UNREADABLE,
    Append,
    Delete,
    Instant,
    Received,
    Reply,
    StoreSnapshot,
    StoreVote,
    Sync,
    Truncate,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.quorum.raft import messages
from fencepost_clusters.reference.core.quorum.raft.electorate import Electorate
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME, MetadataLog
from fencepost_clusters.reference.core.quorum.raft.policies import VoteReason
from fencepost_clusters.reference.core.quorum.raft.serving import Fetched, Serving
from fencepost_clusters.reference.core.quorum.raft.snapshot_download import Download
from fencepost_clusters.reference.core.quorum.raft.timing import Member, Vote
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.records import UnknownRecord
from fencepost_kafka import (
    ControllerElected,
    ControllerFollowed,
    ControllerResigned,
    ElectionStarted,
    MetadataTruncated,
    VoteAnswered,
)

ResignReason = Literal["no_majority", "higher_epoch", "removed", "shutdown"]


class Role(Enum):
    """The present role of a node in the quorum."""

    OBSERVER = "observer"
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Raft:
    """See the module. Hard state: the log, `epoch`, `voted_for`. Other state is lost at a
    restart."""

    def __init__(
        self,
        member: Member,
        electorate: Electorate,
        *,
        log: MetadataLog,
        vote: Vote,
        out: Outbox,
        now: Instant,
    ) -> None:
        me, timing, chance, epoch = member.node_id, member.timing, member.chance, vote.epoch
        self.me = me
        self.electorate = electorate
        self.voters = electorate.voters
        """The electorate's own mapping, which it keeps up to date: a controller's by the newest
        record of the voters in its log, committed or not, a broker's by the answers that it got."""
        self.log = log
        self.epoch = epoch
        """It never falls. A voter has stored it before any message of the epoch leaves."""
        self.voted_for = vote.voted_for
        """Whom this voter has voted for in `epoch`; None again with each newer epoch. Stored before
        the answer leaves: otherwise a restart would give a second vote."""
        self.timing = timing
        self.leader: int | None = None
        """The leader of `epoch`, which may be this node; None while it is not known. Of two that
        are named for one epoch, the first stays."""
        self.high_watermark = log.start  # a snapshot holds committed records only
        """Everything in this log below it is committed. It is never above the log's end."""
        self._leaders_stable = 0
        """The highest high watermark that any leader has named. It never falls, and may be above
        the log's end: see `last_stable`."""
        electorate.follow(log)
        self.role = Role.UNATTACHED if me in self.voters else Role.OBSERVER
        """LEADER or FOLLOWER only while `leader` is known. OBSERVER exactly if this node is no
        voter, with one exception: a removed leader leads until its removal is committed."""
        self._chance = chance
        self._policies = member.policies
        self._out = out
        # A cluster that just started has no leader, so its first election comes soon. A restarted
        # process does not know which leader it promised to follow, so it waits that time.
        self._follows_until_ns = now.monotonic_ns + (timing.fetch_timeout_ns if epoch > 0 else 0)
        """Until then this voter helps no candidate (QC-36): it has heard from its leader less than
        the fetch timeout ago. It ends at once when the leader itself says that it leads no
        longer."""
        self._election_ns = self._follows_until_ns + chance(
            timing.election_ns // 10, timing.election_ns
        )
        """When a voter that does not lead stands for election. Always drawn at random, so that not
        all stand at once, and drawn anew by a vote that was given: the candidate needs time to
        win."""
        self._votes: set[int] = set()
        """The voters that gave their vote in the election of `epoch`; of use to a CANDIDATE
        only."""
        self._calls: dict[int, tuple[int, int]] = {}
        """call id -> the controller that was called, and our epoch then: a vote of an earlier
        election does not count. An entry goes with the answer or the failure."""
        self._fetch_call: int | None = None
        """The one fetch, of the log or of a snapshot, whose answer is applied. None after a new
        leader is known: the answer of the former one is ignored when it comes."""
        self._next_fetch_ns = now.monotonic_ns
        """When to fetch next, while no fetch is in flight."""
        self._fetch_target = -1
        """The controller that was asked last, from which the search for a leader goes on; -1:
        none."""
        self._download = Download()
        """The parts of a leader's snapshot so far. Another leader may have another one, so it
        begins anew with each."""
        self._epoch_start = 0
        """The log's end when this node began to lead: it commits only beyond that (rule 4)."""
        self._announced: dict[int, int] = {}
        """voter -> when this leader announces itself again. A voter is in it until it fetches: a
        single announcement may be lost, and then it would follow nobody."""
        self._serving = Serving(me, electorate, log, self, out)

    # ------------------------------------------------------------------------------- questions

    @property
    def leading(self) -> bool:
        return self.role is Role.LEADER

    def ends(self) -> dict[int, int]:
        """The voters' log ends, as far as the leader knows them."""
        return self._serving.ends()

    @property
    def last_stable(self) -> int:
        """The highest metadata offset known to be committed, even if this node lacks the records.

        Each answer of a leader contains it, even an answer that sends this node to a snapshot or
        back to the offset of divergence, and so leaves the node behind.
        """
        return max(self.high_watermark, self._leaders_stable)

    @property
    def settled(self) -> bool:
        """Whether the newest change of the voters, and a record of this epoch, are committed."""
        return self.high_watermark > max(self._epoch_start, self.electorate.changed_at)

    @property
    def observed(self) -> Mapping[int, Fetched]:
        """The newest fetch of each other node from this leader, whether it votes or not."""
        return self._serving.observed

    def _majority(self) -> int:
        return len(self.voters) // 2 + 1

    def deadline_ns(self) -> int:
        """When a Tick is wanted next."""
        # A leader wakes for three things: a fetch that it parked, the loss of its majority, and an
        # announcement that is to be repeated. Another voter wakes for its election and its next
        # fetch, an observer for its next fetch only.
        served_ns = self._serving.deadline_ns()
        if self.role is Role.LEADER:
            due_ns = min(served_ns, self._quorum_lost_ns())
            return min(due_ns, *self._announced.values()) if self._announced else due_ns
        due_ns = served_ns if self.role is Role.OBSERVER else min(served_ns, self._election_ns)
        # A fetch in flight has a timeout of its own. Without a controller to ask, a fetch that is
        # due would make a Tick due at every moment.
        if self._fetch_call is None and self._fetch_from() is not None:
            return min(due_ns, self._next_fetch_ns)
        return due_ns

    def _quorum_lost_ns(self) -> int:
        """When the leader must resign, unless a voter fetches before."""
        seen_ns = self._serving.majority_seen_ns()
        return self._policies.resigns_at_ns(seen_ns, self.timing.resign_after_ns)

    def _reseat(self, now: Instant) -> None:
        """Updates this node's role to the voters."""
        if self.role is Role.LEADER:
            self._serving.seat(now)
            self._announced = {v: at for v, at in self._announced.items() if v in self.voters}
        elif self.me not in self.voters:
            self.role = Role.OBSERVER
        elif self.role is Role.OBSERVER:
            self.role = Role.FOLLOWER  # its leader's answer names it as a voter
            self._election_ns = now.monotonic_ns + self._patience()

    # ------------------------------------------------------------------------------- time passes

    def tick(self, now: Instant) -> None:
        """Carries out every action that is due."""
        at = now.monotonic_ns
        self._serving.release(now)
        if self.role is Role.LEADER:
            if at >= self._quorum_lost_ns():
                self._resign("no_majority", now)
            # A leader that was removed leads until its removal is committed: only then is it sure
            # that the others can do without it (Raft, section 4.2.2).
            elif self.me not in self.voters and self.high_watermark > self.electorate.changed_at:
                self.step_down(now, "removed")
            elif self._announced:
                # In the order of ids, as everywhere in a core: one seed is one history.
                for voter, due in sorted(self._announced.items()):
                    if at >= due:
                        self._announce(voter, now)
        elif self.role is not Role.OBSERVER and at >= self._election_ns:
            self._stand(now)
        if self.role is not Role.LEADER and self._fetch_call is None and at >= self._next_fetch_ns:
            self._fetch(now)

    def _draw_election(self, now: Instant, least_ns: int = 0) -> None:
        spread = self._chance(self.timing.election_ns, 2 * self.timing.election_ns)
        self._election_ns = now.monotonic_ns + max(least_ns, spread)

    # ----------------------------------------------------------------------------------- election

    def _stand(self, now: Instant) -> None:
        # An epoch is 32 bits on the wire. An epoch that wrapped round would be older than every
        # other.
        if self.epoch >= messages.MAX_EPOCH:
            self._out.end("the epochs of the quorum are used up", EXIT_UNREADABLE)
            return
        self.role = Role.CANDIDATE
        self.leader = None
        self.epoch += 1
        self.voted_for = self.me
        # The answer of a fetch that is in flight is not applied any more: it could truncate the log
        # whose end the requests for votes name.
        self._votes = {self.me}
        self._fetch_call = None
        self._draw_election(now)
        # Before the requests leave: a process that restarted and had forgotten its own vote could
        # give it to another candidate of this epoch.
        self._out.add(StoreVote(self.epoch, self.me))
        self._out.note(
            ElectionStarted(epoch=self.epoch, log_end=self.log.end, last_epoch=self.log.last_epoch)
        )
        request = messages.vote(self.epoch, self.me, self.log.end, self.log.last_epoch)
        for voter in sorted(self.voters):
            if voter != self.me:
                call = self._out.call(
                    self.voters[voter], "quorum", request, self.timing.election_ns // MS
                )
                # A vote is counted only in the epoch in which it was asked for; see `answered`.
                self._calls[call] = (voter, self.epoch)
        # The only voter needs no other vote, so it leads at once.
        self._count_votes(now)

    def _count_votes(self, now: Instant) -> None:
        if self.role is Role.CANDIDATE and len(self._votes) >= self._majority():
            self._lead(now)

    def _lead(self, now: Instant) -> None:
        self.role = Role.LEADER
        self.leader = self.me
        # Below this offset are records of earlier epochs, which the next leader could still drop
        # even if a majority has them. So nothing is committed before the record that is appended
        # below.
        self._epoch_start = self.log.end
        self._serving.begin()
        self._announced = {v: now.monotonic_ns for v in self.voters if v != self.me}
        self._out.note(
            ControllerElected(
                epoch=self.epoch, log_end=self.log.end, last_epoch=self.log.last_epoch
            )
        )
        # A record of this epoch, without which a quiet leader would never commit what it found in
        # its log. Appending it also seats the voters: each gets the whole time to fetch for the
        # first time.
        self.append([self.me.to_bytes(4, "big")], now, control=True)

    def _announce(self, voter: int, now: Instant) -> None:
        # A voter that does not know this leader fetches from nobody, so nothing but this request
        # can bring it back. It is repeated until the voter fetches.
        self._announced[voter] = now.monotonic_ns + self.timing.fetch_wait_ns
        request = messages.begin_epoch(self.me, self.epoch)
        call = self._out.call(
            self.voters[voter], "quorum", request, self.timing.fetch_wait_ns // MS
        )
        self._calls[call] = (voter, self.epoch)

    def _resign(self, reason: ResignReason, now: Instant) -> None:
        assert self.role is Role.LEADER
        # Its own removal may be in its log and not committed: then it is no voter already. One that
        # stood for election would count its own vote, beside a majority of the others.
        self.role = Role.UNATTACHED if self.me in self.voters else Role.OBSERVER
        # The epoch itself stays: this node has voted in it, and must not vote in it again.
        self.leader = None
        self._draw_election(now)
        self._out.note(ControllerResigned(epoch=self.epoch, reason=reason))
        # The parked fetches are refused at once, so that their senders look for another leader.
        self._serving.release(now)

    def step_down(self, now: Instant, reason: ResignReason = "shutdown") -> None:
        """Resigns in order: the other voters elect at once (EndQuorumEpoch)."""
        if self.role is not Role.LEADER:
            return
        # The request comes from the leader itself, so it also ends the time in which the voters
        # help no candidate (`end_epoch`). Without it they would wait for the whole fetch timeout.
        request = messages.end_epoch(self.me, self.epoch)
        for voter in sorted(v for v in self.voters if v != self.me):
            call = self._out.call(self.voters[voter], "quorum", request, 500)
            self._calls[call] = (voter, self.epoch)
        self._resign(reason, now)

    def _adopt(self, epoch: int, leader: int | None, now: Instant) -> None:
        """Moves to a newer epoch, or learns the leader of this one; an older one changes nothing.

        An observer takes no part in elections: it ignores an epoch without a leader, such as the
        epoch of a candidate that cannot win because of a partition.
        """
        if self.role is Role.OBSERVER and (leader is None or leader < 0):
            return
        if epoch > self.epoch:
            self._enter(epoch, now)
        # Transition to FOLLOWER (an observer stays one): the leader of the present epoch becomes
        # known.
        if epoch == self.epoch and leader is not None and leader >= 0 and self.leader != leader:
            if leader == self.me or self.role is Role.LEADER:
                return  # this node led the epoch before a restart, or leads it now
            self.leader = leader
            self._download = Download()
            self._out.note(ControllerFollowed(epoch=epoch, leader=leader))
            if self.role is not Role.OBSERVER:
                self.role = Role.FOLLOWER
                self._election_ns = now.monotonic_ns + self._patience()
            # The answer of the former leader may still come. It is about another log.
            self._fetch_call = None
            self._next_fetch_ns = now.monotonic_ns

    def _enter(self, epoch: int, now: Instant) -> None:
        """Moves to a newer epoch, whose leader is not known yet."""
        # Any message of a higher epoch ends a leadership. The voter that sent it refuses everything
        # of this older epoch, so it could not follow this leader any more.
        if self.role is Role.LEADER:
            self._resign("higher_epoch", now)
        self.epoch = epoch
        self.voted_for = None
        self.leader = None
        if self.role is not Role.OBSERVER:
            self.role = Role.UNATTACHED
            self._draw_election(now)
            # An observer stands for no election, and stores no epoch here.
            self._out.add(StoreVote(epoch, None))

    def learn_leader(self, epoch: int, leader: int, now: Instant) -> None:
        """Takes the active controller from the answer to a heartbeat.

        Otherwise an observer would learn it only when its fetch from a silent voter times out.
        """
        if self.role is Role.OBSERVER:
            self._adopt(epoch, leader, now)

    def _patience(self) -> int:
        """How long a follower waits for its leader: at least the fetch timeout."""
        return self.timing.fetch_timeout_ns + self._chance(0, self.timing.election_ns)

    # ------------------------------------------------------------------------------------ requests

    def vote(self, received: Received, request: m.VoteRequest, now: Instant) -> None:
        """Answers a Vote; a granted one is stored before the answer leaves (KIP-595, QC-07).

        A voter that hears from its leader takes part in no election, or a leader could be replaced
        while it still renews leases (QC-36; Raft, section 4.2.3). Nor does a leader for a candidate
        that it does not count: a controller that was removed while it was cut off would depose one
        leader after the other.
        """
        asked = request.topics[0].partitions[0]
        # A leader does consider a candidate that votes: that voter has not heard from it for the
        # whole fetch timeout, and will not follow this epoch again.
        if self.role is Role.LEADER:
            follows = asked.replica_id not in self.voters
        else:
            follows = now.monotonic_ns < self._follows_until_ns
        # The epoch is entered even if the vote is then refused, for example to a candidate whose
        # log is behind. Otherwise the two would never be in one epoch. An observer enters it too:
        # whoever asks it counts it as a voter, by a record that has not reached it yet.
        if not follows and asked.replica_epoch > self.epoch:
            self._enter(asked.replica_epoch, now)
        reason: VoteReason = "has_leader" if follows else self._judge_candidate(asked)
        granted = reason == "granted"
        # The order is the promise: the vote is stored, then the answer leaves (effects are carried
        # out in their order).
        if granted:
            self.voted_for = asked.replica_id
            self._out.add(StoreVote(self.epoch, self.voted_for))
            self._draw_election(now)
        self._out.note(
            VoteAnswered(
                epoch=asked.replica_epoch,
                candidate=asked.replica_id,
                granted=granted,
                reason=reason,
                log_end=self.log.end,
                last_epoch=self.log.last_epoch,
                candidate_log_end=asked.last_offset,
                candidate_last_epoch=asked.last_offset_epoch,
            )
        )
        answer = messages.vote_answer(self.leader, self.epoch, granted)
        self._out.add(Reply(received.request_id, answer))

    def _judge_candidate(self, asked: m.VotePartition) -> VoteReason:
        # A voter is in the epoch of the candidate by now, or in a newer one.
        if asked.replica_epoch < self.epoch:
            return "old_epoch"
        taken = self._policies.vote_taken(self.leader, self.voted_for, asked.replica_id)
        if taken is not None:
            return taken
        # The epoch of the last record counts first. A longer log of an older epoch may lack what
        # was committed since (Raft, section 5.4.1).
        theirs = (asked.last_offset_epoch, asked.last_offset)
        mine = (self.log.last_epoch, self.log.end)
        return "granted" if self._policies.log_is_complete(theirs, mine) else "log_behind"

    def begin_epoch(
        self, received: Received, request: m.BeginQuorumEpochRequest, now: Instant
    ) -> None:
        """Another controller announces that it leads an epoch."""
        claim = request.topics[0].partitions[0]
        error = Error.NONE
        if claim.leader_epoch < self.epoch:
            error = Error.FENCED_LEADER_EPOCH
        else:
            # An announcement is word from the leader, as the answer to a fetch is: from here on
            # this voter helps no candidate for the fetch timeout.
            self._adopt(claim.leader_epoch, claim.leader_id, now)
            self._follows_until_ns = now.monotonic_ns + self.timing.fetch_timeout_ns
        answer = messages.begin_answer(self.leader, self.epoch, error)
        self._out.add(Reply(received.request_id, answer))

    def end_epoch(self, received: Received, request: m.EndQuorumEpochRequest, now: Instant) -> None:
        """The leader of an epoch resigns: each voter stands for election soon, at a random time."""
        claim = request.topics[0].partitions[0]
        # Only the word of the leader that is followed counts. A request that was delayed, and tells
        # of an earlier epoch, would otherwise end a leadership that is well.
        if claim.leader_epoch == self.epoch and self.leader == claim.leader_id:
            self.leader = None
            if self.role is not Role.OBSERVER:
                self.role = Role.UNATTACHED
                # At random, or all voters would stand at the same moment and split their votes.
                soon = self._chance(0, self.timing.election_ns // 2)
                self._election_ns = now.monotonic_ns + soon
                self._follows_until_ns = now.monotonic_ns
        answer = messages.end_answer(self.epoch)
        self._out.add(Reply(received.request_id, answer))

    def fetch(self, received: Received, request: m.FetchRequest, now: Instant) -> None:
        """A voter or an observer fetches the metadata log."""
        asked = request.topics[0].partitions[0]
        # A fetch of a higher epoch deposes a leader, as a vote does. It resigns before the fetch is
        # served, so the answer is a refusal.
        self._adopt(asked.current_leader_epoch, None, now)
        moved, good = self._serving.fetch(received, request, now)
        if self.role is Role.LEADER:
            # A voter that fetches knows this leader.
            self._announced.pop(request.replica_state.replica_id, None)
        if moved >= 0:
            self._advance(now)
        if good:
            self._serving.serve(received, request, now)

    def fetch_snapshot(
        self, received: Received, request: m.FetchSnapshotRequest, now: Instant
    ) -> None:
        """A voter or an observer that lacks dropped records fetches the snapshot."""
        self._serving.fetch_snapshot(received, request, now)

    # -------------------------------------------------------------------------------- replication

    def append(self, values: list[bytes], now: Instant, control: bool = False) -> int:
        """The leader adds records to its log; returns the offset after them."""
        assert self.role is Role.LEADER, "only a leader appends"
        base = self.log.end
        data = record_batch.build(values, base, self.epoch, now.wall_ms, control=control)
        batch = self.log.append(data)
        self._out.add(Append(LOG_NAME, batch.base, data))
        self.electorate.take(batch.records, batch.base)
        self._reseat(now)
        self._out.add(Sync(LOG_NAME))  # votes and majorities count synced records only
        self._advance(now)
        return self.log.end

    def _advance(self, now: Instant) -> None:
        """Moves the high watermark to a majority's log end, in this leader's own epoch, and answers
        the fetches that waited for that, or for a record."""
        # `_epoch_start` is the offset of this leader's first record. Only if a majority has that
        # record, too, is everything below committed (rule 4).
        held = self._serving.held()
        if held > self._epoch_start:
            self.high_watermark = max(self.high_watermark, held)
        self._serving.release(now)

    def _fetch_from(self) -> int | None:
        """The controller to fetch from: the leader if it is known, else any."""
        # A candidate fetches from nobody, and a follower only from its leader. An observer, or a
        # voter that knows no leader, asks any other controller: the refusal names the leader.
        if self.leader != self.me and self.electorate.address(self.leader) is not None:
            return self.leader
        if self.role is Role.OBSERVER or (self.role is Role.UNATTACHED and len(self.voters) > 1):
            others = sorted(v for v in self.voters if v != self.me)
            if self._fetch_target not in others:
                return others[self._chance(0, len(others) - 1)]
            return self._fetch_target
        return None

    def _fetch(self, now: Instant) -> None:
        target = self._fetch_from()
        if target is None:
            return
        self._fetch_target = target
        # To a controller that is not known to lead, the fetch names no epoch. A leader of a newer
        # epoch would refuse the older one as fenced, although the fetcher only has to learn of it.
        epoch = self.epoch if self.leader == target else -1
        request = messages.fetch(
            self.log.end,
            epoch,
            self.log.last_epoch,
            self.timing.fetch_wait_ns // MS,
            m.ReplicaState(replica_id=self.me),
        )
        # The answer may be parked for `fetch_wait_ns`, at most a quarter of this.
        timeout_ms = self.timing.fetch_timeout_ns // MS
        address = self.electorate.address(target)
        assert address is not None, "its address was known just now"
        self._fetch_call = self._out.call(address, "metadata", request, timeout_ms)
        self._calls[self._fetch_call] = (target, self.epoch)

    def _fetch_snapshot(self, wanted: m.SnapshotId, peer: int, now: Instant) -> None:
        address = self.electorate.address(peer)
        if address is None:  # since it was asked, other voters were learned from another controller
            self._look_elsewhere(now)
            return
        request = self._download.request(wanted, self.me, self.epoch)
        timeout_ms = self.timing.fetch_timeout_ns // MS
        self._fetch_call = self._out.call(address, "metadata", request, timeout_ms)
        self._calls[self._fetch_call] = (peer, self.epoch)

    def answered(self, call_id: int, message: m.Response, now: Instant) -> bool:
        """Applies the answer to a call of the quorum; False if the call was not one."""
        known = self._calls.pop(call_id, None)
        if known is None:
            return False
        peer, epoch = known
        # A fetch that was given up, since a new leader became known, is answered all the same. Its
        # answer may be about the log of a deposed leader.
        newest = call_id == self._fetch_call
        if newest:
            self._fetch_call = None
        if messages.is_empty(message):
            if newest:  # an answer about no partition counts as none
                self._look_elsewhere(now)
            return True
        match message:
            case m.FetchResponse():
                self.electorate.learn(message.node_endpoints)
                if newest:
                    self._fetched(peer, message.responses[0].partitions[0], now)
            case m.VoteResponse():
                result = message.topics[0].partitions[0]
                if result.leader_epoch > self.epoch:
                    self._adopt(result.leader_epoch, result.leader_id, now)
                # `_count_votes` counts for a CANDIDATE only: a node that follows the leader of its
                # epoch has given up this election.
                elif result.vote_granted and epoch == self.epoch:
                    self._votes.add(peer)
                    self._count_votes(now)
            case m.FetchSnapshotResponse():
                if newest:
                    self._snapshot_fetched(peer, message.topics[0].partitions[0], now)
            case m.BeginQuorumEpochResponse() | m.EndQuorumEpochResponse():
                theirs = message.topics[0].partitions[0]
                self._adopt(theirs.leader_epoch, theirs.leader_id, now)
            case _:
                raise AssertionError(f"{message!r} answers no call of the quorum")
        return True

    def failed(self, call_id: int, now: Instant) -> None:
        """A call got no answer, if it was the quorum's."""
        self._calls.pop(call_id, None)
        if call_id == self._fetch_call:
            self._fetch_call = None
            self._look_elsewhere(now)

    def _look_elsewhere(self, now: Instant) -> None:
        """After a fetch found no leader, an observer forgets it and asks the next controller."""
        if self.role is Role.OBSERVER:
            self.leader = None
        # The controllers are asked in turn. A quarter of the longest wait at the leader lies
        # between two such questions, so that a quorum without a leader is not flooded by its
        # observers.
        others = sorted(v for v in self.voters if v != self.me)
        if others:
            after = [v for v in others if v > self._fetch_target]
            self._fetch_target = (after or others)[0]
        self._next_fetch_ns = now.monotonic_ns + self.timing.fetch_wait_ns // 4

    def _of_leader(self, peer: int, claim: m.LeaderIdAndEpoch, error: int, now: Instant) -> bool:
        """Learns the leader; returns whether the answer is the leader's, without an error."""
        known = self.leader
        # A newer epoch is adopted from anybody. In the present epoch a leader is learned only if
        # none is known, so that a false word cannot replace the known one.
        if claim.leader_epoch > self.epoch or (
            claim.leader_epoch == self.epoch and self.leader is None
        ):
            self._adopt(claim.leader_epoch, claim.leader_id, now)
        if error != Error.NONE or self.leader != peer:
            # The leader that this voter promised to follow says itself that it leads no more. The
            # promise is over, and an election need not wait for the fetch timeout.
            if peer == known:
                self._follows_until_ns = now.monotonic_ns  # it no longer leads
            if self.leader is None or self.leader == known:
                self._look_elsewhere(now)
            return False
        # This answer renews the promise of rule 1. It is measured from its arrival here; the leader
        # measures from the arrival of the fetch, which is earlier.
        if self.role is not Role.OBSERVER:
            self._election_ns = now.monotonic_ns + self._patience()
            self._follows_until_ns = now.monotonic_ns + self.timing.fetch_timeout_ns
        return True

    def _fetched(self, peer: int, part: m.PartitionData, now: Instant) -> None:
        if not self._of_leader(peer, part.current_leader, part.error_code, now):
            return
        # An answer is one of three: the log continues, it has diverged, or it begins only after
        # this node's end, so that a snapshot is needed.
        self._leaders_stable = max(self._leaders_stable, part.high_watermark)
        if part.snapshot_id.epoch >= 0:
            self._fetch_snapshot(part.snapshot_id, peer, now)
            return
        if part.diverging_epoch.epoch >= 0:
            self._truncate(part.diverging_epoch, now)
            return
        assert part.records is None or isinstance(part.records, bytes)
        try:
            for _, data in record_batch.split(part.records or b""):
                batch = self.log.append(data)
                self._out.add(Append(LOG_NAME, batch.base, data))
                self.electorate.take(batch.records, batch.base)
                self._reseat(now)
        except UnknownRecord as unknown:
            # A record that this version does not know may change anything. To skip it would give
            # this node another state than the others have.
            self._out.end(f"the metadata log cannot be read on: {unknown}", EXIT_UNREADABLE)
            return
        except record_batch.CorruptBatch:
            self._look_elsewhere(now)
            return
        # Before the next fetch leaves, which tells the leader that these records are held.
        if part.records and self.me in self.voters:
            self._out.add(Sync(LOG_NAME))
        self.high_watermark = max(self.high_watermark, min(part.high_watermark, self.log.end))
        # The next fetch waits at the leader, and not here, so news takes one way and not two.
        self._fetch(now)

    def _snapshot_fetched(self, peer: int, part: m.PartitionSnapshotData, now: Instant) -> None:
        """Adds a part of a snapshot; after the last one, the log begins at its offset."""
        if not self._of_leader(peer, part.current_leader, part.error_code, now):
            self._download = Download()
            return
        snapshot = self._download.take(part)
        if snapshot is not None:
            # The snapshot is stored before the log is emptied. A process that dies between the two
            # has both, and `MetadataLog` leaves out the batches that the snapshot covers.
            self._out.add(StoreSnapshot(LOG_NAME, snapshot.offset, snapshot.epoch, snapshot.data))
            self._out.add(Truncate(LOG_NAME, 0))
            self.log.install(snapshot)
            self.electorate.follow(self.log)
            self._reseat(now)
            self.high_watermark = max(self.high_watermark, snapshot.offset)
        elif self._download.wanted is not None:
            self._fetch_snapshot(self._download.wanted, peer, now)

    def _truncate(self, diverging: m.EpochEndOffset, now: Instant) -> None:
        """Drops the records past the end of the last epoch that the leader has, too."""
        # The leader names its last epoch up to ours, and where it ends there. This log may have
        # less of that epoch, and more of later ones: the lower end is common to both.
        _, mine = self.log.index.end_for_epoch(diverging.epoch)
        to_offset = min(diverging.end_offset, mine)
        before = self.log.end
        # Even the snapshot is of another history. Nothing of this log is kept; the leader gives the
        # whole state again.
        whole = to_offset < self.log.start
        after = self.log.truncate(to_offset)
        self.electorate.follow(self.log)
        self._reseat(now)
        self._out.note(
            MetadataTruncated(
                from_offset=after,
                log_end=before,
                high_watermark=self.high_watermark,
                epoch=self.epoch,
            )
        )
        self._out.add(Delete(LOG_NAME) if whole else Truncate(LOG_NAME, after))
        # The high watermark falls only if a leader lacks committed records. The history shows that;
        # this node follows its leader nevertheless.
        self.high_watermark = min(self.high_watermark, after)
