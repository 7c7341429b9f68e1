"""Registration: how a process gets its broker id, and how its states and epochs may change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    NodeStarted,
    ProcessExited,
    ProcessSpawned,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatSent,
    LeaseGranted,
    MetadataCommitted,
    broker_of,
)
from fencepost_suites.brokers.exchanges import Exchange, Exchanges
from fencepost_suites.common.keys import by_broker, by_process
from fencepost_suites.common.starts import process_begun

TAKEN_KEPT: Final = 3
"""How many heartbeats are kept beside the newest one, for what it is that made a process active."""


@dataclass(slots=True)
class _Allowed:
    """The evidence that one process was allowed to become active since it was last fenced."""

    exchanges: Exchanges = field(default_factory=Exchanges)
    by_controller: bool = False
    taken: tuple[Exchange, ...] = ()
    """The last heartbeats from whose answers the process took a lease that lets it be active."""
    doubtful: list[tuple[Deadline, tuple[Exchange, ...]]] = field(default_factory=list)
    """What is wrong only if no answer to these heartbeats had allowed it."""


@final
class ActiveOnlyWhenTold(Rule[_Allowed]):
    """QC-16. The controller's evidence is its answer to this process; the broker's is the answer
    that it received. Both are about one heartbeat: an answer that the broker did not take lets it
    do nothing, and neither does one by which the active controller told it something else. A
    process that tells of no grant is believed by its controller's word."""

    clause = "QC-16"
    keys = staticmethod(by_process)
    state = _Allowed

    @on(HeartbeatAnswered, LeaseGranted, BrokerStateChanged)
    def step(self, state: _Allowed, event: Event, body: Struct) -> Findings:
        match body:
            case HeartbeatAnswered(error="NONE"):
                state.exchanges.answered(event, body)
                state.by_controller = state.by_controller or body.next_state == "ACTIVE"
            case LeaseGranted():
                taken = state.exchanges.granted(event, body)
                if body.next_state == "ACTIVE":
                    state.taken = (*state.taken[-TAKEN_KEPT:], taken)
            case BrokerStateChanged(old="ACTIVE", new="ACTIVE"):
                return NOTHING  # it leaves no fence
            case BrokerStateChanged():
                found = self._active(state, event, body) if body.new == "ACTIVE" else NOTHING
                # Each activity needs an answer of its own, also after a fence that was not told.
                state.by_controller, state.taken = False, ()
                return found
        return NOTHING

    @staticmethod
    def _active(state: _Allowed, event: Event, body: BrokerStateChanged) -> Findings:
        told = event.process in state.exchanges.taking
        answers = [answer for one in state.taken for answer in one.answers]
        if state.by_controller and not told:
            return (Exercised(event.ref, Evidence.PEER),)
        # A controller that answered this process nothing tells of no answers.
        if any(one.lets_be_active for one in answers) or (
            state.taken and not state.exchanges.answering
        ):
            by = Evidence.PEER if state.by_controller else Evidence.SELF
            return (Exercised(event.ref, by),)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} went from {former_state} to ACTIVE ({reason}) though no heartbeat "
            "answer had allowed it since it was last fenced",
            tuple(one.at for one in answers),
            process=process_scope(event.process),
            former_state=body.old,
            reason=body.reason,
            broker=broker_of(body.broker_id),
        )
        if not state.taken and not state.by_controller:
            return (broken,)
        # Of no length: where the history is not complete, an answer may be missing.
        late = Deadline(broken, (), event.at_ns, event.at_ns, bound_ns=1)
        state.doubtful.append((late, state.taken))
        return NOTHING

    def end(self, state: _Allowed, end: RunEnd) -> Findings:
        return [finding for one in state.doubtful for finding in self._judged(*one, end)]

    @staticmethod
    def _judged(late: Deadline, taken: tuple[Exchange, ...], end: RunEnd) -> Findings:
        answers = [answer for one in taken for answer in one.answers]
        # An answer may be recorded once it is sent, and so after the broker took it.
        if any(one.lets_be_active for one in answers):
            return (Exercised(late.violated.at, Evidence.PEER),)
        if answers or not taken:
            return judged((late,), end)
        # It told of an answer, and its controller may have been killed before it recorded it.
        unknown = Reason("who gave it the lease that it took is not known")
        return (Undecided.of(late.violated, unknown, "; but "),)


_MOVES = frozenset(
    {
        ("INITIAL", "FENCED"),
        ("INITIAL", "ACTIVE"),
        ("ACTIVE", "FENCED"),
        ("FENCED", "ACTIVE"),
        ("ACTIVE", "SHUTDOWN"),
        ("FENCED", "SHUTDOWN"),
    }
)


