"""The in-sync replicas that do not keep up, and must be dropped (RP-09)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Deadline,
    Effect,
    Event,
    Evidence,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    NodeStopped,
    ProcessExited,
    Rule,
    RunEnd,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    LeaseGranted,
    LogAppended,
    PartitionCommitted,
    ProduceAnswered,
    TopicCommitted,
    partition_at,
)
from fencepost_kafka.committed import TopicPartition
from fencepost_kafka.judging.owed import HIGH_WATERMARKS

KEEP_IN_SYNC_MS = 30_000
"""Kafka's default of replica.lag.time.max.ms, used if a leader does not report its own."""
ANSWERED_WITHIN_MS = 30_000
"""Kafka's default of request.timeout.ms: after it a request without an answer is sent again."""

_ASK_ELSEWHERE = frozenset(
    {
        *("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "STALE_BROKER_EPOCH", "INVALID_INCARNATION_ID"),
        "BROKER_ID_NOT_REGISTERED",
    }
)
"""Errors that do not judge the ISR: the receiver is no controller, the request came too late, or
the broker has lost its id or its registration."""
_NOT_SENT = "OPERATION_NOT_ATTEMPTED"
"""The word of the broker itself: an earlier request for that partition has no answer, and none is
sent until then."""

_TRIED = {
    "": "asked to drop no follower",
    "unanswered": "has no answer to a request for another ISR, though controllers answer it",
    "refused": "was refused {times} times to drop a follower",
    "granted": "was granted {times} times to drop a follower, which is not stored",
    "elsewhere": "says that it is to ask elsewhere, though controllers answer it",
}
"""What came of a leader's requests, by the fact `tried`."""


@dataclass(slots=True)
class _Blocked:
    """How long the leader's oldest uncommitted message has waited, and the leader's request to drop
    replicas."""

    leader: str = ""
    keep_ms: int = KEEP_IN_SYNC_MS
    since_ns: int = 0
    waiting: bool = False
    at: Event | None = None
    """The event since which it waits."""
    dropping: tuple[int, frozenset[int]] | None = None
    """The leader epoch of the request to drop replicas, and those replicas."""
    stored: int | None = None
    """The leader epoch in which that was stored, once it is."""
    asked: frozenset[int] = frozenset()
    """The replicas that the leader asked last to drop."""
    unanswered_ns: int = 0
    """Since when a request to drop replicas has had no answer (0: there is none): the leader cannot
    store that."""
    adding_ns: int = 0
    """Since when a request to add a replica has had no answer (0: there is none): until then the
    leader can ask for nothing else (KIP-497)."""
    refused: int = 0
    """How many such requests were refused while the oldest message waited."""
    granted: frozenset[int] = frozenset()
    """Replicas whose drop was granted, while no record has stored it."""
    grants: int = 0
    """How often the drop of such a replica was granted again while the oldest message waited."""
    elsewhere_ns: int = 0
    """When the leader was first told to ask elsewhere, as the oldest message waited (0: never)."""
    mark: int = -1
    """The high watermark that it reported last."""
    began_ns: int = 0
    """As `since_ns`, but a request that is repeated without an answer does not move it."""
    epoch: int = -1
    """The newest leader epoch of the leader's own events."""
    record: PartitionCommitted | None = None
    suspects: list[Deadline] = field(default_factory=list)

    @property
    def alone(self) -> bool:
        """Whether the stored ISR has no follower."""
        return self.record is not None and len(self.record.isr) < 2

    @property
    def offset(self) -> int:
        """That of the newest record."""
        return -1 if self.record is None else self.record.offset

    @property
    def deposed(self) -> bool:
        """Whether the newest record is of an epoch that the leader has not begun."""
        return self.record is not None and self.record.leader_epoch > self.epoch

    def anew(self, at_ns: int) -> None:
        """The time begins anew."""
        self.since_ns = self.began_ns = at_ns
        self.refused = self.grants = self.elsewhere_ns = 0

    def grant(self, at_ns: int) -> None:
        """What the leader asked for is granted. That gives it time once, until it is stored."""
        again, kept = self.asked & self.granted, self.record
        # No record has stored it yet. A leader that is granted the same drop again and again, and
        # never gets it stored, was silent for ever when each grant gave it time.
        if kept is None or self.asked & set(kept.isr) or kept.leader_epoch < self.epoch:
            self.granted |= self.asked
        if again:
            self.grants += 1
        else:
            self.anew(at_ns)


class _Touch(Struct):
    """How long a broker has been in touch with a controller without a gap."""

    from_ns: int
    to_ns: int
    lease_ns: int


@dataclass(slots=True)
class _Leaders:
    """The partitions, and the brokers' processes that serve no client."""

    partitions: dict[tuple[str, int], _Blocked] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    touch: dict[str, _Touch] = field(default_factory=dict)
    exited: dict[str, int] = field(default_factory=dict)
    """process -> when it ended, for those that end with the run: nothing comes after."""
    gone: set[str] = field(default_factory=set)
    """The processes that have ended before."""
    keep_ms: dict[str, int] = field(default_factory=dict)
    """slot -> the time that its process has named last."""
    paused: dict[str, tuple[frozenset[str], int]] = field(default_factory=dict)
    """fault -> the slots that it stops, and since when, until it is healed."""
    stood: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """slot -> from when to when a fault that was healed since had stopped it."""

    def runs_until(self, process: str, end_ns: int) -> int:
        """Until when a process ran: one that a fault has stopped for good never reports that."""
        began = [ns for slots, ns in self.paused.values() if slot_of(process) in slots]
        return min((end_ns, *began))

    def stood_ns(self, process: str, from_ns: int, to_ns: int) -> int:
        """For how long of a time faults had stopped a process. Apache Kafka says nothing of its
        stalls, and its first event after a pause may come before the healing is recorded."""
        total_ns, reached_ns = 0, from_ns
        stood = [*self.stood.get(slot_of(process), ()), (self.runs_until(process, to_ns), to_ns)]
        for began_ns, ended_ns in sorted(stood):  # two faults may stop it at once
            total_ns += max(0, min(ended_ns, to_ns) - max(began_ns, reached_ns))
            reached_ns = max(reached_ns, min(ended_ns, to_ns))
        return total_ns

    def allowed_ms(self, process: str, named_ms: int) -> int:
        """How long a leader may keep a replica in its ISR that does not keep up. The setting is the
        cluster's: none has more time than all others have named."""
        slot = slot_of(process)
        self.keep_ms[slot] = named_ms
        others = [ms for other, ms in self.keep_ms.items() if other != slot]
        return min(named_ms, max(others, default=named_ms))

    def in_touch(self, process: str, at_ns: int) -> bool:
        """Whether the controllers answer a broker's heartbeats."""
        touch = self.touch.get(process)
        return touch is not None and at_ns - touch.to_ns <= touch.lease_ns

    def granted(self, event: Event, body: LeaseGranted) -> None:
        """A controller has answered a broker."""
        self.goes_on()
        lease_ns = (body.lease_end_ms - body.lease_start_ms) * MS
        known = self.touch.get(event.process)
        # A gap longer than a lease: what was in touch before was interrupted.
        if known is None or event.at_ns - known.to_ns > known.lease_ns:
            self.touch[event.process] = _Touch(event.at_ns, event.at_ns, lease_ns)
        else:
            known.to_ns, known.lease_ns = event.at_ns, lease_ns

    def since(self, one: _Blocked, at_ns: int) -> int:
        """From when on the time counts that the leader has let its oldest message wait. While a
        request has no answer it does not run, unless the controllers answer the leader's heartbeats
        all the time: then the request must be answered, or be sent again and be answered."""
        pending = [asked for asked in (one.unanswered_ns, one.adding_ns) if asked]
        if not pending:
            return one.since_ns
        touch = self.touch.get(one.leader)
        # Nobody answers this leader now, so it cannot be held against it that a request has no
        # answer.
        if touch is None or not self.in_touch(one.leader, at_ns):
            return at_ns
        # It was in touch all the time. After the timeout of a request it must have sent it again,
        # and been answered.
        return max(one.began_ns, touch.from_ns, min(pending)) + ANSWERED_WITHIN_MS * MS

    def goes_on(self) -> None:
        """The run goes on after what has ended so far."""
        if self.exited:
            self.gone.update(self.exited)
            self.exited.clear()

    def of(self, body: Any) -> _Blocked:
        """The partition that an event is about."""
        if self.exited:
            self.goes_on()
        place = (body.topic, body.partition)
        one = self.partitions.get(place)
        if one is None:
            one = self.partitions[place] = _Blocked()
        return one


@final
class LaggardIsDropped(Rule[_Leaders]):
    """RP-09. If the commits of a serving leader wait for twice the allowed time and 2 s, the leader
    must have asked for a smaller ISR, and that must have been stored. The time begins anew where
    the leader could not store it: it is fenced, gets no answer or one that it must ask elsewhere,
    or a record deposes it; and it does not run while the stored ISR has no follower, a request to
    add one has no answer, or a fault has stopped the leader. A refusal of what the leader may ask
    is no excuse, nor is a second grant of what is never stored, nor a request without an answer
    while the controllers answer the leader's heartbeats, nor for long that it is to ask elsewhere
    meanwhile. A high watermark that does not grow commits nothing. The allowed time is that which a
    leader names, and no longer than all others name. A commit and a request that come late are
    judged then, a write that waits at the end is judged there. Exercised when the request was
    stored by the controller and commits continued."""

    clause = "RP-09"
    absence = (HIGH_WATERMARKS,)
    state = _Leaders

    @on(LeaseGranted)
    def _touched(self, state: _Leaders, event: Event, body: LeaseGranted) -> Findings:
        state.granted(event, body)
        return NOTHING

    @on(ProcessExited)
    def _exited(self, state: _Leaders, event: Event, body: ProcessExited) -> Findings:
        state.exited.setdefault(body.ended, event.at_ns)
        return NOTHING

    @on(NodeStopped)
    def _stopped(self, state: _Leaders, event: Event, body: NodeStopped) -> Findings:
        state.exited.setdefault(event.process, event.at_ns)
        return NOTHING

    @on(FaultInjected)
    def _paused(self, state: _Leaders, event: Event, body: FaultInjected) -> Findings:
        slots = body.acts(Effect.STOPS) if body.receipt else frozenset[str]()
        if slots:
            state.paused[body.fault_id] = slots, body.began_at_ns or event.at_ns
        return NOTHING

    @on(FaultHealed)
    def _healed(self, state: _Leaders, event: Event, body: FaultHealed) -> Findings:
        slots, from_ns = state.paused.pop(body.fault_id, (frozenset[str](), 0))
        for slot in slots:
            state.stood.setdefault(slot, []).append((from_ns, body.began_at_ns or event.at_ns))
        return NOTHING

    @on(TopicCommitted)
    def _deleted(self, state: _Leaders, event: Event, body: TopicCommitted) -> Findings:
        for place, one in state.partitions.items():
            if body.deleted and place[0] == body.topic and body.offset > one.offset:
                state.partitions[place] = self._led_by(one)
        return NOTHING

    @on(BrokerStateChanged)
    def _changed(self, state: _Leaders, event: Event, body: BrokerStateChanged) -> Findings:
        # A leader that serves no client commits nothing, and nobody waits for it.
        if body.new != "ACTIVE":
            for place, one in state.partitions.items():
                if one.leader == event.process:
                    self._overdue(state, one, place, event.at_ns, event)
            state.fenced.add(event.process)
            return NOTHING
        state.fenced.discard(event.process)
        for one in state.partitions.values():
            if one.leader == event.process:
                one.since_ns = one.began_ns = event.at_ns
        return NOTHING

    @on(LogAppended)
    def _appended(self, state: _Leaders, event: Event, body: LogAppended) -> Findings:
        one = state.of(body)
        if event.process == one.leader:
            # Each further append is a time at which the leader is known to be at work.
            if one.waiting:
                self._overdue(state, one, (body.topic, body.partition), event.at_ns, event)
            else:
                one.waiting, one.at = True, event
                one.since_ns = one.began_ns = event.at_ns
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _commits(self, state: _Leaders, event: Event, body: HighWatermarkAdvanced) -> Findings:
        one = state.of(body)
        if event.process != one.leader or not body.as_leader:
            return NOTHING
        one.epoch = max(one.epoch, body.leader_epoch)
        # It may be too late already: one write that waited for ten minutes, and was committed then,
        # was judged only if another write came in meanwhile. A high watermark that stays the same
        # commits nothing.
        self._overdue(state, one, (body.topic, body.partition), event.at_ns, event)
        if body.high_watermark > one.mark or not one.waiting:
            one.waiting, one.at = body.high_watermark < body.log_end, event
            one.anew(event.at_ns)
        one.mark = body.high_watermark
        # The smaller ISR was stored, and commits go on by it: the promise was kept.
        if one.stored is not None and body.leader_epoch >= one.stored:
            one.dropping, one.stored = None, None
            return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @on(ProduceAnswered)
    def _answered(self, state: _Leaders, event: Event, body: ProduceAnswered) -> Findings:
        one = state.of(body)
        if body.error == "REQUEST_TIMED_OUT" and event.process == one.leader:
            self._overdue(state, one, (body.topic, body.partition), event.at_ns, event)
        return NOTHING

    @on(IsrChangeAsked, LeadershipStarted, LeadershipEnded, PartitionCommitted, IsrChangeAnswered)
    def _moved(self, state: _Leaders, event: Event, body: Struct) -> Findings:
        """The leader of a partition or its ISR changes, or is to change."""
        one = state.of(body)
        match body:
            case IsrChangeAsked():
                # Its first request may come too late; later ones are judged by what comes of them.
                first = not (one.refused or one.granted or one.unanswered_ns)
                if event.process == one.leader and first:
                    self._overdue(state, one, (body.topic, body.partition), event.at_ns, event)
                self._asked(one, event, body)
            case IsrChangeAnswered() if body.error == _NOT_SENT:
                pass  # the earlier request has no answer yet
            # The time of the request is taken out of the waiting: since then the leader could ask
            # for nothing else.
            case IsrChangeAnswered() if one.adding_ns and event.process == one.leader:
                one.since_ns += event.at_ns - max(one.adding_ns, one.since_ns)
                one.began_ns, one.adding_ns = one.since_ns, 0
            case IsrChangeAnswered() if one.unanswered_ns and event.process == one.leader:
                one.unanswered_ns = 0
                if body.error == "NONE":
                    one.grant(event.at_ns)
                elif body.error in _ASK_ELSEWHERE:
                    self._elsewhere(state, one, event.at_ns)
                else:
                    one.refused += 1
            case PartitionCommitted():
                self._recorded(one, event, body)
            case LeadershipStarted():
                named_ms = body.keep_in_sync_ms or KEEP_IN_SYNC_MS
                keep_ms = state.allowed_ms(event.process, named_ms)
                if event.process != one.leader:
                    one = self._led_by(one, event.process, keep_ms)
                    state.partitions[body.topic, body.partition] = one
                one.epoch = max(one.epoch, body.leader_epoch)
                one.mark = body.high_watermark
            case LeadershipEnded() if event.process == one.leader:
                state.partitions[body.topic, body.partition] = self._led_by(one)
        return NOTHING

    @staticmethod
    def _elsewhere(state: _Leaders, one: _Blocked, at_ns: int) -> None:
        """The leader says that it is to ask elsewhere, which gives it time; but not for long while
        the controllers answer its heartbeats: it would have found the right one."""
        in_touch = state.in_touch(one.leader, at_ns)
        since_ns = (one.elsewhere_ns or at_ns) if in_touch else at_ns
        if at_ns - since_ns <= ANSWERED_WITHIN_MS * MS:
            one.anew(at_ns)
        one.elsewhere_ns = since_ns

    @staticmethod
    def _led_by(state: _Blocked, leader: str = "", keep_ms: int = KEEP_IN_SYNC_MS) -> _Blocked:
        """The partition with another leader, or none."""
        # The record and the suspects are the partition's; all else was the former leader's.
        return _Blocked(leader, keep_ms, record=state.record, suspects=state.suspects)

    def _recorded(self, state: _Blocked, event: Event, body: PartitionCommitted) -> None:
        """A record deposes a leader, stores its smaller ISR, or leaves it alone in its ISR or no
        longer."""
        if body.offset > state.offset:
            alone, state.record = state.alone, body
            if alone and not state.alone:
                state.anew(event.at_ns)
            # A record of an earlier epoch that comes late stores nothing of this leader.
            if body.leader_epoch >= state.epoch:
                state.granted &= set(body.isr)
        if state.dropping is None:
            return
        epoch, dropped = state.dropping
        if body.leader_epoch >= epoch and not dropped & set(body.isr):
            state.stored = body.leader_epoch
        if body.leader_epoch > epoch:
            state.anew(event.at_ns)

    def _asked(self, state: _Blocked, event: Event, body: IsrChangeAsked) -> None:
        dropped = frozenset(body.old_isr) - frozenset(body.new_isr)
        if not dropped:
            if event.process == state.leader:
                state.adding_ns = state.adding_ns or event.at_ns
            return
        # Only a request that names a laggard counts as the one that this clause wants.
        if body.lag_ns > 0:
            state.dropping, state.stored = (body.leader_epoch, dropped), None
        if event.process == state.leader:
            if state.unanswered_ns:
                state.since_ns, state.refused = event.at_ns, 0
            state.asked = dropped
            state.unanswered_ns = state.unanswered_ns or event.at_ns

    @staticmethod
    def _overdue(
        state: _Leaders, one: _Blocked, place: TopicPartition, at_ns: int, at: Event
    ) -> None:
        """Judges how long the oldest message has waited by a time, as an event shows it."""
        # Asked at each append and commit, so nothing is made before it is needed.
        if not one.waiting or one.leader in state.fenced:
            return
        since_ns = state.since(one, at_ns)
        # Twice the time: a follower may have fetched just before it fell silent, and the leader
        # need not look more often than that. The two seconds are for the request and its record.
        allowed_ns = (2 * one.keep_ms + 2_000) * MS
        if at_ns - since_ns <= allowed_ns:
            return
        waited_ns = at_ns - since_ns - state.stood_ns(one.leader, since_ns, at_ns)
        if waited_ns <= allowed_ns:
            return
        if one.alone:  # it has none to drop; below min.insync.replicas, Kafka commits nothing
            return
        # Judged once, until the next commit.
        one.waiting = False
        granted = one.grants + 1 if one.granted else 0
        tried, times = "", 0
        if one.unanswered_ns or one.adding_ns:
            tried = "unanswered"
        elif one.refused:
            tried, times = "refused", one.refused
        elif granted:
            tried, times = "granted", granted
        elif one.elsewhere_ns:
            tried = "elsewhere"
        broken = violated(
            at.ref,
            Evidence.SELF,
            "{leader} has had a write waiting for {since_ns} and "
            + _TRIED[tried]
            + ", though {bound_ms} ms are allowed",
            leader=process_scope(one.leader),
            since_ns=waited_ns,
            bound_ms=one.keep_ms,
            partition=partition_at(*place),
            tried=tried,
            times=times,
        )
        period_ns = one.keep_ms * MS
        one.suspects.append(
            Deadline(
                violated=broken,
                actors=(one.leader,),
                from_ns=since_ns,
                to_ns=at_ns,
                bound_ns=period_ns,
                due_ns=since_ns + period_ns,
            )
        )

    def _left_waiting(self, state: _Leaders, end: RunEnd) -> None:
        """Judges the writes that wait at the end."""
        for place, one in state.partitions.items():
            # A leader that ended in the midst of the run commits nothing more; one that ended with
            # the run is judged until then.
            out = one.deposed or one.leader in state.gone
            if one.at is not None and not out:
                ended_ns = state.exited.get(one.leader, end.ended_at_ns)
                until_ns = state.runs_until(one.leader, ended_ns)
                self._overdue(state, one, place, until_ns, one.at)

    def end(self, state: _Leaders, end: RunEnd) -> Findings:
        self._left_waiting(state, end)
        return tuple(
            found for one in state.partitions.values() for found in judged(one.suspects, end)
        )
