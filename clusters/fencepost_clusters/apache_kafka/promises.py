"""What Kafka promises otherwise than the seed documents do, as clauses of its own, with rules.

`KR-01` is its answer to two processes with one id, where KIP-631 lets the newer win; `KR-02` its
fencing, which is the controllers' alone; `KR-03` and `KR-04` are the seed documents' promises by
the evidence that Kafka gives: how far a broker's metadata reaches, and the end of a shutdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct

from fencepost import (
    BrokerCommitted,
    BrokerStateChanged,
    BrokerStopping,
    Cause,
    Clause,
    ControllerElected,
    ControllerResigned,
    Event,
    Exercised,
    FaultHealed,
    FaultStruck,
    Finding,
    HeartbeatRefused,
    Key,
    MetadataApplied,
    NodeStarted,
    PartitionCommitted,
    ProbeCompleted,
    ProcessExited,
    Rule,
    RunEnd,
    TopicCommitted,
    Undecided,
    Violated,
    Witness,
)
from fencepost_clusters.apache_kafka.narration import SessionConfigured

MS = 1_000_000
SECOND = 1_000 * MS
NOTHING: Sequence[Finding] = ()
DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"
_SILENCING = frozenset({"pause", "cut_from_controllers"})
"""Faults that keep a broker's heartbeats from every controller, and name the broker."""
APPLIED_WITHIN_NS = SECOND // 2
"""A broker says that it applies metadata just before it does."""
_STALL_SHARE = 10
"""A bound of which a stall ate more than a tenth proves nothing."""

CLAUSES: Sequence[Clause] = tuple(
    Clause(name, "apache-kafka", ("kraft",), says)
    for name, says in (
        (
            "KR-01",
            "While the process that holds a broker id has a session, another process with that id "
            "is refused with DUPLICATE_BROKER_REGISTRATION; none holds an id twice.",
        ),
        (
            "KR-02",
            "A broker that died, stands still or is cut off from the controllers is fenced within "
            "its session timeout, counted anew from the election of a new controller.",
        ),
        (
            "KR-03",
            "A broker that works by metadata in which another one is fenced names that one to no "
            "client.",
        ),
        (
            "KR-04",
            "A broker that is asked to end in good order leaves the cluster only once it leads "
            "nothing that another could lead.",
        ),
    )
)


def whole_run(event: Event) -> Sequence[Key]:
    """One key for all."""
    return ((),)


def slot_of(process: str) -> str:
    """`broker-2` of `broker-2#3`."""
    return process.partition("#")[0]


@dataclass(slots=True)
class _Claims:
    """Who holds which id by the committed records, and which processes are known to be well."""

    incarnations: dict[str, str] = field(default_factory=dict)
    """incarnation -> its process."""
    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    exited: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    troubled: set[str] = field(default_factory=set)
    """Processes and slots that a fault was ever aimed at: their session may be over unseen."""


