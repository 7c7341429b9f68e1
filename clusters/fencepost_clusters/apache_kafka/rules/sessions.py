"""Rules about which process holds an id, and how long its session lasts (KR-01, KR-02)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from msgspec import Struct, json
from msgspec.structs import replace as replaced

from fencepost import (
    MS,
    NOTHING,
    OBSERVERS,
    READ_WITHIN_NS,
    SECOND,
    Cause,
    Deadline,
    Effect,
    Event,
    Evidence,
    Excuse,
    Excused,
    Excuses,
    Exercised,
    Facts,
    FaultHealed,
    FaultInjected,
    FaultTookEffect,
    Finding,
    Findings,
    NodeStarted,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    began_ns,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_clusters.apache_kafka.log_memory import SessionConfigured
from fencepost_clusters.apache_kafka.rules.heartbeats import SLACK_NS
from fencepost_clusters.apache_kafka.rules.holders import (
    DELAYS,
    HEARTBEAT,
    KINDS,
    SILENCING,
    IdHolders,
    longest_delay_ns,
)
from fencepost_clusters.apache_kafka.rules.majorities import QUORUM_KINDS, Voters
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    ControllerElected,
    ControllerResigned,
    HeartbeatAnswered,
    HeartbeatRefused,
    LeaseExpired,
    MetadataApplied,
    MetadataCommitted,
    broker_of,
)

ELECTED_WITHIN_NS = 60 * SECOND
"""How long elections may take that no fault explains: a candidate is one after a fetch timeout, 2 s
by default, and so is the next one, if the votes were split."""
_SESSIONS = 4
"""How often a broker's session may begin anew with another controller, unless a fault explains
it."""
_NEVER = 1 << 62
DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"


class _Taken(Struct, frozen=True):
    """An id that passed to another process by a record, while its holder was unfenced by the record
    before that was known, and what is found then."""

    broker: int
    after: int
    at: int
    finding: Finding


@dataclass(slots=True)
class _Holding:
    holders: IdHolders = field(default_factory=IdHolders)
    taken: list[_Taken] = field(default_factory=list)

    def fence(self, body: BrokerCommitted) -> None:
        """A record fenced a broker, maybe one that is read after a later one."""
        self.taken = [
            one
            for one in self.taken
            if one.broker != body.broker_id or not one.after < body.offset < one.at
        ]


@final
class HolderKeepsId(Rule[_Holding]):
    """KR-01. Judged by the records. An id must not pass to a new incarnation while its holder is
    unfenced, alive, not asked to stop and unaffected by faults. Exercised by a refusal that a
    process reports while another holds the id. A record by which the holder was fenced before may
    be read later: so the end decides."""

    clause = "KR-01"
    state = _Holding

    @on(*KINDS, HeartbeatRefused)
    def step(self, holding: _Holding, event: Event, body: Struct) -> Findings:
        state = holding.holders
        state.learn(event)
        match body:
            case HeartbeatRefused(error=error) if error == DUPLICATE:
                holder = state.process(state.records.get(body.broker_id))
                # A process that is refused its own former id, with no other holder, shows nothing
                # of the clause.
                if holder and holder != event.process:
                    return (Exercised(event.ref, Evidence.PEER),)
            case BrokerCommitted():
                self._committed(holding, event, body)
        return NOTHING

    @staticmethod
    def _committed(holding: _Holding, event: Event, body: BrokerCommitted) -> None:
        state = holding.holders
        if body.fenced and holding.taken:
            holding.fence(body)
        news, was = state.commit(body)
        # A fenced holder has lost the id already, and a record of the same incarnation hands
        # nothing over.
        if not news or was is None or was.fenced or was.incarnation == body.incarnation:
            return
        holder = state.process(was)
        if not state.alive(holder, event.at_ns):
            return
        newcomer = state.process(body)
        # The process is not known, if the history has no start of one with that incarnation.
        to: Facts = {"process": process_scope(newcomer)} if newcomer else {}
        # The holder is named as excused, and not left out: a reader can see that the id passed
        # under a fault.
        excuse = state.excuse(holder, event.at_ns)
        receiver = "{process}" if newcomer else "another process"
        given = f"broker {{broker}} was given to {receiver} at offset {{offset}}"
        held = ", while {holder} held it, unfenced and unaffected by faults"
        taken = violated(
            event.ref,
            Evidence.PEER,
            given if excuse else given + held,
            **to,
            broker=broker_of(body.broker_id),
            offset=body.offset,
            holder=process_scope(holder),
        )
        found: Finding = taken
        if excuse is not None:
            found = Excused.of(taken, excuse.within("{why}, which held it"), ", while ")
        holding.taken.append(_Taken(body.broker_id, was.offset, body.offset, found))

    def end(self, holding: _Holding, end: RunEnd) -> Findings:
        return [one.finding for one in holding.taken]


@dataclass(slots=True)
class _Silence:
    """A broker that no controller can hear: since when, and why."""

    since_ns: int
    ref: Cause
    why: str
    whole_ns: int
    """Since when it lasts without anything that may keep a controller from being elected. Each
    election gives it another `since_ns`: those alone would excuse it for good."""
    until_ns: int
    """When the broker may be heard again: a link that delays what it carries delivers it then."""
    elected: tuple[Cause, ...] = ()
    """The election since which its bound counts, if a controller was elected meanwhile."""


@dataclass(frozen=True, slots=True)
class _Late:
    """A silence that was longer than its bound."""

    broker: int
    silence: _Silence
    deadline: Deadline
    open: Reason | None = None
    """Why it decides nothing all the same."""

    def in_time(self, at_ns: int) -> bool:
        """Whether it would not be late if it had ended at that time."""
        return at_ns <= self.deadline.from_ns + self.deadline.bound_ns


@dataclass(slots=True)
class _Sessions:
    ids: dict[str, int] = field(default_factory=dict)
    """slot -> broker id, and process -> broker id."""
    newest: dict[str, str] = field(default_factory=dict)
    timeouts: dict[int, int] = field(default_factory=dict)
    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    silent: dict[int, _Silence] = field(default_factory=dict)
    silencing: dict[str, set[str]] = field(default_factory=dict)
    """The faults that act, each with the brokers' processes that it keeps silent."""
    ended: set[str] = field(default_factory=set)
    """The brokers' processes that have ended."""
    pauses: set[str] = field(default_factory=set)
    """Those of them that stop a process."""
    short: set[str] = field(default_factory=set)
    """The faults that only delay what a link carries, for so short that nothing comes too late."""
    passing: set[str] = field(default_factory=set)
    """Those that neither stop a process nor keep back what links carry, such as a slow disk: a
    controller under one acts all the same, a little later."""
    waiting: dict[str, FaultInjected] = field(default_factory=dict)
    """The faults that have no receipt yet: they wait for something to act upon."""
    leaks: dict[str, int] = field(default_factory=dict)
    """Those that keep heartbeats back and no other data -> until when, at least."""
    active: str = ""
    """The active controller's process, if there is one."""
    epoch: int = -1
    """The highest epoch in which one was elected."""
    controllers: set[str] = field(default_factory=set)
    """The slots of controllers."""
    voters: Voters = field(default_factory=Voters)
    faults: Excuses = field(default_factory=Excuses)
    suspects: list[_Late] = field(default_factory=list)
    """Exceeded bounds. Only the record of a fault's healing tells when it began."""
    unread: list[_Late] = field(default_factory=list)
    """Those of them that no record has ended yet."""
    applied: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of the metadata, each with when a node had applied it, the first of all; in order.
    Kept while a broker is silent, with the last one of before."""
    over: dict[int, int] = field(default_factory=dict)
    """broker -> when a controller said last that its session is over."""
    read_ns: int = 0
    """When an observer read a record last."""

    @property
    def acting(self) -> str:
        """The active controller, if no fault acts upon it or upon its link to another controller,
        and a majority of the voters reaches it: no other process fences, and only a committed
        record does."""
        affected = any(
            one.parts(self.active, self.controllers.__contains__) or one.hits(self.active)
            for one in self.hindering
        )
        alone = bool(self.voters.processes) and self.voters.may_be_starved(self.active)
        return "" if affected or alone else self.active

    @property
    def hindering(self) -> Iterator[Excuse]:
        """The faults that act, without those that delay what passes so little that a record is
        committed, and a controller elected, within the second that the bound leaves; and without
        those that hinder for a while only (`hindered_until`)."""
        weak = self.short | self.passing
        return (one for one in self.faults.now.values() if one.fault_id not in weak)

    def hindered_until(self, *controllers: str) -> int:
        """Until when a fault that stops nothing gives these controllers more time: one of a disk
        that lasts for ten minutes does not excuse for ten minutes that a dead broker is
        unfenced."""
        faults = (*self.faults.now.values(), *self.faults.healed) if self.passing else ()
        return max(
            (
                min(one.began_ns + ELECTED_WITHIN_NS, one.ended_ns or _NEVER)
                for one in faults
                if one.fault_id in self.passing and any(map(one.hits, controllers))
            ),
            default=-1,
        )

    @property
    def disturbed(self) -> bool:
        """Whether something may keep the controllers from electing one that fences: a fault acts
        upon a controller or upon a link of two, or no majority of the voters lives."""
        for one in self.hindering:
            ends = (self.controllers.intersection(way) for way in one.directions)
            struck = any(map(one.hits, self.controllers))
            if struck or any(len(slots) > 1 for slots in ends):
                return True
        return all(map(self.voters.may_be_starved, self.living))

    def apply(self, offset: int, at_ns: int) -> None:
        """A node has applied the metadata up to an offset."""
        if not self.applied or offset > self.applied[-1][0]:
            if not self.silent and not self.unread:
                self.applied.clear()
            self.applied.append((offset, at_ns))

    def dated(self, offset: int, at_ns: int) -> int:
        """When a record was committed at the latest: it was read then, and may have been applied by
        a node before."""
        known = (at for applied, at in self.applied if applied >= offset)
        return min(at_ns, next(known, at_ns))

    @property
    def living(self) -> Sequence[str]:
        """The controllers' processes that live."""
        return [one for one in self.voters.processes.values() if one]

    def unheard(self, slot: str, cut: Excuse) -> bool:
        """Whether a cut keeps all data of a slot from every controller."""
        ways = {(slot, controller) for controller in self.controllers}
        return cut.severs and bool(ways) and ways <= cut.directions

    def held_ns(self, slot: str, body: FaultInjected, began_ns: int) -> int:
        """Until when a fault keeps all heartbeats of a slot from every controller, though it lets
        data pass; 0: it does not, or for less than a session."""
        ways = {f"{slot} -> {controller}" for controller in self.controllers}
        arguments = json.decode(body.arguments) if body.arguments else {}
        delay_ms = 0
        if ways and ways <= body.acts(Effect.HOLDS):
            # It may choose one request and let the next ones pass.
            some = any(arguments.get(name) for name in ("first", "skip", "topic"))
            if some or HEARTBEAT not in arguments.get("apis", ()):
                return 0
            if arguments.get("action", "hold") != "delay":
                return _NEVER
            delay_ms = arguments.get("delay_ms", 0)
        elif ways and ways <= body.acts(Effect.SLOWS):
            delay_ms = arguments.get("latency_ms", 0) - arguments.get("jitter_ms", 0)
        # What it sent before the fault began may still come in, and then nothing for so long.
        session_ns = self.timeouts.get(self.ids.get(slot, -1), _NEVER)
        return began_ns + delay_ms * MS if delay_ms * MS > _bound_ns(session_ns) else 0

    def accepted(self, broker: int, received_ns: int) -> None:
        """A controller heard a broker whose heartbeats were to be kept back: they were not."""
        silence = self.silent.get(broker)
        if silence and silence.why in self.leaks and received_ns - SLACK_NS > silence.since_ns:
            self.hears_again(silence.why)

    def was_heard(self, fault_id: str, began_ns: int) -> None:
        """Takes back what was late by a silence, if the fault was healed before it was late."""
        kept: list[_Late] = []
        for one in self.suspects:
            silence, record = one.silence, self.records.get(one.broker)
            # The silence was over the bound before the healing began: it stays late.
            if silence.why != fault_id or not one.in_time(began_ns):
                kept.append(one)
            elif record is not None and not record.fenced:
                # It is put back, so that it is judged by the time when the healing began.
                self.silent.setdefault(one.broker, silence)
        self.suspects = kept
        self.unread = [one for one in self.unread if one in kept]

    def read(self, broker: int, at_ns: int) -> _Silence | None:
        """The record that ends a broker's session was read, after it had seemed late. Returns the
        silence that ended in time, if it did."""
        ended = [one for one in self.unread if one.broker == broker]
        self.unread = [one for one in self.unread if one.broker != broker]
        if not ended or not ended[-1].in_time(at_ns):
            return None
        self.suspects = [one for one in self.suspects if one is not ended[-1]]
        return ended[-1].silence

    def resumed(self, fault: Excuse | None, at_ns: int) -> None:
        """A process that is paused runs while its links are changed, and may be heard."""
        changed = {slot for way in fault.directions for slot in way} if fault else set()
        for broker, one in self.silent.items():
            process = self.incarnations.get(self.records[broker].incarnation, "")
            if one.why in self.pauses and slot_of(process) in changed:
                one.since_ns = one.whole_ns = at_ns

    def hears_again(self, fault_id: str) -> None:
        """Ends the silences that one fault caused, unless another one that still acts goes on with
        them."""
        self.silencing.pop(fault_id, None)
        for broker in [b for b, one in self.silent.items() if one.why == fault_id]:
            process = self.incarnations.get(self.records[broker].incarnation, "")
            why = self.why_silent(process)
            if why:
                self.silent[broker].why = why
                self.silent[broker].until_ns = self.leaks.get(why, _NEVER)
            else:
                del self.silent[broker]

    def why_silent(self, process: str) -> str:
        """Why no controller hears a process; empty if one may hear it."""
        if process in self.ended:
            return f"{process} ended"
        acting = [one for one, silent in self.silencing.items() if process in silent]
        return max(acting, key=lambda one: self.leaks.get(one, _NEVER), default="")

    def begin(self, process: str, event: Event) -> None:
        """Begins the silence of a process that no controller hears, if it holds an id unfenced."""
        broker, why = self.ids.get(process), self.why_silent(process)
        record = None if broker is None else self.records.get(broker)
        # A fenced broker has no session that could end.
        if broker is None or record is None or record.fenced or not why:
            return
        # The process that is silent is not the one that holds the id: the holder may still be
        # heard.
        if self.incarnations.get(record.incarnation) != process:
            return
        # A second fault does not begin the silence anew: the controller has heard nothing since the
        # first.
        begun = _Silence(
            event.at_ns, event.ref, why, event.at_ns, until_ns=self.leaks.get(why, _NEVER)
        )
        silence = self.silent.setdefault(broker, begun)
        if process in self.ended:
            silence.why = why  # the healing of a fault does not end it
        # Whichever keeps it silent for longer.
        silence.until_ns = max(silence.until_ns, begun.until_ns)


