"""The one state of a broker: the same for itself, for the cluster and for clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from msgspec import Struct

from fencepost import (
    FAULT_KINDS,
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excuses,
    Exercised,
    Finding,
    Findings,
    NodeStarted,
    Rule,
    RunEnd,
    judged,
    on,
    process_scope,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    BrokerStopping,
    HeartbeatAnswered,
    ProbeCompleted,
    SnapshotLoaded,
    broker_of,
)
from fencepost_suites.common.keys import Keys, by_broker, by_slot_serving

_WORDS = {
    ("INITIAL", False): "Offline",
    ("INITIAL", True): "Offline",
    ("FENCED", False): "Fenced",
    ("FENCED", True): "Fenced",
    ("ACTIVE", False): "Online",
    ("ACTIVE", True): "Stopping",
    ("SHUTDOWN", False): "Offline",
    ("SHUTDOWN", True): "Offline",
}
"""The registration draft's name for a KIP-631 state, and whether SHUTDOWN is requested."""


class _Record(Struct, frozen=True):
    """A record about a broker, and when a node told it first."""

    epoch: int
    incarnation: str
    fenced: bool
    at_ns: int
    ref: Cause


@dataclass(slots=True)
class _State:
    """One broker id: its records, and its processes."""

    records: dict[int, _Record] = field(default_factory=dict)
    """offset -> the record; a deletion is one that fences it."""
    incarnations: dict[str, str] = field(default_factory=dict)
    """process -> its incarnation: by the controllers that answered it, or else by its own word."""
    stopping: set[str] = field(default_factory=set)
    """The processes that want to stop."""
    period_ns: int = 0
    """The longest lease that a controller gave it."""
    suspects: list[Deadline] = field(default_factory=list)

    def told(self, event: Event, offset: int, *, epoch: int, incarnation: str, out: bool) -> None:
        """A node tells a record of the broker."""
        told = _Record(epoch, incarnation, out, event.at_ns, event.ref)
        self.records.setdefault(offset, told)

    def active_by(self, epoch: int, incarnation: str) -> int | None:
        """The offset of the first record that makes this incarnation active under an epoch."""
        by = (
            offset
            for offset, one in self.records.items()
            if not one.fenced and one.epoch == epoch and incarnation in ("", one.incarnation)
        )
        return min(by, default=None)

    def ended(self, epoch: int, offset: int) -> _Record | None:
        """The first record that ends what the one at this offset began: told by now, though it may
        have been told to others only."""
        later = (
            one
            for at, one in self.records.items()
            if at > offset and (one.fenced or one.epoch != epoch)
        )
        return min(later, key=lambda one: one.at_ns, default=None)


def _by_id(event: Event) -> Keys:
    body = event.body
    return ((body.node_id,),) if isinstance(body, NodeStarted) else by_broker(event)


@final
class OneGlobalState(Rule[_State]):
    """REG-01. A broker that reports itself Online is Online in a committed record of the same
    epoch and incarnation; the nodes that replayed the record are the evidence. The broker may have
    been fenced since, but not longer ago than a lease: its own one, which began before it reports
    that, is over by then."""

    clause = "REG-01"
    keys = staticmethod(_by_id)
    state = _State

    @on(NodeStarted, HeartbeatAnswered, BrokerCommitted, BrokerDeleted)
    def _known(self, state: _State, event: Event, body: Struct) -> Findings:
        """What others know of the broker, and which process is which incarnation."""
        match body:
            case NodeStarted(role="broker"):
                state.incarnations.setdefault(event.process, body.incarnation)
            case HeartbeatAnswered(error="NONE"):
                state.period_ns = max(state.period_ns, body.lease_period_ms * MS)
                state.incarnations[body.client] = body.incarnation
            case BrokerCommitted():
                state.told(
                    event,
                    body.offset,
                    epoch=body.broker_epoch,
                    incarnation=body.incarnation,
                    out=body.fenced,
                )
            case BrokerDeleted():
                state.told(event, body.offset, epoch=-1, incarnation="", out=True)
        return NOTHING

    @on(BrokerStateChanged, BrokerStopping)
    def _reports(self, state: _State, event: Event, body: Struct) -> Findings:
        match body:
            case BrokerStopping():
                state.stopping.add(event.process)
                return self._named(event, body.state, body.global_state, stopping=True)
            case BrokerStateChanged():
                stopping = event.process in state.stopping
                said = body.global_state
                wrong = self._named(event, body.new, said, stopping) if said else NOTHING
                return wrong or self._online(state, event, body)
        return NOTHING

    @staticmethod
    def _named(event: Event, state: str, reported: str, stopping: bool) -> Findings:
        wanted = _WORDS.get((state, stopping))
        if wanted == reported:
            return NOTHING
        wish = " and wants to stop" if stopping else ""
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} is {state}{wish} and reports that as {reported}",
            process=process_scope(event.process),
            state=state,
            wish=wish,
            stopping=stopping,
            reported=reported or "nothing",
        )
        return (broken,)

    @staticmethod
    def _online(state: _State, event: Event, body: BrokerStateChanged) -> Findings:
        if body.new != "ACTIVE":
            return NOTHING
        epoch = body.broker_epoch
        # Where nodes tell no incarnations, any record of the epoch counts.
        mine = "" if not state.incarnations else state.incarnations.get(event.process)
        offset = None if mine is None else state.active_by(epoch, mine)
        if offset is None:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} reports that it is {state} under broker epoch {epoch}, under which no "
                "node has it active",
                process=process_scope(event.process),
                state=body.global_state or body.new,
                epoch=epoch,
                broker=broker_of(body.broker_id),
            )
            return (broken,)
        ended = state.ended(epoch, offset)
        if ended is None or event.at_ns - ended.at_ns <= state.period_ns:
            return (Exercised(event.ref, Evidence.PEER),)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} became {state} under broker epoch {epoch} {after_ns} after a record had "
            "ended that",
            (ended.ref,),
            process=process_scope(event.process),
            state=body.global_state or body.new,
            epoch=epoch,
            after_ns=event.at_ns - ended.at_ns,
            broker=broker_of(body.broker_id),
        )
        state.suspects.append(
            Deadline(
                broken,
                (event.process,),
                ended.at_ns,
                event.at_ns,
                state.period_ns,
                omission=False,
            )
        )
        return NOTHING

    def end(self, state: _State, end: RunEnd) -> Findings:
        return judged(state.suspects, end)