@final
@dataclass(frozen=True, slots=True)
class HolderKeepsId:
    """KR-01. By the records: an id goes to a new incarnation while the process before is unfenced,
    lives, was not asked to stop and was struck by nothing that could have silenced it. Exercised by
    a refusal, as the refused process tells it, while another holds the id."""

    clause: str = "KR-01"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            *(NodeStarted, BrokerCommitted, HeartbeatRefused, ProcessExited, BrokerStopping),
            *(FaultStruck, ControllerElected),
        }
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Claims:
        return _Claims()

    def step(self, state: _Claims, event: Event) -> tuple[_Claims, Sequence[Finding]]:
        body = event.body
        match body:
            case NodeStarted(role="broker"):
                state.incarnations[body.incarnation] = event.process
            case ProcessExited():
                state.exited.add(body.ended)
            case BrokerStopping():
                state.stopping.add(event.process)
            case FaultStruck() if body.fault != "duplicate_id":
                state.troubled.update(slot_of(target) for target in body.targets)
            case HeartbeatRefused(error=error) if error == DUPLICATE:
                record = state.records.get(body.broker_id)
                holder = "" if record is None else state.incarnations.get(record.incarnation, "")
                if holder and holder != event.process:
                    return state, (Exercised(event.ref, Witness.PEER),)
            case BrokerCommitted():
                return state, self._committed(state, event, body)
        return state, NOTHING

    @staticmethod
    def _committed(state: _Claims, event: Event, body: BrokerCommitted) -> Sequence[Finding]:
        was = state.records.get(body.broker_id)
        if was is not None and body.offset <= was.offset:
            return NOTHING
        state.records[body.broker_id] = body
        if was is None or was.fenced or was.incarnation == body.incarnation:
            return NOTHING
        holder = state.incarnations.get(was.incarnation, "")
        gone = holder in state.exited or holder in state.stopping
        if not holder or gone or slot_of(holder) in state.troubled:
            return NOTHING
        newcomer = state.incarnations.get(body.incarnation, "another process")
        saying = (
            f"broker {body.broker_id} was given to {newcomer} at offset {body.offset}, while "
            f"{holder} held it, unfenced and well"
        )
        return (Violated(event.ref, Witness.PEER, saying),)

    def end(self, state: _Claims, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Silence:
    """A broker from which no controller hears: since when, and why."""

    since_ns: int
    ref: Cause
    why: str


@dataclass(slots=True)
class _Sessions:
    ids: dict[str, int] = field(default_factory=dict)
    """slot -> broker id, and process -> broker id."""
    newest: dict[str, str] = field(default_factory=dict)
    timeouts: dict[int, int] = field(default_factory=dict)
    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    silent: dict[int, _Silence] = field(default_factory=dict)
    led: bool = False
    """Whether a controller is active: nobody fences without one."""
    suspects: list[tuple[Violated, int, int, int]] = field(default_factory=list)
    """Broken bounds: the finding, from when to when, and the bound itself."""

    def hears_again(self, fault_id: str) -> None:
        """Ends the silences that one fault made."""
        for broker in [b for b, one in self.silent.items() if one.why == fault_id]:
            del self.silent[broker]


@final
@dataclass(frozen=True, slots=True)
class SilentIsFenced:
    """KR-02. The bound is the session timeout, a quarter of it (the controllers look eight times a
    timeout), and a second. Exercised by each fencing of a broker known to be silent."""

    clause: str = "KR-02"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            *(NodeStarted, SessionConfigured, BrokerCommitted, ProcessExited, FaultStruck),
            *(FaultHealed, ControllerElected, ControllerResigned),
        }
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Sessions:
        return _Sessions()

    def step(self, state: _Sessions, event: Event) -> tuple[_Sessions, Sequence[Finding]]:
        body = event.body
        match body:
            case NodeStarted(role="broker"):
                state.ids[event.process] = state.ids[slot_of(event.process)] = body.node_id
                state.newest[slot_of(event.process)] = event.process
                state.incarnations[body.incarnation] = event.process
            case SessionConfigured():
                state.timeouts[body.broker_id] = body.timeout_ms * MS
            case ProcessExited():
                self._silenced(state, event, body.ended, f"{body.ended} ended")
            case FaultStruck(receipt=True) if body.fault in _SILENCING:
                for target in body.targets:
                    process = target if "#" in target else state.newest.get(target, "")
                    self._silenced(state, event, process, body.fault_id)
            case FaultHealed():
                self._overdue(state, event.at_ns, event.ref)
                state.hears_again(body.fault_id)
            case ControllerElected():
                state.led = True
                for silence in state.silent.values():
                    silence.since_ns = event.at_ns
            case ControllerResigned():
                state.led = False
            case BrokerCommitted():
                return state, self._committed(state, event, body)
        return state, NOTHING

    @staticmethod
    def _silenced(state: _Sessions, event: Event, process: str, why: str) -> None:
        broker = state.ids.get(process)
        record = None if broker is None else state.records.get(broker)
        if broker is None or record is None or record.fenced or broker in state.silent:
            return
        if state.incarnations.get(record.incarnation) == process:
            state.silent[broker] = _Silence(event.at_ns, event.ref, why)

    def _committed(
        self, state: _Sessions, event: Event, body: BrokerCommitted
    ) -> Sequence[Finding]:
        was = state.records.get(body.broker_id)
        if was is not None and body.offset <= was.offset:
            return NOTHING
        state.records[body.broker_id] = body
        silence = state.silent.get(body.broker_id)
        if silence is None:
            return NOTHING
        late = self._late(state, body.broker_id, silence, event.at_ns, event.ref)
        del state.silent[body.broker_id]
        return NOTHING if late else (Exercised(event.ref, Witness.PEER),)

    def _overdue(self, state: _Sessions, at_ns: int, at: Cause) -> None:
        for broker, silence in list(state.silent.items()):
            if self._late(state, broker, silence, at_ns, at):
                del state.silent[broker]

    @staticmethod
    def _late(state: _Sessions, broker: int, silence: _Silence, at_ns: int, at: Cause) -> bool:
        session_ns = state.timeouts.get(broker, 0)
        bound_ns = session_ns + session_ns // 4 + SECOND
        took_ns = at_ns - silence.since_ns
        if not state.led or not session_ns or took_ns <= bound_ns:
            return False
        saying = (
            f"broker {broker} was silent for {took_ns / SECOND:.1f} s ({silence.why}) before it "
            f"was fenced; its session timeout is {session_ns / SECOND:.1f} s"
        )
        violated = Violated(at, Witness.PEER, saying, (silence.ref,))
        state.suspects.append((violated, silence.since_ns, at_ns, bound_ns))
        return True

    def end(self, state: _Sessions, end: RunEnd) -> Sequence[Finding]:
        if state.led and end.complete:
            for broker, silence in state.silent.items():
                self._late(state, broker, silence, end.ended_at_ns, silence.ref)
        return tuple(
            violated
            if end.stalled_ns(from_ns, to_ns) * _STALL_SHARE <= bound_ns
            else Undecided(f"{violated.saying}, while processes stood still", violated.at)
            for violated, from_ns, to_ns, bound_ns in state.suspects
        )


