"""Rules about what brokers answer when they step down, and when they start (RP-31, KR-28)."""

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
    Findings,
    NodeStarted,
    Rule,
    RunEnd,
    Violated,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import KRAFT, by_partition
from fencepost_kafka import (
    BrokerStateChanged,
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipEnded,
    LeadershipStarted,
    ProbeCompleted,
    ProduceAnswered,
    partition_of,
)
from fencepost_kafka.judging.owed import HIGH_WATERMARKS, LEADERSHIPS
from fencepost_kafka.vocabulary import FOR_CLIENTS

_LOGGED_WITHIN_NS = 500 * MS
"""A leader logs a high watermark this soon after it has raised it: another thread may answer the
writes below it, and log that, meanwhile."""


@dataclass(slots=True)
class _SteppedDown:
    at: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """process -> when it stopped leading."""
    marks: dict[str, int] = field(default_factory=dict)
    """process -> its high watermark; once it has stepped down, the one that it had until then."""
    early: list[tuple[int, Event, Violated]] = field(default_factory=list)
    """The offsets that were acknowledged above it, with the answers."""


@final
class OwesNoCommit(Rule[_SteppedDown]):
    """RP-31. By the leader's own word: an acks=all that it acknowledges is below its high watermark
    by then. A later line may say so, if it is of that time, or of half a second after that while
    the leader leads. The high watermark that it learns as a follower counts for nothing: it may be
    a lower one, and answers may leave late. Exercised by a write that came in while it led, and
    that it answers with an error once it has stepped down."""

    clause = "RP-31"
    planes = KRAFT
    absence = (LEADERSHIPS, HIGH_WATERMARKS)
    keys = staticmethod(by_partition)
    state = _SteppedDown

    @on(
        LeadershipStarted, LeadershipEnded, FollowingStarted, HighWatermarkAdvanced, ProduceAnswered
    )
    def step(self, state: _SteppedDown, event: Event, body: Struct) -> Findings:
        match body:
            case LeadershipStarted():
                state.at.pop(event.process, None)
                state.marks[event.process] = body.high_watermark
            case FollowingStarted() if event.process not in state.at:
                state.marks[event.process] = body.high_watermark
            case HighWatermarkAdvanced():
                down = state.at.get(event.process)
                if down is None or event.at_ns <= down[0]:
                    state.marks[event.process] = body.high_watermark
                    state.early = [
                        one for one in state.early if not self._covers(event, body, *one)
                    ]
            case LeadershipEnded():
                state.at[event.process] = event.at_ns, event.ref
            case ProduceAnswered(acks=-1, error="NONE") if body.base_offset >= 0:
                self._acknowledged(state, event, body)
            case ProduceAnswered() if body.error != "NONE" and event.process in state.at:
                if 0 < body.received_at_ns < state.at[event.process][0]:
                    return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @staticmethod
    def _covers(
        event: Event, body: HighWatermarkAdvanced, offset: int, answer: Event, found: Violated
    ) -> bool:
        """Whether a high watermark was that of a leader as it acknowledged an offset."""
        within_ns = 0 if found.because else _LOGGED_WITHIN_NS
        return (
            event.process == answer.process
            and event.at_ns <= answer.at_ns + within_ns
            and body.high_watermark > offset
        )

    @staticmethod
    def _acknowledged(state: _SteppedDown, event: Event, body: ProduceAnswered) -> None:
        mark = state.marks.get(event.process)
        if mark is None or mark > body.base_offset:
            return
        down = state.at.get(event.process)
        early = violated(
            event.ref,
            Evidence.SELF,
            "{process} acknowledged offset {offset} of {partition}{when}, with a high watermark of "
            "{high_watermark}",
            (down[1],) if down else (),
            process=process_scope(event.process),
            offset=body.base_offset,
            partition=partition_of(body),
            when=" after it had stepped down" if down else "",
            high_watermark=mark,
        )
        state.early.append((body.base_offset, event, early))

    def end(self, state: _SteppedDown, end: RunEnd) -> Findings:
        return [early for _, _, early in state.early]


@dataclass(slots=True)
class _Starting:
    began: dict[str, tuple[str, int, Cause]] = field(default_factory=dict)
    """slot -> its process that has begun and is not registered, and since when."""


@final
class UnregisteredAnswersNone(Rule[_Starting]):
    """KR-28. A client's evidence: what it sent to a process that had begun, and was not registered
    by the time of the result. Exercised by each request that is not answered then."""

    clause = "KR-28"
    state = _Starting

    @on(NodeStarted, BrokerStateChanged, ProbeCompleted)
    def step(self, state: _Starting, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="broker"):
                slot = slot_of(event.process)
                state.began[slot] = event.process, event.at_ns, event.ref
            case BrokerStateChanged():
                state.began.pop(slot_of(event.process), None)
            case ProbeCompleted() if body.api in FOR_CLIENTS and body.slot in state.began:
                process, began_ns, ref = state.began[body.slot]
                if body.sent_at_ns <= began_ns:
                    return NOTHING
                if body.outcome != "answered":
                    return (Exercised(event.ref, Evidence.CLIENT),)
                answered = violated(
                    event.ref,
                    Evidence.CLIENT,
                    "{process} answered a {api} of {client} before it was registered",
                    (ref,),
                    process=process_scope(process),
                    api=body.api,
                    client=process_scope(event.process),
                )
                return (answered,)
        return NOTHING
