"""The stop of a broker: the answer that grants it, and its end in time."""

from __future__ import annotations

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
    ProcessExited,
    Rule,
    RunEnd,
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
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_at,
)
from fencepost_kafka.committed import Partitions, TopicPartition
from fencepost_suites.common.keys import by_life
from fencepost_suites.common.words import named

SLACK_NS = 1_000 * MS


@dataclass(slots=True)
class _Wish:
    """A stopping process: the partitions that it led when it was asked to stop, and whether an
    answer granted the stop."""

    at: Cause
    led: tuple[TopicPartition, ...]


@dataclass(slots=True)
class _Stopping:
    partitions: Partitions = field(default_factory=Partitions)
    wishes: dict[str, _Wish] = field(default_factory=dict)
    allowed: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Processes that lost their id to another process: none of their leaderships is left to
    move."""


@final
class GoesOfflineWhenTold(Rule[_Stopping]):
    """REG-08. The controller's evidence is its answer. Exercised if the broker led partitions when
    it was asked to stop. A broker that got no answer in time is judged by REG-09."""

    clause = "REG-08"
    state = _Stopping

    @on(
        BrokerStopping,
        BrokerStateChanged,
        HeartbeatAnswered,
        HeartbeatRefused,
        PartitionCommitted,
        TopicCommitted,
    )
    def step(self, state: _Stopping, event: Event, body: Struct) -> Findings:
        match body:
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case BrokerStopping():
                led = tuple(state.partitions.led_by(body.broker_id))
                state.wishes.setdefault(event.process, _Wish(event.ref, led))
            case HeartbeatAnswered(error="NONE", next_state="SHUTDOWN", active=True):
                state.allowed.add(body.client)
            case HeartbeatRefused(error="DUPLICATE_BROKER_REGISTRATION"):
                state.lost.add(event.process)
            case BrokerStateChanged(reason="taken_over"):
                state.lost.add(event.process)
            case BrokerStateChanged(new="SHUTDOWN") if body.reason != "shutdown_timeout":
                return self._gone(state, event, body)
        return NOTHING

    @staticmethod
    def _gone(state: _Stopping, event: Event, body: BrokerStateChanged) -> Findings:
        wish = state.wishes.get(event.process)
        if event.process in state.lost or wish is None:
            return NOTHING
        if event.process in state.allowed:
            return (Exercised(event.ref, Evidence.PEER),) if wish.led else NOTHING
        still = tuple(state.partitions.led_by(body.broker_id))
        leading = f", leading {named(still)}," if still else ""
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} went offline{leading} before any answer had allowed it",
            (wish.at,),
            process=process_scope(event.process),
            leading=leading,
            broker=broker_of(body.broker_id),
            places=tuple(partition_at(*one) for one in still),
        )
        return (broken,)


@dataclass(slots=True)
class _Due:
    """When one process must have ended, once it was asked to."""

    process: str = ""
    asked: Cause | None = None
    asked_ns: int = 0
    limit_ns: int = 0
    by_timeout: bool = False
    suspects: list[Deadline] = field(default_factory=list)

    def late(self, at_ns: int, at: Cause) -> bool:
        """Whether the process has run too long after the request; the result is remembered."""
        took_ns = at_ns - self.asked_ns
        if self.asked is None or took_ns <= self.limit_ns + self.limit_ns // 10 + SLACK_NS:
            return False
        broken = violated(
            at,
            Evidence.PEER,
            "{process} was asked to stop and still runs {since_ns} later; the limit it set itself "
            "is {bound_ns}",
            (self.asked,),
            process=process_scope(self.process),
            since_ns=took_ns,
            bound_ns=self.limit_ns,
        )
        self.suspects.append(Deadline(broken, (self.process,), self.asked_ns, at_ns, self.limit_ns))
        return True


@final
class StopsInTime(Rule[_Due]):
    """REG-09. The harness records the end of the process. A tenth of the limit and a second are
    allowed."""

    clause = "REG-09"
    keys = staticmethod(by_life)
    state = _Due

    @on(BrokerStopping, BrokerStateChanged, ProcessExited)
    def step(self, state: _Due, event: Event, body: Struct) -> Findings:
        match body:
            case BrokerStopping() if state.asked is None:
                state.process, state.asked = event.process, event.ref
                state.asked_ns, state.limit_ns = event.at_ns, body.limit_ms * MS
            case BrokerStateChanged():
                state.by_timeout = body.reason == "shutdown_timeout"
            case ProcessExited() if state.asked is not None:
                late = state.late(event.at_ns, event.ref)
                state.asked = None
                if state.by_timeout and not late:
                    return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    def end(self, state: _Due, end: RunEnd) -> Findings:
        if state.asked is not None:
            state.late(end.ended_at_ns, state.asked)
        return judged(state.suspects, end)