@dataclass(slots=True)
class _Told:
    """What each slot's broker works by, and which brokers are fenced from which offset on."""

    applied: dict[str, tuple[int, int]] = field(default_factory=dict)
    """slot -> offset, and since when."""
    reached: dict[str, dict[int, int]] = field(default_factory=dict)
    """slot -> fenced broker -> when the slot's broker had applied that."""
    fenced: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    suspects: list[tuple[int, int, Violated]] = field(default_factory=list)
    """Brokers that were named while fenced, by the records told so far; and up to which offset the
    broker that named them worked then: an unfencing before it may be told yet."""


@final
@dataclass(frozen=True, slots=True)
class FencedIsNamedToNobody:
    """KR-03. A client's word: a Metadata request sent half a second after the broker that answered
    began to apply the fencing, and answered before it applied an unfencing."""

    clause: str = "KR-03"
    kinds: frozenset[type[Struct]] = frozenset(
        {NodeStarted, BrokerCommitted, MetadataApplied, ProbeCompleted}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Told:
        return _Told()

    def step(self, state: _Told, event: Event) -> tuple[_Told, Sequence[Finding]]:
        body = event.body
        match body:
            case NodeStarted():
                state.applied.pop(slot_of(event.process), None)
                state.reached.pop(slot_of(event.process), None)
            case BrokerCommitted(fenced=True):
                state.fenced.setdefault(body.broker_id, (body.offset, event.ref))
                for slot, (offset, at_ns) in state.applied.items():
                    self._reach(state, slot, offset, at_ns)
            case BrokerCommitted():
                state.fenced.pop(body.broker_id, None)
                state.suspects = [
                    one
                    for one in state.suspects
                    if one[0] != body.broker_id or one[1] < body.offset
                ]
                for reached in state.reached.values():
                    reached.pop(body.broker_id, None)
            case MetadataApplied():
                slot = slot_of(event.process)
                state.applied[slot] = (body.offset, event.at_ns)
                self._reach(state, slot, body.offset, event.at_ns)
            case ProbeCompleted(api="Metadata", outcome="answered"):
                return state, self._answered(state, event, body)
        return state, NOTHING

    @staticmethod
    def _reach(state: _Told, slot: str, offset: int, at_ns: int) -> None:
        for broker, (fenced_at, _) in state.fenced.items():
            if offset >= fenced_at:
                state.reached.setdefault(slot, {}).setdefault(broker, at_ns)

    @staticmethod
    def _answered(state: _Told, event: Event, body: ProbeCompleted) -> Sequence[Finding]:
        found: list[Finding] = []
        for broker, since_ns in sorted(state.reached.get(body.slot, {}).items()):
            if since_ns + APPLIED_WITHIN_NS > body.sent_at_ns:
                continue
            if broker in body.brokers:
                saying = f"{body.slot} named broker {broker}, which is fenced, to {event.process}"
                because = (state.fenced[broker][1],)
                violated = Violated(event.ref, Witness.CLIENT, saying, because)
                state.suspects.append((broker, state.applied[body.slot][0], violated))
            else:
                found.append(Exercised(event.ref, Witness.CLIENT))
        return found

    def end(self, state: _Told, end: RunEnd) -> Sequence[Finding]:
        return tuple(violated for _, _, violated in state.suspects)


@dataclass(slots=True)
class _Left:
    """A process that was let go: what it led by the records told until then, and up to which
    offset it had applied them itself; a record before that may be told yet."""

    broker: int
    applied: int
    places: set[tuple[str, int]]
    at: Cause
    process: str
    asked: Cause


@dataclass(slots=True)
class _Leaving:
    partitions: dict[tuple[str, int], PartitionCommitted] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    wishes: dict[str, tuple[Cause, bool]] = field(default_factory=dict)
    """process that was asked to end -> that event, and whether it led anything then."""
    left: list[_Left] = field(default_factory=list)

    def led_by(self, broker: int) -> set[tuple[str, int]]:
        """What a broker leads though another member of the ISR could."""
        return {
            place
            for place, one in self.partitions.items()
            if one.leader == broker and set(one.isr) - {broker}
        }


@final
@dataclass(frozen=True, slots=True)
class LeavesLeadingNothing:
    """KR-04. The broker says that it was let go; the records, what it led. Exercised by one that
    led something when it was asked to end."""

    clause: str = "KR-04"
    kinds: frozenset[type[Struct]] = frozenset(
        {BrokerStopping, BrokerStateChanged, PartitionCommitted, TopicCommitted, MetadataApplied}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Leaving:
        return _Leaving()

    def step(self, state: _Leaving, event: Event) -> tuple[_Leaving, Sequence[Finding]]:
        body = event.body
        match body:
            case MetadataApplied():
                state.applied[event.process] = body.offset
            case PartitionCommitted():
                self._changed(state, body)
            case TopicCommitted(deleted=True):
                for place in [p for p in state.partitions if p[0] == body.topic]:
                    del state.partitions[place]
            case BrokerStopping(state="ACTIVE"):
                state.wishes[event.process] = event.ref, bool(state.led_by(body.broker_id))
            case BrokerStateChanged(new="SHUTDOWN") if event.process in state.wishes:
                asked, led = state.wishes.pop(event.process)
                applied = state.applied.get(event.process, -1)
                places = state.led_by(body.broker_id)
                state.left.append(
                    _Left(body.broker_id, applied, places, event.ref, event.process, asked)
                )
                return state, (Exercised(event.ref, Witness.PEER),) if led else NOTHING
        return state, NOTHING

    @staticmethod
    def _changed(state: _Leaving, body: PartitionCommitted) -> None:
        place = body.topic, body.partition
        known = state.partitions.get(place)
        if known is None or body.offset > known.offset:
            state.partitions[place] = body
        for left in state.left:
            if body.offset <= left.applied and body.leader != left.broker:
                left.places.discard(place)

    def end(self, state: _Leaving, end: RunEnd) -> Sequence[Finding]:
        found: list[Finding] = []
        for left in state.left:
            if left.places:
                names = ", ".join(f"{topic}-{number}" for topic, number in sorted(left.places))
                saying = f"{left.process} left the cluster leading {names}"
                found.append(Violated(left.at, Witness.PEER, saying, (left.asked,)))
        return found


RULES: Sequence[Rule[Any]] = (
    HolderKeepsId(),
    SilentIsFenced(),
    FencedIsNamedToNobody(),
    LeavesLeadingNothing(),
)