@dataclass(slots=True)
class _Life:
    """The states of the processes of one broker id, and its records."""

    states: dict[str, str] = field(default_factory=dict)
    active: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """process -> the broker epoch under which it was last active."""
    record: BrokerCommitted | None = None
    unfenced: tuple[int, str, Cause] | None = None
    """epoch and incarnation of the newest record that was not fenced."""
    fenced: tuple[Cause, ...] = ()
    """The record that fenced it since."""


@final
class StatesMoveAsDrawn(Rule[_Life]):
    """QC-20. Exercised when a broker becomes active again: its broker epoch must be new."""

    clause = "QC-20"
    keys = staticmethod(by_broker)
    state = _Life

    @on(BrokerStateChanged)
    def _moved(self, state: _Life, event: Event, body: BrokerStateChanged) -> Findings:
        was = state.states.get(event.process, body.old)
        state.states[event.process] = body.new
        found: list[Finding] = []
        # The second: it claims another former state than the one that it had reported.
        if (was, body.new) not in _MOVES or was != body.old:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} went from {former_state} to {state} ({reason})",
                process=process_scope(event.process),
                former_state=was,
                state=body.new,
                reason=body.reason,
                broker=broker_of(body.broker_id),
            )
            found.append(broken)
        if body.new == "ACTIVE":
            before = state.active.get(event.process)
            state.active[event.process] = (body.broker_epoch, event.ref)
            if before is not None and body.broker_epoch <= before[0]:
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} is active again under broker epoch {epoch}, under which it had "
                    "lost its lease",
                    (before[1],),
                    process=process_scope(event.process),
                    epoch=body.broker_epoch,
                    broker=broker_of(body.broker_id),
                )
                found.append(broken)
            elif before is not None:
                by_record = state.unfenced is not None and state.unfenced[0] == body.broker_epoch
                found.append(Exercised(event.ref, Evidence.PEER if by_record else Evidence.SELF))
        return found

    @on(BrokerCommitted)
    def _committed(self, state: _Life, event: Event, body: BrokerCommitted) -> Findings:
        was, before = state.record, state.unfenced
        if was is not None and body.offset <= was.offset:
            return NOTHING
        state.record = body
        if body.fenced:
            state.fenced = state.fenced or (event.ref,)
            return NOTHING
        fenced, state.fenced = state.fenced, ()
        state.unfenced = (body.broker_epoch, body.incarnation, event.ref)
        # Not a return from a fence.
        if was is None or not was.fenced or before is None:
            return NOTHING
        epoch, incarnation, ref = before
        # Another process has an epoch of its own, which `EpochsGrow` judges.
        if incarnation != body.incarnation or body.broker_epoch > epoch:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "broker {broker} was made active again at offset {offset} under broker epoch {epoch}, "
            "under which it had been fenced",
            (ref, *fenced),
            broker=broker_of(body.broker_id),
            offset=body.offset,
            epoch=body.broker_epoch,
        )
        return (broken,)


class _Given(Struct, frozen=True):
    """The largest broker epoch that an id was given, by which record, and in which term that was
    written (-1: not known)."""

    epoch: int
    term: int
    ref: Cause


class _Newest(Struct, frozen=True):
    """The newest record of one broker id: its offset and incarnation, and the largest epoch."""

    offset: int
    incarnation: str
    largest: _Given


@dataclass(slots=True)
class _Epochs:
    """The newest record of each broker id, and what is known of the controllers."""

    newest: dict[int, _Newest] = field(default_factory=dict)
    elected: dict[int, Cause] = field(default_factory=dict)
    """term -> the election of its controller."""
    terms: dict[str, tuple[int, int]] = field(default_factory=dict)
    """process -> offset and term of the entry that it committed last."""


