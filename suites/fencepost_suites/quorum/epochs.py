"""The quorum: elections of the active controller (QC-07), and what they must not lose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from msgspec import Struct

from fencepost import (
    HARMS_FLUSHED,
    NOTHING,
    Cause,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultInjected,
    Finding,
    Findings,
    Forfeiture,
    NodeStarted,
    ProcessSpawned,
    Reason,
    Rule,
    Scope,
    Violated,
    on,
    process_scope,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_kafka import (
    ControllerElected,
    ControllerFollowed,
    ElectionStarted,
    MetadataCommitted,
    VoteAnswered,
)
from fencepost_kafka.judging.owed import STARTS

UNSAID: Final = 1 << 62


def said(number: int) -> int:
    """What a winner says of its log. One that does not say so (-1) is held to nothing."""
    return number if number >= 0 else UNSAID


class _Won(Struct, frozen=True):
    """An election."""

    process: str
    ref: Cause
    log_end: int
    last_epoch: int
    """The epoch of the last record in its log; one that does not say so is held to nothing."""
    harmed: bool
    """Whether any disk of a voter had lost what was committed."""

    def lacks(self, offset: int, record_epoch: int) -> bool:
        """Whether its log cannot have a record. A log with a record of an epoch ends with a record
        of that epoch, or of a later one."""
        return offset >= self.log_end or record_epoch > self.last_epoch


@dataclass(slots=True)
class _Quorum:
    """The votes, elections and committed records of a run."""

    ids: dict[str, int] = field(default_factory=dict)
    """process of a controller -> its id: by the harness, or if that does not tell, by its own
    word. Two that follow a winner, which names another id as its own, have not followed two."""
    started_as: dict[str, int] = field(default_factory=dict)
    """process of a controller -> the id with which the harness started it."""
    leaders: dict[int, _Won] = field(default_factory=dict)
    """epoch -> its first winner."""
    newest: int = -1
    """The newest epoch that any event has named."""
    votes: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """(voter's slot, epoch) -> the candidate it voted for."""
    records: dict[int, tuple[int, str, str, int]] = field(default_factory=dict)
    """offset -> epoch, digest, and the process and number of the event that committed it first."""
    highest: dict[int, int] = field(default_factory=dict)
    """epoch -> the highest offset that was committed in it, or before."""
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    """epoch of a record -> the epoch in which the first one of them was committed that was told, or
    before, and its offset."""
    named: dict[int, dict[int, dict[str, Cause]]] = field(default_factory=dict)
    """epoch -> id of a controller -> the processes that had it for the one of that epoch, each with
    its event: it won, or they followed it."""
    parted: set[int] = field(default_factory=set)
    """The epochs in which nodes are found to have followed two."""
    supporters: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    """(epoch, candidate) -> the slots of its voters."""
    forgotten: dict[tuple[str, int], str] = field(default_factory=dict)
    """(voter's slot, epoch) -> the fault that took the disk with that vote."""
    twice: dict[int, set[str]] = field(default_factory=dict)
    """epoch -> the slots that voted again, since they had forgotten their first vote."""
    lost: dict[str, tuple[int, str]] = field(default_factory=dict)
    """slot -> the highest offset that was committed when its disk was harmed, and the fault; until
    it has that much again, by its own word."""

    def committed_in(self, epoch: int) -> int:
        """An epoch before whose end a record of this epoch was committed, which is told now.

        A leader may commit records of earlier epochs, and the next one need not have had them
        before. So the epoch of the record alone does not tell. But no leader commits anything
        before it is voted for, and if one of `newest` had committed a record of an earlier epoch,
        that was in its own log when it was elected. So every later winner has the record, and the
        one of `newest`, too: it counts as one of the epoch before."""
        return max(epoch, self.newest - 1)

    def harm(self, body: FaultInjected) -> None:
        """A fault empties or damages disks."""
        slots = body.acts(*HARMS_FLUSHED) & self.voters()
        top = max(self.highest.values(), default=-1)
        self.lost |= dict.fromkeys(slots, (top, body.fault_id))
        # Each vote is stored on that disk, so it may be given a second time.
        self.forgotten |= {vote: body.fault_id for vote in self.votes if vote[0] in slots}

    def found(self, slot: str, offset: int) -> None:
        """A controller has the log up to there, by its own word."""
        # It has replayed as far as what was committed before the harm: nothing is lost by it any
        # more.
        if slot in self.lost and offset >= self.lost[slot][0]:
            del self.lost[slot]

    def voters(self) -> set[str]:
        """The slots of the controllers."""
        return {slot_of(process) for process in self.ids}

    def replaced(self, epoch: int, one: str, other: str) -> str:
        """The faults by which two controllers may have been elected in an epoch, since each voter
        that they share had lost its first vote; empty if there is none."""
        # Two majorities share a voter. If each voter of both had forgotten its first vote, both
        # elections are explained; one that had not is a broken promise.
        both = self._of(epoch, one) & self._of(epoch, other)
        if slot_of(one) == slot_of(other):  # its voters may give it the same vote again
            both &= {slot_of(one)}
        if not both or not both <= self.twice.get(epoch, set()):
            return ""
        return ", ".join(sorted({self.lost.get(slot, (0, "a lost disk"))[1] for slot in both}))

    def forfeited(self, epoch: int, winner: str, offset: int) -> str:
        """The faults by which the voters of a winner may all have lacked a record: without those
        that lost it with their disks, they are too few to share one with each majority. Empty if
        there are none."""
        every, chose = self.voters(), self._of(epoch, winner)
        harmed = {slot for slot in chose if self.lost.get(slot, (-1, ""))[0] >= offset}
        majority = len(every) // 2 + 1
        # With the harmed ones taken away, do the winner's voters still meet every majority? If so,
        # one of them had the record, and should have refused.
        if len(chose) < majority or not harmed or len(chose - harmed) + majority > len(every):
            return ""
        return ", ".join(sorted({self.lost[slot][1] for slot in harmed}))

    def _of(self, epoch: int, process: str) -> set[str]:
        return self.supporters.get((epoch, self.ids.get(process, -1)), set())


@final
class OneControllerAnEpoch(Rule[_Quorum]):
    """QC-07. Exercised by a vote refused for a second candidate or a shorter log, and by every
    later election: the votes ensured that the winner had everything committed.

    A voter whose disk was emptied or damaged has forgotten its votes and its log, and KIP-595
    promises nothing without these. So a second vote is excused if the first one was lost, two
    winners if each voter of both had lost its vote, and a winner without a committed record if so
    many of its voters had lost theirs that the others may all have lacked it. From such a winner on
    the whole run is forfeited (`MetadataLost`)."""

    clause = "QC-07"
    absence = (STARTS,)

    state = _Quorum

    @staticmethod
    def forfeiture() -> Forfeiture:
        """What the loss of voters' disks takes from every promise."""
        return MetadataLost()

    @on(
        NodeStarted,
        ProcessSpawned,
        ElectionStarted,
        VoteAnswered,
        ControllerElected,
        ControllerFollowed,
        MetadataCommitted,
        FaultInjected,
    )
    def step(self, state: _Quorum, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataCommitted():
                return self._committed(state, event, body)
            case ControllerElected():
                mine = state.ids.get(event.process, -1)
                return [
                    *self._elected(state, event, body),
                    *self._named(state, event, body.epoch, mine),
                ]
            case ControllerFollowed():
                return self._named(state, event, body.epoch, body.leader)
            case VoteAnswered():
                return self._voted(state, event, body)
            case ElectionStarted():
                mine = state.ids.get(event.process, -1)
                return self._vote(state, event, body.epoch, mine)
            case ProcessSpawned(role="controller"):
                state.started_as[body.started] = body.node_id
                # Both tell of one start, and the process may have told first.
                if body.started in state.ids:
                    state.ids[body.started] = body.node_id
            case NodeStarted(role="controller"):
                state.ids[event.process] = state.started_as.get(event.process, body.node_id)
            case FaultInjected(receipt=True) as body if body.acts(*HARMS_FLUSHED):
                state.harm(body)
        return NOTHING

    def _committed(self, state: _Quorum, event: Event, body: MetadataCommitted) -> Findings:
        known = state.records.get(body.offset)
        if state.lost:
            state.found(slot_of(event.process), body.offset)
        if known is None:
            state.newest = max(state.newest, body.epoch)
            epoch = state.committed_in(body.epoch)
            state.records[body.offset] = (body.epoch, body.digest, event.process, event.node_seq)
            state.highest[epoch] = max(body.offset, state.highest.get(epoch, -1))
            state.written.setdefault(body.epoch, (epoch, body.offset))
            return self._told_late(state, event, body.offset, epoch)
        epoch, digest, process, seq = known
        if (epoch, digest) == (body.epoch, body.digest):
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} committed another record at metadata offset {offset} (epoch {epoch}) than "
            "{other} had (epoch {other_epoch})",
            (Cause(process, seq),),
            process=process_scope(event.process),
            offset=body.offset,
            epoch=body.epoch,
            other=process_scope(process),
            other_epoch=epoch,
        )
        return (broken,)

    def _elected(self, state: _Quorum, event: Event, body: ControllerElected) -> Findings:
        found: list[Finding] = []
        known = state.leaders.get(body.epoch)
        if known is not None and known.process != event.process:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} and {other} were both elected in epoch {epoch}",
                (known.ref,),
                process=process_scope(event.process),
                other=process_scope(known.process),
                epoch=body.epoch,
                term=Scope("term", str(body.epoch)),
            )
            fault = state.replaced(body.epoch, event.process, known.process)
            taken = Reason.of("by votes that {fault} had taken", fault=fault)
            found.append(Excused.of(broken, taken, ", ") if fault else broken)
        # An election that is reported behind a later one. Its winner need not have what later
        # leaders committed, unless voters had forgotten their epochs with their disks.
        late = any(epoch > body.epoch for epoch in state.leaders)
        due = max((top for epoch, top in state.highest.items() if epoch < body.epoch), default=-1)
        top = max(state.highest.values(), default=-1) if late else due
        end, last_epoch = said(body.log_end), said(body.last_epoch)
        won = _Won(event.process, event.ref, end, last_epoch, bool(state.lost))
        newer = [
            offset
            for written, (epoch, offset) in state.written.items()
            if epoch < body.epoch and written > last_epoch
        ]
        if newer and due < end:
            # It is long enough, and another log: it ends before the first such record.
            due = top = end = min(newer)
        fault = state.forfeited(body.epoch, event.process, top) if top >= end else ""
        if fault:
            taken = Reason.of("{fault} had taken it from voters", fault=fault)
            broken = self._lacks(state, event.ref, body.epoch, won, top)
            found.append(Excused.of(broken, taken))
        elif due >= end:
            found.append(self._lacks(state, event.ref, body.epoch, won, due))
        elif due >= 0 and state.leaders and not late:
            found.append(Exercised(event.ref, Evidence.PEER))
        state.newest = max(state.newest, body.epoch)
        state.leaders.setdefault(body.epoch, won)
        return found

    def _told_late(self, state: _Quorum, event: Event, offset: int, committed: int) -> Findings:
        """A record is told to be committed once a leader is elected that should have it."""
        found: list[Finding] = []
        for epoch, won in state.leaders.items():
            # The disks of voters may have lost it, and nobody knew by then that it was there.
            lacks = won.lacks(offset, state.records[offset][0])
            if epoch > committed and lacks and not won.harmed:
                found.append(self._lacks(state, event.ref, epoch, won, offset))
        return found

    @staticmethod
    def _lacks(state: _Quorum, at: Cause, epoch: int, won: _Won, offset: int) -> Violated:
        """The winner of an epoch lacks a record that was committed before."""
        written, _, process, seq = state.records[offset]
        told = Cause(process, seq)
        return violated(
            at,
            Evidence.PEER,
            "{process} won epoch {epoch} with a log that ends at {log_end}, though "
            "{other} had committed offset {committed}"
            if offset >= won.log_end
            else "{process} won epoch {epoch} with a log whose last epoch is {last_epoch}, though "
            "{other} had committed offset {committed} of epoch {committed_epoch}",
            (won.ref if at == told else told,),
            process=process_scope(won.process),
            epoch=epoch,
            log_end=won.log_end,
            last_epoch=won.last_epoch,
            other=process_scope(process),
            committed=offset,
            committed_epoch=written,
            term=Scope("term", str(epoch)),
        )

    @staticmethod
    def _named(state: _Quorum, event: Event, epoch: int, controller: int) -> Findings:
        """A node says who is the controller of an epoch: that one itself, or one that follows it.
        Two that were both elected are found by their own words. The word of a single follower
        accuses nobody."""
        if controller < 0:
            return NOTHING
        named = state.named.setdefault(epoch, {})
        named.setdefault(controller, {}).setdefault(event.process, event.ref)
        won = state.leaders.get(epoch)
        sure = {
            one: told
            for one, told in named.items()
            if len(told) > 1 or (won is not None and won.process in told)
        }
        # A voter that has forgotten its vote with its disk may have given it to both.
        forgotten = state.lost or state.twice.get(epoch)
        if len(sure) < 2 or forgotten or epoch in state.parted:
            return NOTHING
        state.parted.add(epoch)
        one, other = list(sure)[:2]
        broken = violated(
            event.ref,
            Evidence.PEER,
            "nodes had both {controller} and {other} for the controller of epoch {epoch}",
            tuple(at for which in (one, other) for at in [*sure[which].values()][:2]),
            controller=Scope("controller", str(one)),
            other=Scope("controller", str(other)),
            epoch=epoch,
            term=Scope("term", str(epoch)),
        )
        return (broken,)

    def _voted(self, state: _Quorum, event: Event, body: VoteAnswered) -> Findings:
        if body.granted:
            return self._vote(state, event, body.epoch, body.candidate)
        if body.reason in ("already_voted", "log_behind"):
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    def _vote(self, state: _Quorum, event: Event, epoch: int, candidate: int) -> Findings:
        # By the slot: a restarted controller is bound by the vote that its former process stored.
        voter = slot_of(event.process)
        state.newest = max(state.newest, epoch)
        state.supporters.setdefault((epoch, candidate), set()).add(voter)
        known = state.votes.setdefault((voter, epoch), (candidate, event.ref))
        # Forgotten once: the vote that it gives next is stored again, and binds it.
        fault = state.forgotten.pop((voter, epoch), "")
        if fault:
            state.votes[voter, epoch] = candidate, event.ref
            state.twice.setdefault(epoch, set()).add(voter)
        if known[0] == candidate:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{slot} voted for both {other} and {controller} in epoch {epoch}",
            (known[1],),
            slot=slot_scope(voter),
            other=Scope("controller", str(known[0])),
            controller=Scope("controller", str(candidate)),
            epoch=epoch,
            term=Scope("term", str(epoch)),
        )
        if fault:
            taken = Reason.of("{fault} had taken its first vote", fault=fault)
            return (Excused.of(broken, taken),)
        return (broken,)


@final
class MetadataLost:
    """The committed metadata may be lost, and every promise stands on it: a controller is elected
    though QC-07 would forbid it, by voters that had lost their disks. From then on records at the
    offsets of former ones differ, and nodes keep what others never had."""

    def __init__(self) -> None:
        self._rule = OneControllerAnEpoch()
        self._quorum = _Quorum()
        self.kinds = self._rule.kinds

    def take(self, event: Event) -> Reason | None:
        """See `Forfeiture.take`."""
        # The rule's own fold decides, so the two cannot differ about what is excused.
        found = self._rule.step(self._quorum, event, event.body)
        if not isinstance(event.body, ControllerElected):
            return None
        for one in found:
            if isinstance(one, Excused):
                return Reason.of("{excused}", excused=one.message, **{**one.facts, **one.why})
        return None