def _bound_ns(session_ns: int) -> int:
    """How long a broker may be silent before it is fenced."""
    return session_ns + session_ns // 4 + SECOND


def _whole_ns(session_ns: int) -> int:
    """How long it may be at most, whatever controllers are elected meanwhile."""
    return _SESSIONS * _bound_ns(session_ns) + ELECTED_WITHIN_NS


@final
class SilentIsFenced(Rule[_Sessions]):
    """KR-02. The bound is the session timeout, a quarter of it (the controllers check eight times
    per timeout), and a second, while one controller is active, a majority of the voters reaches
    it, and no fault acts upon it or its links to other controllers, but for a delay of less than an
    eighth of that second. A fault that neither stops it nor keeps back what links carry, such as a
    slow disk, gives it a minute from its begin. It may have removed a voter, so each set of voters
    counts that a live controller has read last. Elections that nothing explains give no more than
    four such bounds and a minute in all; where none is known, that is undecided.

    A silence ends with the record that fences or deletes the broker, or registers another
    incarnation: when a node has applied that, since the observers may read it later. It begins with
    the record that unfences a broker which nobody can hear by then. Faults that hold all its
    heartbeats, or delay them for longer than the bound, keep it silent as a cut does, until a
    controller says that it has accepted one.

    Exercised by each fencing of a broker known to be silent; also by the registration of another
    incarnation, fenced itself, once most of a session has passed. A process that asks for the id
    all the time is registered before the controller looks for ended sessions, so nothing else
    fences the former one. An earlier one says nothing of the session, and KR-01 judges it."""

    clause = "KR-02"
    state = _Sessions

    @on(
        *(SessionConfigured, HeartbeatAnswered, MetadataApplied, MetadataCommitted, LeaseExpired),
    )
    def _said(self, state: _Sessions, event: Event, body: Struct) -> Findings:
        """Something is told that changes neither who acts as the controller nor what hinders it."""
        self._overdue(state, event.at_ns, event.ref)
        match body:
            case SessionConfigured():
                state.timeouts[body.broker_id] = body.timeout_ms * MS
            case MetadataApplied():
                state.apply(body.offset, event.at_ns)
            case MetadataCommitted():
                state.read_ns = event.at_ns
            case LeaseExpired():
                state.over[body.broker_id] = event.at_ns
            case HeartbeatAnswered(error="NONE"):
                state.accepted(body.broker_id, body.received_at_ns)
        if state.silent and state.disturbed:
            self._hindered(state, event.at_ns)
        return NOTHING

    @on(
        *QUORUM_KINDS,
        NodeStarted,
        ProcessExited,
        FaultInjected,
        FaultHealed,
        FaultTookEffect,
        ControllerElected,
        ControllerResigned,
        BrokerDeleted,
    )
    def _changed(self, state: _Sessions, event: Event, body: Struct) -> Findings:
        term, disturbed = (state.acting, state.epoch), bool(state.silent) and state.disturbed
        # The healing itself began earlier than its event. So what is late is decided in `_learn`,
        # by the time of its beginning.
        if not isinstance(body, FaultHealed):
            # What is late by now stays so, whatever this event changes.
            self._overdue(state, began_ns(event), event.ref)
        self._learn(state, event)
        if (state.acting, state.epoch) != term:
            # The bound counts from the moment when a controller can fence.
            for silence in state.silent.values():
                silence.since_ns = event.at_ns
                if isinstance(body, ControllerElected):
                    silence.elected = (event.ref,)
        struck = body.ended if isinstance(body, ProcessExited) else event.process
        if (
            disturbed
            or (
                isinstance(body, NodeStarted | ProcessExited)
                and slot_of(struck) in state.controllers
            )
            or (state.silent and state.disturbed)
        ):
            self._hindered(state, event.at_ns)
        return NOTHING

    @staticmethod
    def _hindered(state: _Sessions, at_ns: int) -> None:
        """Something may keep a controller from being elected until now."""
        for silence in state.silent.values():
            silence.whole_ns = at_ns

    def _learn(self, state: _Sessions, event: Event) -> None:
        body = event.body
        state.voters.learn(event)
        match body:
            case NodeStarted(role="broker"):
                state.ids[event.process] = state.ids[slot_of(event.process)] = body.node_id
                # A fault names a slot: this is the process that it strikes.
                state.newest[slot_of(event.process)] = event.process
                state.incarnations[body.incarnation] = event.process
            case NodeStarted(role="controller"):
                state.controllers.add(slot_of(event.process))
            case ProcessExited():
                if body.ended in state.ids:
                    state.ended.add(body.ended)
                    state.begin(body.ended, event)
                if body.ended == state.active:
                    state.active = ""
            case FaultInjected():
                state.faults.take(event)
                self._struck(state, event, body)
                state.resumed(state.faults.now[body.fault_id], event.at_ns)
            case FaultTookEffect(fault_id=fault_id) if fault_id in state.waiting:
                self._struck(state, event, replaced(state.waiting[fault_id], receipt=True))
            case FaultHealed():
                state.waiting.pop(body.fault_id, None)
                # Healing is recorded once every link answers again, which may take a while.
                state.was_heard(body.fault_id, began_ns(event))
                self._overdue(state, began_ns(event), event.ref)
                state.hears_again(body.fault_id)
                state.resumed(state.faults.take(event), event.at_ns)
            # A line about an earlier term may be read late: it changes nothing in the present one.
            case ControllerElected(epoch=epoch) if epoch >= state.epoch:
                state.active, state.epoch = event.process, epoch
            case ControllerResigned(epoch=epoch) if epoch >= state.epoch:
                if event.process == state.active:
                    state.active = ""
            case BrokerDeleted():
                record = state.records.get(body.broker_id)
                if record is not None and record.offset < body.offset:
                    # It has no session any more, and nothing to be fenced from.
                    del state.records[body.broker_id]
                    state.silent.pop(body.broker_id, None)
                    state.read(body.broker_id, state.dated(body.offset, event.at_ns))

    def _struck(self, state: _Sessions, event: Event, body: FaultInjected) -> None:
        """Notes the brokers that a fault keeps every controller from hearing, and a short delay."""
        fault = state.faults.now[body.fault_id]
        delay_ns = longest_delay_ns(body)
        if delay_ns is not None and DELAYS * delay_ns < SECOND:
            state.short.add(body.fault_id)
        if not fault.directions and not body.acts(*SILENCING):
            state.passing.add(body.fault_id)
        # A fault without a receipt may have had no effect, so the broker may still be heard.
        if not body.receipt:
            state.waiting[body.fault_id] = body
            return
        stopped = body.acts(Effect.STOPS)
        if stopped:
            state.pauses.add(body.fault_id)
        for target in body.targets:
            until_ns = state.held_ns(target, body, fault.began_ns)
            if until_ns:
                state.leaks[body.fault_id] = until_ns
            heard = not until_ns and (
                not state.unheard(target, fault)
                # A cut is known by its directions; any other fault, by the processes that it stops.
                if fault.directions
                else slot_of(target) not in stopped
            )
            if not heard:
                process = target if "#" in target else state.newest.get(target, "")
                state.silencing.setdefault(body.fault_id, set()).add(process)
                state.begin(process, event)

    @on(BrokerCommitted)
    def _committed(self, state: _Sessions, event: Event, body: BrokerCommitted) -> Findings:
        was = state.records.get(body.broker_id)
        if was is not None and body.offset <= was.offset:
            return NOTHING
        state.records[body.broker_id] = body
        another = was is not None and was.incarnation != body.incarnation
        # A record that leaves its session open says nothing of its silence.
        found = self._closed(state, event, body, another=another) if body.fenced or another else ()
        # The broker may have died right before its unfencing was read: its session runs out, too.
        state.begin(state.incarnations.get(body.incarnation, ""), event)
        return found

    def _closed(
        self, state: _Sessions, event: Event, body: BrokerCommitted, *, another: bool
    ) -> Findings:
        """A record ends a broker's session, if it had one."""
        at_ns = state.dated(body.offset, event.at_ns)
        silence = state.silent.pop(body.broker_id, None) or state.read(body.broker_id, at_ns)
        if silence is None:
            return NOTHING
        late = self._late(state, body.broker_id, silence, at_ns, event.ref, read=True)
        # The registration of another incarnation may come at any time. It shows that a session
        # ended only if it comes at about the end of one.
        session_ns = state.timeouts.get(body.broker_id, 0)
        silent_ns = at_ns - silence.since_ns
        waited = not another or (body.fenced and silent_ns >= session_ns * 3 // 4)
        # One that comes late shows nothing, even if a fault explains that; nor does one of a broker
        # that was heard meanwhile.
        heard = at_ns >= silence.until_ns
        if late or heard or not waited or not 0 <= silent_ns <= _bound_ns(session_ns):
            return NOTHING
        return (Exercised(event.ref, Evidence.PEER),)

    def _overdue(self, state: _Sessions, at_ns: int, at: Cause) -> None:
        for broker, silence in list(state.silent.items()):
            if self._late(state, broker, silence, at_ns, at) or at_ns >= silence.until_ns:
                del state.silent[broker]

    @staticmethod
    def _late(
        state: _Sessions,
        broker: int,
        silence: _Silence,
        at_ns: int,
        at: Cause,
        *,
        read: bool = False,
    ) -> bool:
        """Suspects a silence, if it is longer than its bound. `read`: its end is known."""
        session_ns = state.timeouts.get(broker, 0)
        if not session_ns:
            return False
        bound_ns, whole_ns = _bound_ns(session_ns), _whole_ns(session_ns)
        at_ns = min(at_ns, silence.until_ns)
        since_ns, open_ = max(silence.since_ns, state.hindered_until(state.active)), None
        actors: Sequence[str] = (state.acting,)
        if not state.acting or at_ns - since_ns <= bound_ns:
            # Controllers that log no elections show nothing of how many there were.
            since_ns = max(silence.whole_ns, state.hindered_until(*state.controllers))
            bound_ns, actors = whole_ns, state.living
            if state.epoch < 0 or at_ns - since_ns <= bound_ns or state.disturbed:
                return False
            # The bound of a session counts from an election: there was none, or its line is lost.
            open_ = None if state.active else Reason("no controller is known to be active")
        late = violated(
            at,
            Evidence.PEER,
            "broker {broker} was silent for {silent_ns} ({why}) before it was fenced; its session "
            "timeout is {session_ns}",
            (silence.ref, *silence.elected),
            broker=broker_of(broker),
            silent_ns=at_ns - since_ns,
            why=silence.why,
            session_ns=session_ns,
        )
        deadline = Deadline(late, (*actors, *OBSERVERS), since_ns, at_ns, bound_ns)
        suspect = _Late(broker, replace(silence), deadline, open_)
        state.suspects.append(suspect)
        if not read:
            state.unread.append(suspect)
        return True

    def end(self, state: _Sessions, end: RunEnd) -> Findings:
        for broker, silence in state.silent.items():
            self._late(state, broker, silence, end.ended_at_ns, silence.ref)
        found: list[Finding] = []
        for one in state.suspects:
            broken, over_ns = one.deadline.violated, state.over.get(one.broker, -1)
            # A controller said that the session is over, in time. Its record follows at once, and
            # the observers have read nothing since.
            over = over_ns >= one.silence.since_ns and one.in_time(over_ns)
            if over and one in state.unread and state.read_ns <= over_ns + READ_WITHIN_NS:
                why = Reason("its session was over in time, and no observer read on")
                found.append(Undecided.of(broken, why, "; but "))
            elif one.open is not None:
                found.append(Undecided.of(broken, one.open, "; but "))
            else:
                found += judged((one.deadline,), end)
        return found