@final
class EpochsGrow(Rule[_Epochs]):
    """QC-21. The proof is the record with the largest epoch before. If another controller wrote
    that record, the election of the controller that gave the epoch belongs to the proof. Exercised
    by every new epoch of an id that had one before."""

    clause = "QC-21"
    state = _Epochs

    @on(BrokerCommitted, MetadataCommitted, ControllerElected)
    def step(self, state: _Epochs, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerElected():
                state.elected[body.epoch] = event.ref
            case MetadataCommitted():
                state.terms[event.process] = (body.offset, body.epoch)
            case BrokerCommitted():
                return self._committed(state, event, body)
        return NOTHING

    @staticmethod
    def _committed(state: _Epochs, event: Event, body: BrokerCommitted) -> Findings:
        was = state.newest.get(body.broker_id)
        if was is not None and body.offset <= was.offset:
            return NOTHING
        offset, term = state.terms.get(event.process, (-1, -1))
        term = term if offset == body.offset else -1
        after = body.broker_epoch
        largest = _Given(after, term, event.ref)
        if was is not None and was.largest.epoch >= after:
            largest = was.largest
        state.newest[body.broker_id] = _Newest(body.offset, body.incarnation, largest)
        if was is None:
            return NOTHING
        before = was.largest.epoch
        # One process keeps its epoch from record to record, so an equal one is wrong only for
        # another process.
        if after < before or (after == before and body.incarnation != was.incarnation):
            return (_shrunk(state, event, body, was.largest, term),)
        return (Exercised(event.ref, Evidence.PEER),) if after > before else NOTHING


def _shrunk(
    state: _Epochs, event: Event, body: BrokerCommitted, largest: _Given, term: int
) -> Violated:
    """A broker epoch that is not larger than the one before, in a record of that term."""
    if not (term > largest.term >= 0 and term in state.elected):
        return violated(
            event.ref,
            Evidence.PEER,
            "broker {broker} was given broker epoch {epoch} at offset {offset}, after "
            "{other_epoch}",
            (largest.ref,),
            broker=broker_of(body.broker_id),
            epoch=body.broker_epoch,
            offset=body.offset,
            other_epoch=largest.epoch,
        )
    return violated(
        event.ref,
        Evidence.PEER,
        "broker {broker} was given broker epoch {epoch} at offset {offset}, after {other_epoch}, "
        "by the controller of epoch {controller_epoch}",
        (largest.ref, state.elected[term]),
        broker=broker_of(body.broker_id),
        epoch=body.broker_epoch,
        offset=body.offset,
        other_epoch=largest.epoch,
        controller_epoch=term,
    )


@dataclass(slots=True)
class _Entry:
    """The newest record of one broker id, and the incarnations whose registration is committed."""

    record: BrokerCommitted | None = None
    decided: tuple[int, str] | None = None
    """Offset of a registration that took over an active entry, and the process that reported it
    first."""
    committed: set[str] = field(default_factory=set)
    """By the word of any node: one that starts from a snapshot does not name the entries in it."""


@final
class RegistersFenced(Rule[_Entry]):
    """REG-03. Exercised by a registration that takes over an active entry: its record, as a second
    node replays it, is fenced."""

    clause = "REG-03"
    keys = staticmethod(by_broker)
    state = _Entry

    @on(BrokerCommitted, HeartbeatAnswered)
    def step(self, state: _Entry, event: Event, body: Struct) -> Findings:
        if isinstance(body, BrokerCommitted):
            state.committed.add(body.incarnation)
            return self._committed(state, event, body)
        assert isinstance(body, HeartbeatAnswered)
        if body.request_epoch >= 0 or body.error != "NONE" or not body.active:
            return NOTHING
        if body.incarnation in state.committed:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} answered the registration of broker {broker} by {client} before its entry "
            "was committed",
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            client=process_scope(body.client),
        )
        return (broken,)

    @staticmethod
    def _committed(state: _Entry, event: Event, body: BrokerCommitted) -> Findings:
        was = state.record
        if was is not None and body.offset <= was.offset:
            # The record is known already. It is counted once, when a second node has replayed it as
            # fenced.
            if state.decided is None or state.decided[0] != body.offset:
                return NOTHING
            if event.process == state.decided[1]:
                return NOTHING
            state.decided = None
            return (Exercised(event.ref, Evidence.PEER),)
        state.record = body
        if was is not None and was.incarnation == body.incarnation:
            return NOTHING
        if not body.fenced:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "broker {broker} was registered by a new process at offset {offset} and is active "
                "at once",
                broker=broker_of(body.broker_id),
                offset=body.offset,
            )
            return (broken,)
        if was is not None and not was.fenced:
            state.decided = (body.offset, event.process)
        return NOTHING


NOT_FOR_THE_ID = frozenset(
    {"NOT_CONTROLLER", "UNSUPPORTED_VERSION", "INVALID_REQUEST", "CLUSTER_AUTHORIZATION_FAILED"}
)
"""The refusals to register that say nothing of who has the id."""


