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
    Finding,
    Findings,
    Key,
    Rule,
    RunEnd,
    Scope,
    Shared,
    Undecided,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    Polled,
    ProbeCompleted,
    ProduceCompleted,
    ProduceInvoked,
    partition_of,
)
from fencepost_suites.common.keys import by_partition, place_of

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


@dataclass(slots=True)
class _Sent:
    of: str
    """The partition, by its name."""
    invoked: set[str] = field(default_factory=set)
    """The operations that were invoked for it."""
    read: dict[str, Cause] = field(default_factory=dict)
    """operation that was not invoked so far -> the first poll that returned it."""
    others: set[str] = field(default_factory=set)
    """The clients that also write by single raw requests, of which only the answer is recorded."""


@final
class OnlyWhatWasSentIsRead(Rule[_Sent]):
    """JEPSEN-G1c-realtime. A message that was never invoked for a partition, and is read there, was
    read before it was invoked: nobody sent it, or it was sent to another partition. It is known by
    its name, which begins with that of a client that has invoked others here; what clients write
    that record nothing is shown as it is. A topic that is made again may store what was sent to the
    one before, so all topics of a name are one here. Never exercised: each message that is read
    would be."""

    clause = "JEPSEN-G1c-realtime"
    keys = staticmethod(by_partition)

    def start(self, key: Key, shared: Shared) -> _Sent:
        return _Sent(place_of(key))

    @on(ProduceInvoked)
    def _invoked(self, state: _Sent, event: Event, body: ProduceInvoked) -> Findings:
        state.invoked.add(body.operation)
        return NOTHING

    @on(ProbeCompleted)
    def _probed(self, state: _Sent, event: Event, body: ProbeCompleted) -> Findings:
        if body.api == "Produce":
            state.others.add(_client(body.operation))
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Sent, event: Event, body: Polled) -> Findings:
        if not state.invoked.issuperset(body.operations):
            for operation in {*body.operations} - state.invoked:
                state.read.setdefault(operation, event.ref)
        return NOTHING

    def end(self, state: _Sent, end: RunEnd) -> Findings:
        known = set(map(_client, state.invoked)) - state.others - {""}
        found: list[Finding] = []
        for operation, poll in state.read.items():
            if operation in state.invoked or _client(operation) not in known:
                continue
            broken = violated(
                poll,
                CLIENT,
                "{reader} read {operation} in {partition}, to which nobody had sent it",
                operation=operation,
                partition=Scope("partition", state.of),
                reader=process_scope(poll.process),
            )
            found.append(broken if end.complete else Undecided.of(broken))
        return found


def _client(operation: str) -> str:
    """Whom an operation is named after: `clients/producer-1#1:7`."""
    client, colon, number = operation.rpartition(":")
    return client if colon and number.isdecimal() else ""
