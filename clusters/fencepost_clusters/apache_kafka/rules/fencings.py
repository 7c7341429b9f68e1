"""KR-18 by the records: a broker is fenced no earlier than a session after a heartbeat that the
controller accepted, whatever the controller logs about the end of the session.

The line about the end of a session is the controller's word; one that fences without it, or under
another reason, is seen by its record only. The record has no time. It was committed before the
first node applied it, and not much earlier, since nodes apply at once what they fetch. So the rule
asks for a heartbeat that was accepted well within a session, and at least a second, before that:

    heartbeat accepted at 10.0 s, session 3 s; the fencing was applied first at 11.6 s: too early
    heartbeat accepted at 11.5 s: proves nothing, it may have come after the fencing
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    OBSERVERS,
    READ_WITHIN_NS,
    SECOND,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    NodeStarted,
    ProcessExited,
    Rule,
    RunEnd,
    Undecided,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.heartbeats import SLACK_NS
from fencepost_clusters.apache_kafka.rules.news import Newest
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStopping,
    HeartbeatAnswered,
    LeaseExpired,
    MetadataApplied,
    MetadataCommitted,
    broker_of,
)

APPLIED_WITHIN_NS = SECOND
"""How soon the first node applies a record that is committed."""
_ANSWERED_WITHIN_NS = 2 * SECOND
"""A controller that ends this soon after may not have logged its answer to a broker that asked to
leave."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """A heartbeat that a controller accepted."""

    received_ns: int
    session_ns: int
    term: int
    process: str
    ref: Cause


@dataclass(slots=True)
class _Fencings:
    news: Newest = field(default_factory=Newest)
    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    terms: dict[str, tuple[int, int]] = field(default_factory=dict)
    """observer -> the offset and the controller epoch of the newest record that it read."""
    applied: deque[tuple[int, int]] = field(default_factory=deque)
    """Offsets, and when the first node had applied each; those of the last seconds, in order."""
    heard: dict[tuple[int, int], deque[_Heard]] = field(default_factory=dict)
    """id and epoch of a broker -> the heartbeats that were accepted last."""
    leaving: dict[tuple[int, int], int] = field(default_factory=dict)
    """id and epoch of a broker that asked to leave, or was told to -> when that came in."""
    told: dict[int, int] = field(default_factory=dict)
    """broker -> when a controller logged last that its session is over: that line is judged."""
    ids: dict[str, int] = field(default_factory=dict)
    """broker's process -> its id."""
    stopping: set[int] = field(default_factory=set)
    """The ids of brokers whose newest process was asked to end."""
    ended: list[int] = field(default_factory=list)
    """When processes of controllers ended."""
    suspects: list[tuple[tuple[int, int], Deadline]] = field(default_factory=list)

    def dated(self, offset: int) -> int | None:
        """When the first node had applied a record; None: none has, or too long ago."""
        return next((at_ns for applied, at_ns in self.applied if applied >= offset), None)


def _same(was: BrokerCommitted, body: BrokerCommitted) -> bool:
    """Whether two records are of one registration: a new one begins fenced."""
    return (was.incarnation, was.broker_epoch) == (body.incarnation, body.broker_epoch)


@final
class FencedAfterItsSession(Rule[_Fencings]):
    """KR-18. Exercised by each record that fences a broker a session after the last heartbeat that
    the controller of that record's epoch accepted. A broker that asks to leave is fenced by its own
    wish."""

    clause = "KR-18"
    state = _Fencings

    @on(
        *(NodeStarted, ProcessExited, BrokerStopping, HeartbeatAnswered, LeaseExpired),
        *(MetadataApplied, MetadataCommitted, BrokerCommitted),
    )
    def step(self, state: _Fencings, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="broker", node_id=node_id):
                state.ids[event.process] = node_id
                state.stopping.discard(node_id)
            case BrokerStopping():
                state.stopping.add(state.ids.get(event.process, -1))
            case ProcessExited(ended=ended) if ended not in state.ids:
                state.ended.append(event.at_ns)
            case HeartbeatAnswered() if body.request_epoch >= 0 and body.received_at_ns:
                self._answered(state, event, body)
            case LeaseExpired(broker_id=broker):
                state.told[broker] = event.at_ns
            case MetadataApplied():
                while state.applied and event.at_ns - state.applied[0][1] > 2 * READ_WITHIN_NS:
                    state.applied.popleft()
                if not state.applied or body.offset > state.applied[-1][0]:
                    state.applied.append((body.offset, event.at_ns))
            case MetadataCommitted():
                state.terms[event.process] = body.offset, body.epoch
            case BrokerCommitted() if state.news.take(body.broker_id, body.offset):
                was = state.records.get(body.broker_id)
                state.records[body.broker_id] = body
                if was is not None and body.fenced and not was.fenced and _same(was, body):
                    return self._fenced(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Fencings, event: Event, body: HeartbeatAnswered) -> None:
        key = body.broker_id, body.request_epoch
        if body.next_state == "SHUTDOWN" or body.target_state not in ("", "ACTIVE"):
            state.leaving[key] = body.received_at_ns
        elif (body.error, body.next_state) == ("NONE", "ACTIVE"):
            heard = state.heard.setdefault(key, deque(maxlen=64))
            session_ns = body.lease_period_ms * MS
            heard.append(
                _Heard(
                    body.received_at_ns, session_ns, body.controller_epoch, event.process, event.ref
                )
            )

    @staticmethod
    def _fenced(state: _Fencings, event: Event, body: BrokerCommitted) -> Findings:
        key = body.broker_id, body.broker_epoch
        at_ns = state.dated(body.offset)
        offset, term = state.terms.get(event.process, (-1, -1))
        if at_ns is None or offset != body.offset or body.broker_id in state.stopping:
            return NOTHING
        # Another controller's word about a heartbeat says nothing of this one's.
        known = [one for one in state.heard.pop(key, ()) if one.term == term and one.session_ns]
        sure = [one for one in known if one.received_ns <= at_ns - APPLIED_WITHIN_NS]
        if not sure:
            return NOTHING
        last = max(sure, key=lambda one: one.received_ns)
        silent_ns = at_ns - last.received_ns
        if silent_ns + SLACK_NS >= last.session_ns:
            # A later heartbeat may have come in before the fencing: then it was early.
            return (Exercised(event.ref, Evidence.PEER),) if len(sure) == len(known) else NOTHING
        early = violated(
            event.ref,
            Evidence.PEER,
            "broker {broker} was fenced by the record at {offset} {silent_ms} ms after a heartbeat "
            "that {process} had accepted; a session is {session_ms} ms",
            (last.ref,),
            process=process_scope(last.process),
            broker=broker_of(body.broker_id),
            offset=body.offset,
            silent_ms=silent_ns // MS,
            session_ms=last.session_ns // MS,
        )
        deadline = Deadline(
            early,
            (last.process, *OBSERVERS),
            last.received_ns,
            at_ns,
            last.session_ns,
            omission=False,
        )
        state.suspects.append((key, deadline))
        return NOTHING

    def end(self, state: _Fencings, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for key, one in state.suspects:
            # It asked to leave. The controller answers that once the record is committed.
            wished = one.from_ns < state.leaving.get(key, -1) <= one.to_ns
            # That the session is over was logged, and the other rule judges that line.
            told = one.from_ns < state.told.get(key[0], -1)
            if wished or told:
                continue
            lost = any(abs(at_ns - one.to_ns) <= _ANSWERED_WITHIN_NS for at_ns in state.ended)
            found += [Undecided.of(one.violated)] if lost else judged((one,), end)
        return found