@dataclass(slots=True)
class _Claims:
    """The newest process of each id, and the lease of the process before."""

    newest: dict[int, str] = field(default_factory=dict)
    leases: dict[int, tuple[str, int, Cause]] = field(default_factory=dict)
    """id -> process, end and event of the lease that ends last."""
    beside: dict[str, frozenset[str]] = field(default_factory=dict)
    """process -> those that had not exited when it started: it is the restart of none of them."""
    exited: dict[str, Cause] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)
    """process -> start of the lease in its newest heartbeat, and when it sent that."""
    refused: set[str] = field(default_factory=set)
    """The processes that were refused; each side tells of a refusal, and it may be repeated."""

    def leased(self, broker: int, process: str, ends_ns: int, ref: Cause) -> None:
        """A process has a lease, by its own word or by the controller's."""
        lease = self.leases.get(broker)
        if lease is None or lease[1] < ends_ns:
            self.leases[broker] = (process, ends_ns, ref)


@final
class RestartedProcessReclaimsId(Rule[_Claims]):
    """QC-35. The new process or the controller reports it: a lease granted, or refused, while the
    dead process's lease still ran, by whatever name that has nothing to do with another reason.
    That lease is what the dead process took, or what the controller gave for its newest request,
    whichever ends later."""

    clause = "QC-35"
    state = _Claims

    @on(
        *(ProcessSpawned, NodeStarted, ProcessExited),
        *(HeartbeatSent, HeartbeatAnswered, LeaseGranted, HeartbeatRefused),
    )
    def step(self, state: _Claims, event: Event, body: Struct) -> Findings:
        match body:
            case ProcessSpawned(role="broker") | NodeStarted(role="broker"):
                process = process_begun(event, body)
                state.newest[body.node_id] = process
                # By its first word: it told that it started later than it did.
                living = frozenset(state.beside.keys() - state.exited.keys())
                state.beside.setdefault(process, living)
            case ProcessExited():
                state.exited[body.ended] = event.ref
            case LeaseGranted():
                return self._granted(state, event, body)
            case HeartbeatSent():
                state.asked[event.process] = body.lease_start_ms, event.at_ns
            case HeartbeatAnswered(error="NONE", active=True):
                start_ms, sent_ns = state.asked.get(body.client, (-1, 0))
                # A new process has the id once it takes what it was given. Until then it waits for
                # the dead one's lease, if that still runs: else its grant would exercise nothing.
                waits = self._waits_for(state, body.client, body.broker_id, event.at_ns)
                if start_ms == body.lease_start_ms and waits is None:
                    ends_ns = sent_ns + (body.lease_end_ms - start_ms) * MS
                    state.leased(body.broker_id, body.client, ends_ns, event.ref)
            case HeartbeatRefused(broker_epoch=-1) if body.error not in NOT_FOR_THE_ID:
                return self._refused(state, event, event.process, body.broker_id)
            case HeartbeatAnswered(request_epoch=-1, active=True) if (
                body.error not in NOT_FOR_THE_ID
            ):
                return self._refused(state, event, body.client, body.broker_id)
        return NOTHING

    @staticmethod
    def _waits_for(
        state: _Claims, process: str, broker: int, at_ns: int
    ) -> tuple[str, int, Cause] | None:
        """The lease of a dead process of this id that still runs, if this process is the newest
        one, and was started after the dead one had ended."""
        lease = state.leases.get(broker)
        if lease is None or lease[0] == process or lease[0] not in state.exited:
            return None
        # The two ran beside each other, so the newer one is a second process with the id, and no
        # restart.
        if lease[0] in state.beside.get(process, ()):
            return None
        if state.newest.get(broker) != process or process in state.registered:
            return None
        return lease if lease[1] > at_ns else None

    def _granted(self, state: _Claims, event: Event, body: LeaseGranted) -> Findings:
        old = self._waits_for(state, event.process, body.broker_id, event.at_ns)
        state.registered.add(event.process)
        state.leased(body.broker_id, event.process, body.ends_at_ns, event.ref)
        return NOTHING if old is None else (Exercised(event.ref, Evidence.PEER),)

    def _refused(self, state: _Claims, event: Event, process: str, broker: int) -> Findings:
        old = self._waits_for(state, process, broker, event.at_ns)
        if old is None or process in state.refused:
            return NOTHING
        state.refused.add(process)
        dead, ends_ns, ref = old
        because = (ref, state.exited[dead])
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} was refused broker id {broker} because of {other}, which was dead and had "
            "{left_ns} of its lease left",
            because,
            process=process_scope(process),
            broker=broker_of(broker),
            other=process_scope(dead),
            left_ns=ends_ns - event.at_ns,
        )
        return (broken,)
