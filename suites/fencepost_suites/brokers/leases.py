"""Leases: the fencing at their end (QC-14). Their length is in `lease_lengths`.

Each time allows some slack for a busy machine, and is undecided if the process it depends on
stalled for more than a tenth of the lease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    FAULT_KINDS,
    HARNESS,
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excuses,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Findings,
    NodeStopped,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    ControllerElected,
    ControllerResigned,
    HeartbeatAnswered,
    HeartbeatSent,
    LeaseExpired,
    LeaseGranted,
    broker_of,
)
from fencepost_suites.brokers.exchanges import Exchange, Exchanges

DOUBTED_KEPT = 16
"""How many grants of a process are kept to which no answer is known."""

AT_LAST_NS = 30_000 * MS
"""How long controllers may leave a silent broker unfenced beside two leases, however often they
replace each other."""


def period_ns_of(body: LeaseGranted, given_ns: int = 0) -> int:
    """The length of a granted lease: as long as its broker says, and no longer than controllers
    give (`given_ns`; 0: none has said so). A broker that says nothing above 0 has the latter."""
    said_ns = (body.lease_end_ms - body.lease_start_ms) * MS
    if not given_ns:
        return said_ns
    return min(said_ns, given_ns) if said_ns > 0 else given_ns


@dataclass(slots=True)
class _Held:
    """A broker process and the end of the lease it holds."""

    broker_id: int = -1
    active: bool = False
    ends_ns: int = 0
    """By all grants that the process told of."""
    period_ns: int = 0
    granted: Cause | None = None
    proven_ns: int = 0
    """The end of the lease by those grants alone that a controller answered."""
    proven: Cause | None = None
    doubted: list[Exchange] = field(default_factory=list)
    """The later grants, to which no answer is known yet."""
    accused: bool = False
    """Whether it is found already that the process acts by doubted grants."""


@dataclass(slots=True)
class _Watched:
    """An unfenced broker, as known to its controller: its last heartbeat came at `since_ns` or
    later."""

    offset: int
    since_ns: int = 0
    beat: Cause | None = None
    """From which event on its silence counts."""
    heard: Cause | None = None
    """The last heartbeat that any controller accepted."""
    watched: bool = False
    fenced: bool = False
    """By the newest committed record: a new controller owes it nothing more."""
    expired: bool = False
    silent_ns: int = 0
    """When any controller heard it last, or a record unfenced it. No election changes that."""
    in_office_ns: int = 0
    """For how long controllers had been in office by then."""
    slot: str = ""


@dataclass(slots=True)
class _Leases:
    """Both sides of every lease of a run."""

    controller: str = ""
    epoch: int = -1
    period_ns: int = 0
    given_ns: int = 0
    """The period that a controller has named last, in an answer that accepts a heartbeat."""
    held: defaultdict[str, _Held] = field(default_factory=lambda: defaultdict(_Held))
    brokers: dict[int, _Watched] = field(default_factory=dict)
    expiries: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    exchanges: Exchanges = field(default_factory=Exchanges)
    terms: dict[int, str] = field(default_factory=dict)
    """controller epoch -> the process that was elected."""
    spoke: dict[str, int] = field(default_factory=dict)
    """process that was elected -> the time of its last event, of those that the rule reads."""
    ended: set[str] = field(default_factory=set)
    excuses: Excuses = field(default_factory=Excuses)
    since_ns: int = 0
    """When the present controller was elected."""
    past_ns: int = 0
    """For how long all former ones were in office."""
    suspects: list[Deadline] = field(default_factory=list)
    doubtful: list[tuple[Deadline, int, tuple[Exchange, ...]]] = field(default_factory=list)
    """What is wrong only if nobody answered these heartbeats of a broker id."""
    unleased: dict[str, Deadline] = field(default_factory=dict)
    """process -> what is wrong with it, if other brokers tell of the leases that they took."""

    def in_office_ns(self, at_ns: int) -> int:
        """For how long controllers were in office until then."""
        return self.past_ns + (at_ns - self.since_ns if self.controller else 0)

    def calm(self, known: _Watched) -> bool:
        """Whether no fault has acted on anything but the broker since it is silent."""
        return not any(
            any(known.slot not in pair for pair in one.directions)
            or (not one.directions and bool(one.slots - {known.slot}))
            for one in self.excuses.since(known.silent_ns)
        )

    def unfenced(self, known: _Watched, violated: Violated, until_ns: int) -> None:
        """A broker that its controller has not fenced until this time, unless that stood still."""
        late = Deadline(
            violated=violated,
            actors=(self.controller,),
            from_ns=known.since_ns,
            to_ns=until_ns,
            bound_ns=self.period_ns,
            due_ns=known.since_ns + self.period_ns,
        )
        self.suspects.append(late)


@final
class LostLeaseIsFenced(Rule[_Leases]):
    """QC-14. The broker must fence itself within a tenth of the lease and 100 ms after the
    lease's end; one that ends before it has done so, within a whole lease. The active controller
    must fence it within a quarter of the lease and 500 ms, counted from its last accepted answer
    or its election. An answer to a heartbeat that the broker did not send counts for nothing, and
    neither does a grant that no controller gave; and a broker that is active has taken one, if
    brokers tell of these. A controller whose term ends may have lost its majority before, so that
    a whole lease more is allowed then."""

    clause = "QC-14"
    state = _Leases

    @on(
        ControllerElected,
        ControllerResigned,
        HeartbeatSent,
        HeartbeatAnswered,
        NodeStopped,
        BrokerDeleted,
        BrokerCommitted,
        BrokerStateChanged,
        LeaseGranted,
        LeaseExpired,
        ProcessExited,
        *FAULT_KINDS,
    )
    def step(self, state: _Leases, event: Event, body: Struct) -> Findings:
        if event.process in state.spoke:
            state.spoke[event.process] = event.at_ns
        match body:
            case HeartbeatSent():
                state.exchanges.sent(event, body)
            case HeartbeatAnswered(error="NONE"):
                self._heartbeat(state, event, body)
            case FaultInjected() | FaultHealed():
                state.excuses.take(event)
            case LeaseGranted():
                self._granted(state, event, body)
            case BrokerStateChanged():
                return self._changed(state, event, body)
            case BrokerCommitted():
                return self._committed(state, event, body)
            case BrokerDeleted() if (known := state.brokers.get(body.broker_id)) is not None:
                if body.offset > known.offset:
                    # Before the event is applied, here as below: what is late by now stays so.
                    self._overdue(state, known, body.broker_id, event)
                    known.offset, known.fenced, known.watched = body.offset, True, False
            case LeaseExpired():
                known = state.brokers.get(body.broker_id)
                if known is not None:
                    self._overdue(state, known, body.broker_id, event)
                    known.watched, known.expired = False, True
                    state.expiries[body.broker_id] = event.at_ns, event.ref
            case ControllerElected() if body.epoch > state.epoch:
                self._vacant(state, event)
                state.controller, state.epoch = event.process, body.epoch
                state.since_ns = event.at_ns
                state.terms[body.epoch], state.spoke[event.process] = event.process, event.at_ns
                for known in state.brokers.values():
                    known.since_ns, known.beat = event.at_ns, event.ref
                    known.watched = not known.fenced
            case ControllerResigned() if event.process == state.controller:
                self._vacant(state, event)
            case ProcessExited():
                self._gone(state, event, body.ended)
            case NodeStopped():
                self._gone(state, event, event.process)
        return NOTHING

    # ------------------------------------------------------------------------- the broker's side

    def _granted(self, state: _Leases, event: Event, body: LeaseGranted) -> None:
        held = state.held[event.process]
        if body.next_state != "ACTIVE":
            return
        # A late renewal does not undo that the process was active past the end of its lease.
        if held.active:
            self._outlived(state, event.process, held, event.at_ns, event.ref)
        held.broker_id = body.broker_id
        held.period_ns = state.period_ns = period_ns_of(body, state.given_ns)
        exchange = state.exchanges.granted(event, body)
        # Its own clock tells when the lease ends, but the lease began when it asked for it.
        ends_ns = exchange.ends_by_ns(body.ends_at_ns, held.period_ns, by_answers=False)
        if ends_ns > held.ends_ns:
            held.ends_ns, held.granted = ends_ns, event.ref
        if not state.exchanges.is_borne_out(exchange, event.process, body.lease_start_ms):
            held.doubted = [*held.doubted[:DOUBTED_KEPT], exchange]
            return
        proven_ns = exchange.ends_by_ns(ends_ns, held.period_ns, by_answers=True)
        if proven_ns > held.proven_ns:
            held.proven_ns, held.proven = proven_ns, event.ref
            held.doubted, held.accused = [], False

    def _changed(self, state: _Leases, event: Event, body: BrokerStateChanged) -> Findings:
        held = state.held[event.process]
        was, held.active = held.active, body.new == "ACTIVE"
        if held.active and event.process not in state.exchanges.taking:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} became active, and tells of no lease that it took, as others do",
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
            )
            # Of no length: where the history is not complete, the lease may be missing.
            late = Deadline(broken, (), event.at_ns, event.at_ns, bound_ns=1)
            state.unleased.setdefault(event.process, late)
        if not was or body.new != "FENCED":
            return NOTHING
        if self._outlived(state, event.process, held, event.at_ns, event.ref):
            return NOTHING
        return (Exercised(event.ref, Evidence.SELF),)

    def _outlived(
        self,
        state: _Leases,
        process: str,
        held: _Held,
        at_ns: int,
        at: Cause | None,
        *,
        actors: tuple[str, ...] = (),
    ) -> bool:
        """Whether a process was active for too long past the end of its lease."""
        over_ns = at_ns - held.ends_ns
        self._forged(state, process, held, at_ns, at)
        # A tenth for a busy machine, which lets a process run late; an idle one needs far less.
        if held.granted is None or over_ns <= held.period_ns // 10 + 100 * MS:
            return False
        start_ns = held.ends_ns - held.period_ns
        expired_ns, expiry = state.expiries.get(held.broker_id, (start_ns, held.granted))
        # If the controller has fenced the broker meanwhile, the two contradict each other, and both
        # are the proof.
        because = (held.granted, expiry) if expired_ns > start_ns else (held.granted,)
        broken = violated(
            at or held.granted,
            Evidence.SELF,
            "{process} was active {after_ns} after the end of its lease",
            because,
            process=process_scope(process),
            after_ns=over_ns,
            broker=broker_of(held.broker_id),
        )
        late = Deadline(
            broken,
            (process, *actors),
            start_ns,
            at_ns,
            bound_ns=held.period_ns,
            due_ns=held.ends_ns,
        )
        state.suspects.append(late)
        return True

    @staticmethod
    def _forged(state: _Leases, process: str, held: _Held, at_ns: int, at: Cause | None) -> None:
        """Whether a process was active for too long past the end of the last lease that a
        controller gave it. It took others, so that nobody knows before the end of the run."""
        # An answer may be told after the grant. Then its lease is not looked at again.
        if any(one.answers for one in held.doubted):
            held.proven, held.doubted = None, []
        doubted = tuple(held.doubted)
        over_ns = at_ns - held.proven_ns
        late = over_ns > held.period_ns // 10 + 100 * MS
        if held.accused or held.proven is None or not (doubted and late):
            return
        held.accused = True
        taken = doubted[0].grant
        assert taken is not None
        broken = violated(
            at or taken.at,
            Evidence.PEER,
            "{process} was active {after_ns} after the end of the last lease that a controller "
            "gave it",
            (held.proven, taken.at),
            process=process_scope(process),
            after_ns=over_ns,
            broker=broker_of(held.broker_id),
        )
        start_ns = held.proven_ns - held.period_ns
        deadline = Deadline(
            broken, (process,), start_ns, at_ns, bound_ns=held.period_ns, due_ns=held.proven_ns
        )
        state.doubtful.append((deadline, held.broker_id, doubted))

    @staticmethod
    def _given(state: _Leases, taken: Exchange, broker_id: int) -> bool | None:
        """Whether a controller may have given a lease to which no answer is recorded; None: nobody
        can tell."""
        assert taken.grant is not None
        controller = state.terms.get(taken.grant.controller_epoch)
        if controller is None or state.exchanges.may_be_unnamed(broker_id):
            return None
        if controller not in state.exchanges.answering:
            return True  # it tells of no answer at all
        # It may have been killed between its answer and the record of it.
        recorded = state.spoke[controller] > taken.grant.at_ns or controller not in state.ended
        return False if recorded else None

    # --------------------------------------------------------------------- the controller's side

    def _heartbeat(self, state: _Leases, event: Event, body: HeartbeatAnswered) -> None:
        exchange = state.exchanges.answered(event, body)
        state.given_ns = body.lease_period_ms * MS
        known = state.brokers.get(body.broker_id)
        if event.process != state.controller or known is None:
            return
        state.period_ns = body.lease_period_ms * MS
        self._overdue(state, known, body.broker_id, event)
        # An accepted heartbeat begins the silence anew, by the controller's own word: it counts
        # against the controller only if it then does nothing for too long. But one that the broker
        # did not send is none.
        if state.exchanges.contradicts(exchange, body.client, body.lease_start_ms):
            return
        # A request that came twice may be answered twice, but not for ever.
        once = exchange.request is not None and not exchange.reused
        if once and event.at_ns > exchange.answers[0].at_ns + state.period_ns:
            return
        # A broker that may shut down sends no more, and is owed its record all the same.
        known.since_ns, known.beat, known.heard = event.at_ns, event.ref, event.ref
        known.silent_ns, known.slot = event.at_ns, slot_of(body.client)
        known.in_office_ns = state.in_office_ns(event.at_ns)

    def _committed(self, state: _Leases, event: Event, body: BrokerCommitted) -> Findings:
        known = state.brokers.get(body.broker_id)
        if known is None:
            known = state.brokers[body.broker_id] = _Watched(-1)
        if body.offset > known.offset:
            self._overdue(state, known, body.broker_id, event)
            if not body.fenced:
                known.since_ns, known.beat = event.at_ns, event.ref
                known.silent_ns, known.expired = event.at_ns, False
                known.in_office_ns = state.in_office_ns(event.at_ns)
            known.offset, known.fenced = body.offset, body.fenced
            known.watched = not body.fenced
        # Any node but the controller shows that the record was really written.
        fenced = body.offset == known.offset and body.fenced and known.expired
        if not fenced or event.process == state.controller:
            return NOTHING
        known.expired = False
        return (Exercised(event.ref, Evidence.PEER),)

    @staticmethod
    def _overdue(
        state: _Leases, known: _Watched, broker: int, event: Event, more_ns: int = 0
    ) -> None:
        """Whether the active controller has left a silent broker unfenced for too long; `more_ns`
        are allowed beside the bound."""
        over_ns = event.at_ns - known.since_ns - state.period_ns
        watched = known.watched and state.controller and state.period_ns and known.beat
        if not watched or over_ns <= state.period_ns // 4 + 500 * MS + more_ns:
            LostLeaseIsFenced._at_last(state, known, broker, event.at_ns, event.ref)
            return
        known.watched = False
        # An election from which its silence counts is no reason to leave it unfenced.
        because = () if known.heard is None else (known.heard,)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} left broker {broker} unfenced for {since_ns} without a heartbeat",
            because,
            process=process_scope(state.controller),
            broker=broker_of(broker),
            since_ns=over_ns + state.period_ns,
        )
        state.unfenced(known, broken, event.at_ns)

    @staticmethod
    def _at_last(
        state: _Leases, known: _Watched, broker: int, at_ns: int, at: Cause | None
    ) -> None:
        """Whether a broker is silent and unfenced for so long that it matters no more which
        controllers were in office meanwhile, and that each began its silence anew."""
        served_ns = state.in_office_ns(at_ns) - known.in_office_ns
        heard = known.heard
        if known.fenced or heard is None or known.since_ns == known.silent_ns:
            return
        if served_ns <= AT_LAST_NS + 2 * state.period_ns:
            return
        # One finding, whatever else is told of this silence.
        known.heard = None
        if not state.calm(known):
            return
        broken = violated(
            at or heard,
            Evidence.PEER,
            "none of the controllers fenced broker {broker} for {since_ns} without a heartbeat",
            (heard,),
            broker=broker_of(broker),
            since_ns=at_ns - known.silent_ns,
        )
        actors = tuple(sorted(set(state.terms.values())))
        state.suspects.append(Deadline(broken, actors, known.silent_ns, at_ns, AT_LAST_NS))

    def _vacant(self, state: _Leases, event: Event) -> None:
        """There is no active controller: the next one gives every lease a full period. What is late
        by now stays so."""
        for broker, known in state.brokers.items():
            # A controller whose term ends may have lost its majority up to a lease before, and
            # could fence nobody since.
            self._overdue(state, known, broker, event, state.period_ns)
        state.past_ns, state.controller = state.in_office_ns(event.at_ns), ""

    def _gone(self, state: _Leases, event: Event, process: str) -> None:
        held = state.held.pop(process, None)
        if held is not None and held.active:
            # One that never fences itself says nothing late. But a process that has ended cannot
            # say any more that it stood still: it is allowed a whole lease.
            by_ns = event.at_ns - held.period_ns
            if by_ns > held.ends_ns:
                self._outlived(state, process, held, event.at_ns, event.ref, actors=(HARNESS,))
            elif by_ns > held.proven_ns:
                self._forged(state, process, held, event.at_ns, event.ref)
        state.ended.add(process)
        if process == state.controller:
            self._vacant(state, event)

    def end(self, state: _Leases, end: RunEnd) -> Findings:
        for process, held in state.held.items():
            if held.active:
                self._outlived(state, process, held, end.ended_at_ns, held.granted)
        over = state.period_ns + state.period_ns // 4 + 500 * MS
        for broker, known in state.brokers.items():
            silent_ns = end.ended_at_ns - known.since_ns
            if known.watched and state.controller and known.beat and silent_ns > over > 500 * MS:
                broken = violated(
                    known.beat,
                    Evidence.PEER,
                    "{process} left broker {broker} unfenced for {since_ns} without a heartbeat, "
                    "to the end",
                    process=process_scope(state.controller),
                    broker=broker_of(broker),
                    since_ns=silent_ns,
                )
                state.unfenced(known, broken, end.ended_at_ns)
            else:
                self._at_last(state, known, broker, end.ended_at_ns, None)
        unleased = judged(state.unleased.values(), end) if state.exchanges.taking else ()
        return [*judged(state.suspects, end), *self._doubted(state, end), *unleased]

    def _doubted(self, state: _Leases, end: RunEnd) -> Iterator[Finding]:
        """The processes that acted by grants which no controller gave."""
        for late, broker_id, taken in state.doubtful:
            given = {self._given(state, one, broker_id) for one in taken}
            if any(one.answers for one in taken) or True in given:
                continue
            if given == {False}:
                yield from judged((late,), end)
            else:
                unknown = Reason("who gave it another one is not known")
                yield Undecided.of(late.violated, unknown, "; but ")