@dataclass(slots=True)
class _Answering:
    """The fenced brokers by the records that a slot's newest process has replayed, and since
    when."""

    fenced: dict[int, tuple[int, Cause]] = field(default_factory=dict)


@final
class FencedBrokersLeftOut(Rule[_Answering]):
    """REG-07. A client's evidence: a Metadata request was sent after the answering broker had
    replayed that another broker is fenced, and the broker still held it to be fenced when the
    answer arrived."""

    clause = "REG-07"
    keys = staticmethod(by_slot_serving)
    state = _Answering

    @on(NodeStarted, BrokerCommitted, SnapshotLoaded, ProbeCompleted)
    def step(self, state: _Answering, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="broker") | SnapshotLoaded():
                state.fenced.clear()  # later knowledge will be in its events
            case BrokerCommitted(role="controller"):
                pass  # the controller in the same process may know more than the broker
            case BrokerCommitted(fenced=True):
                state.fenced.setdefault(body.broker_id, (event.at_ns, event.ref))
            case BrokerCommitted():
                state.fenced.pop(body.broker_id, None)
            case ProbeCompleted(api="Metadata", outcome="answered"):
                return self._probed(state, event, body)
        return NOTHING

    @staticmethod
    def _probed(state: _Answering, event: Event, body: ProbeCompleted) -> Findings:
        found: list[Finding] = []
        for broker, (since_ns, ref) in sorted(state.fenced.items()):
            if since_ns > body.sent_at_ns:
                continue
            if broker in body.brokers:
                broken = violated(
                    event.ref,
                    Evidence.CLIENT,
                    "{slot} named broker {broker}, which is fenced, to {client}",
                    (ref,),
                    slot=slot_scope(body.slot),
                    broker=broker_of(broker),
                    client=process_scope(event.process),
                )
                found.append(broken)
            else:
                found.append(Exercised(event.ref, Evidence.CLIENT))
        return found


LEFT_OUT_WITHIN_NS: Final = 30_000 * MS
"""How long a broker may take to replay a record, if it answers clients and no fault touches it."""


class _Out(Struct, frozen=True):
    """The newest record of a broker, and since when it is out of the cluster; None: it is in it."""

    offset: int
    since: tuple[int, Cause] | None


@dataclass(slots=True)
class _Told:
    """The brokers by the records that any node has told."""

    brokers: dict[int, _Out] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    """slot -> when its newest process began."""
    excuses: Excuses = field(default_factory=Excuses)
    suspects: list[Deadline] = field(default_factory=list)

    def told(self, event: Event, broker: int, offset: int, *, out: bool) -> None:
        """A node tells a record of a broker."""
        known = self.brokers.get(broker, _Out(-1, None))
        if offset > known.offset:
            since = known.since or (event.at_ns, event.ref)
            self.brokers[broker] = _Out(offset, since if out else None)


@final
class FencedBrokersLeftOutInTime(Rule[_Told]):
    """REG-07, as others know the brokers: that a broker has replayed no record is its own word. A
    broker that answers clients has a lease. So the active controller answers its heartbeats, and it
    can replay what that controller has committed. It is given time for that, and for a fault that
    keeps it from it."""

    clause = "REG-07"
    state = _Told

    @on(NodeStarted, BrokerCommitted, BrokerDeleted, ProbeCompleted, *FAULT_KINDS)
    def step(self, state: _Told, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="broker"):
                state.began[slot_of(event.process)] = event.at_ns
            case BrokerCommitted():
                state.told(event, body.broker_id, body.offset, out=body.fenced)
            case BrokerDeleted():
                state.told(event, body.broker_id, body.offset, out=True)
            case ProbeCompleted(api="Metadata", outcome="answered"):
                self._probed(state, event, body)
            case _:
                state.excuses.take(event)
        return NOTHING

    @staticmethod
    def _probed(state: _Told, event: Event, body: ProbeCompleted) -> None:
        slot = body.slot
        for broker in body.brokers:
            out = state.brokers.get(broker)
            if out is None or out.since is None:
                continue
            since_ns, ref = out.since
            from_ns = max(since_ns, state.began.get(slot, 0))
            recently = state.excuses.since(body.sent_at_ns - LEFT_OUT_WITHIN_NS)
            touched = any(one.touches(slot) for one in recently)
            if touched or body.sent_at_ns - from_ns <= LEFT_OUT_WITHIN_NS:
                continue
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{slot} named broker {broker} to {client}, {after_ns} after it was fenced",
                (ref,),
                slot=slot_scope(slot),
                broker=broker_of(broker),
                client=process_scope(event.process),
                after_ns=body.sent_at_ns - since_ns,
            )
            state.suspects.append(
                Deadline(broken, (slot,), from_ns, body.sent_at_ns, LEFT_OUT_WITHIN_NS)
            )

    def end(self, state: _Told, end: RunEnd) -> Findings:
        return judged(state.suspects, end)
