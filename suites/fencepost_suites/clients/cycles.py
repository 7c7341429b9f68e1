"""Circular information flow, as far as the order of one partition shows it (a Jepsen anomaly).

Elle finds cycles in what transactions have read and written. Here an operation is one message, so
two edges are left beside the order of the log: a consumer has got a message, and the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Findings,
    Rule,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import Polled, ProduceCompleted, ProduceInvoked, partition_of
from fencepost_suites.common.keys import by_partition

CLIENT = Evidence.CLIENT


class _Got(Struct, frozen=True):
    """A message that a consumer had got, with the highest offset so far."""

    offset: int
    operation: str
    process: str
    ref: Cause


@dataclass(slots=True)
class _Flow:
    top: _Got | None = None
    before: dict[str, _Got] = field(default_factory=dict)
    """operation without a place -> the highest message that was got when it was invoked."""
    read: dict[str, Cause] = field(default_factory=dict)
    """operation -> the first poll that returned it."""


@final
class CircularFlow(Rule[_Flow]):
    """JEPSEN-G1c-realtime. A consumer gets only what is committed, so a message that is invoked
    after a poll lies behind all that the poll returned, whatever its own acknowledgement, and
    whichever client wrote the others. A log that was set back counts once. Exercised by a message
    that was invoked after a poll, once its own place is known: by its acknowledgement or a poll."""

    clause = "JEPSEN-G1c-realtime"
    keys = staticmethod(by_partition)
    state = _Flow

    @on(ProduceCompleted)
    def _completed(self, state: _Flow, event: Event, body: ProduceCompleted) -> Findings:
        operation, offset = body.operation, body.offset
        if operation not in state.before:
            return NOTHING
        # A failed write has no place. One whose outcome is unknown may still be read.
        if body.outcome == "failed":
            del state.before[operation]
        elif body.outcome == "ok" and body.acks == -1 and offset >= 0:
            return self._placed(state, event, body, (offset,), (operation,))
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Flow, event: Event, body: Polled) -> Findings:
        if not body.offsets:
            return NOTHING
        found = self._placed(state, event, body, body.offsets, body.operations)
        self._got(state, event, body)
        return found

    @on(ProduceInvoked)
    def _invoked(self, state: _Flow, event: Event, body: ProduceInvoked) -> Findings:
        if state.top is not None:
            state.before[body.operation] = state.top
        poll = state.read.get(body.operation)
        if poll is None:
            return NOTHING
        broken = violated(
            event.ref,
            CLIENT,
            "{operation} to {partition} was invoked after {reader} had read it",
            (poll,),
            operation=body.operation,
            partition=partition_of(body),
            reader=process_scope(poll.process),
            client=process_scope(event.process),
        )
        return (broken,)

    @staticmethod
    def _placed(
        state: _Flow,
        event: Event,
        body: Polled | ProduceCompleted,
        offsets: Sequence[int],
        operations: Sequence[str],
    ) -> Findings:
        """Judges the messages of which the place is known now, by what was got before them."""
        known = len(state.before)
        for offset, operation in zip(offsets, operations, strict=True):
            before = state.before.pop(operation, None)
            if before is None or offset > before.offset:
                continue
            # A log that was set back would show the same for each message in flight.
            state.before.clear()
            state.top = None
            broken = violated(
                event.ref,
                CLIENT,
                "{operation} is at offset {offset} of {partition}, though it was invoked after "
                "{reader} had got {other_operation} at {other_offset}",
                (before.ref,),
                operation=operation,
                offset=offset,
                partition=partition_of(body),
                reader=process_scope(before.process),
                other_operation=before.operation,
                other_offset=before.offset,
                client=process_scope(event.process),
            )
            return (broken,)
        return (Exercised(event.ref, CLIENT),) if len(state.before) < known else NOTHING

    @staticmethod
    def _got(state: _Flow, event: Event, body: Polled) -> None:
        for operation in body.operations:
            state.read.setdefault(operation, event.ref)
        last, operation = body.offsets[-1], body.operations[-1]
        if state.top is None or last > state.top.offset:
            state.top = _Got(last, operation, event.process, event.ref)
