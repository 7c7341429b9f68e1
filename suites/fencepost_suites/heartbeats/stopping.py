"""How a broker over ZooKeeper serves clients, and gives up its leaderships, while it is stopping
(KIP-343)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Facts,
    Findings,
    NodeStopped,
    ProcessAsked,
    ProcessExited,
    Rule,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    FetchServed,
    LogAppended,
    PartitionCommitted,
    RequestRefused,
    TopicCommitted,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.common.keys import by_life


@dataclass(slots=True)
class _Serving:
    """process -> its global state, and the event of the change to that state."""

    state: dict[str, tuple[str, Cause]] = field(default_factory=dict)


@final
class StoppingServes(Rule[_Serving]):
    """HB-04. The broker's own events say when it is stopping, and when it is fenced. A client sees
    the same error from a fenced broker as from one that no longer leads, so its refusal shows
    neither."""

    clause = "HB-04"
    keys = staticmethod(by_life)
    state = _Serving

    @on(BrokerStateChanged, LogAppended, FetchServed, RequestRefused)
    def step(self, state: _Serving, event: Event, body: Struct) -> Findings:
        if isinstance(body, BrokerStateChanged):
            state.state[event.process] = (body.global_state, event.ref)
            return NOTHING
        now, since = state.state.get(event.process, ("", event.ref))
        match body:
            case RequestRefused(reason="fenced") if body.requester < 0 and now in (
                "Online",
                "Stopping",
            ):
                return (_refused(event, body, now, since),)
            case LogAppended(as_leader=True) | FetchServed() if now == "Stopping":
                return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING


def _refused(event: Event, body: RequestRefused, state: str, since: Cause) -> Violated:
    """A violation: a process refused a client's request, though it was not fenced."""
    there = body.topic and body.partition >= 0
    where: Facts = {"partition": partition_of(body)} if there else {}
    return violated(
        event.ref,
        Evidence.SELF,
        "{process} refused {client} a {operation} while it was {state}",
        (since,),
        process=process_scope(event.process),
        client=process_scope(body.client),
        operation=body.api,
        state=state,
        **where,
    )


class _Stop(Struct, frozen=True):
    """A broker was asked to stop: when, its time limit (-1: it never said), and whether it led a
    partition."""

    at_ns: int
    limit_ns: int
    led: bool
    broker: int
    ref: Cause


@dataclass(slots=True)
class _Stops:
    """The stored partitions, and the processes that were asked to stop."""

    partitions: Partitions = field(default_factory=Partitions)
    stops: dict[str, _Stop] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    """process -> its state, by its own event."""
    limits: dict[int, int] = field(default_factory=dict)
    """broker -> the time limit that it named last."""
    ids: dict[str, int] = field(default_factory=dict)
    """process -> its broker's id."""

    def limit_ns(self, stop: _Stop) -> int:
        """The time limit of a broker: no shorter than all others have named, since a broker that
        names none would be free to end at once. -1: nobody has named one."""
        others = [ns for broker, ns in self.limits.items() if broker != stop.broker]
        return max(stop.limit_ns, min(others, default=stop.limit_ns))


@final
class LeadershipsMoveFirst(Rule[_Stops]):
    """HB-05. The stored partitions show which leaderships a broker still has. The broker's last
    state, or the harness, says that it has ended; a signal that ends it at once does not count. If
    it never says that it stops, the harness had asked it to. The limit is the cluster's: no broker
    has a shorter one than all others have named."""

    clause = "HB-05"
    state = _Stops

    @on(
        PartitionCommitted,
        TopicCommitted,
        ProcessAsked,
        BrokerStopping,
        BrokerStateChanged,
        NodeStopped,
        ProcessExited,
    )
    def step(self, state: _Stops, event: Event, body: Struct) -> Findings:
        match body:
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case ProcessAsked(asked=process) if state.state.get(process) == "ACTIVE":
                self._asked(state, event, process, state.ids[process], -1)
            case BrokerStopping(state="ACTIVE"):
                limit_ns = body.limit_ms * MS
                self._asked(state, event, event.process, body.broker_id, limit_ns)
                state.limits[body.broker_id] = limit_ns
                state.state[event.process] = body.state
            case BrokerStateChanged(new="SHUTDOWN"):
                return self._ended(state, event, event.process, body.old)
            case BrokerStateChanged():
                state.state[event.process] = body.new
                state.ids[event.process] = body.broker_id
            case NodeStopped():
                return self._ended(state, event, event.process)
            # A killed process could move nothing.
            case ProcessExited() if not body.signal:
                return self._ended(state, event, body.ended)
        return NOTHING

    @staticmethod
    def _asked(state: _Stops, event: Event, process: str, broker: int, limit_ns: int) -> None:
        """A process is asked to stop. It may say so itself once more, with its limit."""
        led = any(True for _ in state.partitions.led_by(broker))
        state.stops[process] = _Stop(event.at_ns, limit_ns, led, broker=broker, ref=event.ref)

    @staticmethod
    def _ended(state: _Stops, event: Event, process: str, old: str = "") -> Findings:
        stop = state.stops.pop(process, None)
        # A fenced broker has lost its leaderships, or will, by its fence.
        if stop is None or (old or state.state[process]) != "ACTIVE":
            return NOTHING
        left = list(state.partitions.led_by(stop.broker))
        if not left:
            return (Exercised(event.ref, Evidence.PEER),) if stop.led else NOTHING
        took_ns = event.at_ns - stop.at_ns
        limit_ns = state.limit_ns(stop)
        if took_ns >= limit_ns * 9 // 10:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} ended {after_ns} after it was asked to stop, before its time limit, though "
            "it still led {partition}",
            (stop.ref,),
            process=process_scope(process),
            after_ns=took_ns,
            partition=partition_at(*left[0]),
            broker=broker_of(stop.broker),
            places=tuple(partition_at(*place) for place in left),
            bound_ns=limit_ns,
        )
        return (broken,)
