"""The stop of a broker: the answer that grants it, and its end in time."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Findings,
    NodeStarted,
    ProcessAsked,
    ProcessExited,
    Rule,
    RunEnd,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    HeartbeatAnswered,
    HeartbeatRefused,
    LeaseGranted,
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_at,
)
from fencepost_kafka.committed import Partitions, TopicPartition
from fencepost_plugins.stopping import STOP_BOUND_NS
from fencepost_suites.brokers.exchanges import Exchanges
from fencepost_suites.common.keys import by_life
from fencepost_suites.common.words import named

SLACK_NS = 1_000 * MS


class _Wish(Struct, frozen=True):
    """A process that was asked to stop: since when, the time that it set itself, and the partitions
    that it led then."""

    at: Cause
    at_ns: int
    limit_ns: int
    broker: int
    led: tuple[TopicPartition, ...]


@dataclass(slots=True)
class _Stopping:
    partitions: Partitions = field(default_factory=Partitions)
    exchanges: Exchanges = field(default_factory=Exchanges)
    brokers: dict[str, int] = field(default_factory=dict)
    """process -> the id under which it took a lease."""
    wishes: dict[str, _Wish] = field(default_factory=dict)
    allowed: set[str] = field(default_factory=set)
    """The processes that a controller let end. One that tells of its leases must have taken that
    answer, too."""
    taken: dict[str, int] = field(default_factory=dict)
    """process -> the start of the lease in an answer that lets it end, by its word, which no
    controller has told of yet: it may tell later, as each node writes a history of its own."""
    let_go: set[str] = field(default_factory=set)
    """The processes that a controller let end, by its own word."""
    unproven: dict[str, Violated] = field(default_factory=dict)
    """What is violated if one of the two words is never told: of these, those that the harness saw
    end before they told that they had taken the answer, since what a process tells once it has
    ended, it did before; and those that have taken one which no controller has told of."""
    lost: set[str] = field(default_factory=set)
    """Processes that lost their id to another process: none of their leaderships is left to
    move."""

    def wish(self, event: Event, process: str, broker: int, limit_ns: int) -> None:
        """A process is asked to stop."""
        led = tuple(self.partitions.led_by(broker))
        self.wishes[process] = _Wish(event.ref, event.at_ns, limit_ns, broker, led)


@final
class GoesOfflineWhenTold(Rule[_Stopping]):
    """REG-08. The controller's evidence is its answer. Exercised if the broker led partitions when
    it was asked to stop. A broker that got no answer in time is judged by REG-09: its word that the
    time is over counts once that is over. That a process ends is the harness's word, so that one
    which ends without a word of its own went offline, too. It did if it had a place in the cluster:
    before it has a lease, or says that it is in INITIAL, it just ends."""

    clause = "REG-08"
    state = _Stopping

    @on(HeartbeatAnswered, LeaseGranted, HeartbeatRefused, PartitionCommitted, TopicCommitted)
    def _known(self, state: _Stopping, event: Event, body: Struct) -> Findings:
        match body:
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case HeartbeatAnswered(error="NONE", next_state="SHUTDOWN", active=True):
                state.exchanges.answered(event, body)
                state.let_go.add(body.client)
                taken = state.taken.get(body.client) == body.lease_start_ms
                if body.client not in state.brokers or taken:
                    state.allowed.add(body.client)
                    state.unproven.pop(body.client, None)
            case HeartbeatRefused(error="DUPLICATE_BROKER_REGISTRATION"):
                state.lost.add(event.process)
            case LeaseGranted():
                state.brokers[event.process] = body.broker_id
                state.lost.discard(event.process)
                if body.next_state != "SHUTDOWN":
                    return NOTHING
                if state.exchanges.granted(event, body).answers:
                    state.allowed.add(event.process)
                    state.unproven.pop(event.process, None)
                else:
                    state.taken[event.process] = body.lease_start_ms
        return NOTHING

    @on(ProcessAsked, BrokerStopping, BrokerStateChanged, ProcessExited)
    def _ends(self, state: _Stopping, event: Event, body: Struct) -> Findings:
        match body:
            # Its own word tells more, whichever of the two is recorded first.
            case ProcessAsked() if body.asked in state.brokers and body.asked not in state.wishes:
                state.wish(event, body.asked, state.brokers[body.asked], STOP_BOUND_NS)
            case BrokerStopping(state="INITIAL"):
                state.wishes.pop(event.process, None)
            case BrokerStopping():
                state.wish(event, event.process, body.broker_id, body.limit_ms * MS)
            case BrokerStateChanged(reason="taken_over"):
                state.lost.add(event.process)
            case BrokerStateChanged(new="SHUTDOWN"):
                return self._gone(state, event, event.process, body.reason)
            # A crash, or a kill, is no end that it chose.
            case ProcessExited(exit_code=0, signal=0 | signal.SIGTERM | signal.SIGINT):
                return self._gone(state, event, body.ended)
        return NOTHING

    @staticmethod
    def _gone(state: _Stopping, event: Event, process: str, reason: str = "") -> Findings:
        wish = state.wishes.pop(process, None)
        if process in state.lost or wish is None:
            return NOTHING
        waited_ns = event.at_ns - wish.at_ns
        if reason == "shutdown_timeout" and waited_ns >= wish.limit_ns * 9 // 10:
            return NOTHING
        if process in state.allowed:
            return (Exercised(event.ref, Evidence.PEER),) if wish.led else NOTHING
        still = tuple(state.partitions.led_by(wish.broker))
        leading = f", leading {named(still)}," if still else ""
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} went offline{leading} before any answer had allowed it",
            (wish.at,),
            process=process_scope(process),
            leading=leading,
            broker=broker_of(wish.broker),
            places=tuple(partition_at(*one) for one in still),
        )
        by_harness = event.process != process and process in state.let_go
        if by_harness or process in state.taken:
            state.unproven[process] = broken
            return NOTHING
        return (broken,)

    def end(self, state: _Stopping, end: RunEnd) -> Findings:
        return [*state.unproven.values()]


@dataclass(slots=True)
class _Due:
    """When one process must have ended, once it was asked to."""

    process: str = ""
    broker: bool = False
    asked: Cause | None = None
    asked_ns: int = 0
    limit_ns: int = 0
    by_timeout: bool = False
    suspects: list[Deadline] = field(default_factory=list)

    def ask(self, event: Event, process: str, limit_ns: int) -> None:
        """The process is asked to stop within this time, or says that it was."""
        if self.asked is None or event.at_ns + limit_ns < self.asked_ns + self.limit_ns:
            self.process, self.asked = process, event.ref
            self.asked_ns, self.limit_ns = event.at_ns, limit_ns

    def late(self, at_ns: int, at: Cause) -> bool:
        """Whether the process has run too long after the request; the result is remembered."""
        took_ns = at_ns - self.asked_ns
        if self.asked is None or took_ns <= self.limit_ns + self.limit_ns // 10 + SLACK_NS:
            return False
        broken = violated(
            at,
            Evidence.PEER,
            "{process} was asked to stop and still runs {since_ns} later; its limit is {bound_ns}",
            (self.asked,),
            process=process_scope(self.process),
            since_ns=took_ns,
            bound_ns=self.limit_ns,
        )
        self.suspects.append(Deadline(broken, (self.process,), self.asked_ns, at_ns, self.limit_ns))
        return True


@final
class StopsInTime(Rule[_Due]):
    """REG-09. The harness records the end of the process, and that it asked a broker to stop. The
    limit is the broker's own word, so that it is not more than any node may take. A tenth of the
    limit and a second are allowed."""

    clause = "REG-09"
    keys = staticmethod(by_life)
    state = _Due

    @on(NodeStarted, ProcessAsked, BrokerStopping, BrokerStateChanged, ProcessExited)
    def step(self, state: _Due, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="broker"):
                state.broker = True
            case ProcessAsked() if state.broker:
                state.ask(event, body.asked, STOP_BOUND_NS)
            case BrokerStopping():
                state.ask(event, event.process, min(body.limit_ms * MS, STOP_BOUND_NS))
            case BrokerStateChanged():
                state.by_timeout = body.reason == "shutdown_timeout"
            case ProcessExited() if state.asked is not None:
                late = state.late(event.at_ns, event.ref)
                waited = event.at_ns - state.asked_ns >= state.limit_ns * 9 // 10
                state.asked = None
                if state.by_timeout and waited and not late:
                    return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    def end(self, state: _Due, end: RunEnd) -> Findings:
        if state.asked is not None:
            state.late(end.ended_at_ns, state.asked)
        return judged(state.suspects, end)
