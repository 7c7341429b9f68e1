"""The one state of a broker: the same for itself, for the cluster and for clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    NodeStarted,
    Rule,
    on,
    process_scope,
    slot_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    BrokerStopping,
    ProbeCompleted,
    SnapshotLoaded,
    broker_of,
)
from fencepost_suites.common.keys import by_broker, by_slot_serving

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


@dataclass(slots=True)
class _State:
    """One broker id: the epochs under which the cluster had it active, and the processes that want
    to stop."""

    epochs: dict[int, Cause] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)


@final
class OneGlobalState(Rule[_State]):
    """REG-01. A broker that reports itself Online is Online in a committed record of the same
    epoch; the nodes that replayed the record are the evidence."""

    clause = "REG-01"
    keys = staticmethod(by_broker)
    state = _State

    @on(BrokerStateChanged, BrokerStopping, BrokerCommitted)
    def step(self, state: _State, event: Event, body: Struct) -> Findings:
        match body:
            case BrokerCommitted(fenced=False):
                state.epochs.setdefault(body.broker_epoch, event.ref)
            case BrokerStopping():
                state.stopping.add(event.process)
                return self._named(event, body.state, body.global_state, stopping=True)
            case BrokerStateChanged() if body.global_state:
                stopping = event.process in state.stopping
                wrong = self._named(event, body.new, body.global_state, stopping)
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
        if body.broker_epoch in state.epochs:
            return (Exercised(event.ref, Evidence.PEER),)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} reports that it is {state} under broker epoch {epoch}, under which no node "
            "has it active",
            process=process_scope(event.process),
            state=body.global_state,
            epoch=body.broker_epoch,
            broker=broker_of(body.broker_id),
        )
        return (broken,)


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
