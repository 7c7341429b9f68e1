"""The order of writes in a partition, as clients know it (a Jepsen anomaly)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Rule,
    RunEnd,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
    partition_of,
)
from fencepost_suites.common.keys import by_partition

_NOT_SENT = ("", 0)


@final
class _Acknowledged:
    """A write with acks=all, where it is, and the event that ended it: mostly its
    acknowledgement."""

    def __init__(self, offset: int, operation: str, at: Event) -> None:
        self.offset = offset
        self.operation = operation
        self.at_ns = at.at_ns
        self.at = at


@final
class _Sent:
    """An acknowledged write of an idempotent producer, and its number in the order of sending."""

    def __init__(self, number: int, write: _Acknowledged) -> None:
        self.number = number
        self.write = write


@final
class _Unplaced:
    """A write that ended, and of which no acknowledgement says where it is: it may be read yet."""

    def __init__(
        self, at: Event, before: _Acknowledged | None, number: int, *, acknowledged: bool
    ) -> None:
        self.at = at
        self.before = before
        self.number = number
        self.acknowledged = acknowledged
        self.least: _Acknowledged | None = None
        """Of the writes that were invoked after its acknowledgement, the one with the least
        offset."""
        self.following: _Sent | None = None
        """The same of those that its idempotent producer has sent after it."""


class _Suspect(Struct, frozen=True):
    """Two writes of a producer in the wrong order, unless its epoch changed meanwhile."""

    process: str
    at_ns: int
    violated: Violated


@dataclass(slots=True)
class _Order:
    last: _Acknowledged | None = None
    """The acknowledged write with the highest offset."""
    before: dict[str, _Acknowledged] = field(default_factory=dict)
    """operation in flight -> the last write when it was invoked."""
    begun: dict[str, int] = field(default_factory=dict)
    """operation in flight -> when it was invoked."""
    unplaced: dict[str, _Unplaced] = field(default_factory=dict)
    """operation -> the write, until a reader shows where it is."""
    invoked: int = 0
    """How many writes idempotent producers have invoked."""
    numbers: dict[str, tuple[str, int]] = field(default_factory=dict)
    """operation in flight of an idempotent producer -> its process, and its number."""
    newest: dict[str, _Sent] = field(default_factory=dict)
    """process -> its acknowledged write that it sent last."""
    suspects: list[_Suspect] = field(default_factory=list)

    def changed(self, event: Event, body: ProducerEpochChanged) -> None:
        """A producer began a new epoch: what was in flight then may be sent again behind what came
        later (KIP-360)."""
        mine = event.process
        self.numbers = {op: sent for op, sent in self.numbers.items() if sent[0] != mine}
        for one in self.unplaced.values():
            if one.at.process == mine and one.at.at_ns >= body.since_ns:
                one.number = 0
        # The change of the epoch is recorded after what it explains, so suspects wait for the end.
        self.suspects = [
            one for one in self.suspects if one.process != mine or one.at_ns < body.since_ns
        ]


@final
class NonmonotonicSend(Rule[_Order]):
    """JEPSEN-nonmonotonic-send. The writes may be of one producer, or of several: then it is
    Jepsen's order in real time. Both are acknowledged with acks=all, since a leader that was
    deposed may store what is only its own. The writes of one idempotent producer keep the order in
    which it has sent them, those in flight too, within one producer epoch. Where a write is, its
    own acknowledgement says, or else a reader: one that timed out, or was acknowledged without an
    offset, was invoked after the other all the same. A log that was set back counts once: the order
    begins anew with the first write behind it. Exercised by each write that was invoked after
    another was acknowledged."""

    clause = "JEPSEN-nonmonotonic-send"
    keys = staticmethod(by_partition)
    state = _Order

    @on(ProduceInvoked)
    def _invoked(self, state: _Order, event: Event, body: ProduceInvoked) -> Findings:
        last, operation = state.last, body.operation
        state.begun[operation] = event.at_ns
        # Strictly before: of two events at one time, neither is known to be first.
        if last is not None and last.at_ns < event.at_ns and body.acks == -1:
            state.before[operation] = last
        if body.idempotent:
            state.invoked += 1
            state.numbers[operation] = (event.process, state.invoked)
        return NOTHING

    @on(ProduceCompleted)
    def _completed(self, state: _Order, event: Event, body: ProduceCompleted) -> Findings:
        operation, offset = body.operation, body.offset
        before = state.before.pop(operation, None)
        _, number = state.numbers.pop(operation, _NOT_SENT)
        begun_ns = state.begun.pop(operation, 0)
        acknowledged = body.outcome == "ok"
        if body.acks != -1 or body.outcome == "failed":
            return NOTHING
        if offset < 0 or not acknowledged:
            if before is not None or number or acknowledged:
                state.unplaced[operation] = _Unplaced(
                    event, before, number, acknowledged=acknowledged
                )
            return NOTHING
        write = _Acknowledged(offset, operation, event)
        for one in state.unplaced.values():
            later = one.acknowledged and one.at.at_ns < begun_ns
            if later and (one.least is None or offset < one.least.offset):
                one.least = write
            own = one.at.process == event.process and 0 < one.number < number
            if own and (one.following is None or offset < one.following.write.offset):
                one.following = _Sent(number, write)
        if state.last is None or offset > state.last.offset:
            state.last = write
        found = NOTHING if before is None else self._judged(state, event, body, before)
        if number:
            self._sent(state, event, body, _Sent(number, write))
        return found

    @on(Polled)
    def _polled(self, state: _Order, event: Event, body: Polled) -> Findings:
        if state.unplaced.keys().isdisjoint(body.operations):
            return NOTHING
        found: list[Finding] = []
        for offset, operation in zip(body.offsets, body.operations, strict=True):
            one = state.unplaced.pop(operation, None)
            if one is not None:
                found += self._placed(
                    state, event, body, _Acknowledged(offset, operation, one.at), one
                )
        return found

    def _placed(
        self, state: _Order, event: Event, body: Polled, write: _Acknowledged, one: _Unplaced
    ) -> Findings:
        """A reader shows where a write is."""
        if one.number:
            self._sent(state, event, body, _Sent(one.number, write), one.following)
        if one.before is not None and write.offset <= one.before.offset:
            return (_out_of_order(event, body, one.before, write),)
        if one.least is not None and one.least.offset <= write.offset:
            return (_out_of_order(event, body, write, one.least),)
        return NOTHING if one.before is None else (Exercised(event.ref, Evidence.CLIENT),)

    @on(ProducerEpochChanged)
    def _changed(self, state: _Order, event: Event, body: ProducerEpochChanged) -> Findings:
        state.changed(event, body)
        return NOTHING

    @staticmethod
    def _judged(
        state: _Order, event: Event, body: ProduceCompleted, before: _Acknowledged
    ) -> Findings:
        if body.offset > before.offset:
            return (Exercised(event.ref, Evidence.CLIENT),)
        # The log was set back. Compared with the old highest offset, each later write would be a
        # violation of its own.
        now = state.last = _Acknowledged(body.offset, body.operation, event)
        state.before.clear()
        state.unplaced.clear()
        state.newest.clear()
        return (_out_of_order(event, body, before, now),)

    @staticmethod
    def _sent(
        state: _Order,
        event: Event,
        body: ProduceCompleted | Polled,
        sent: _Sent,
        following: _Sent | None = None,
    ) -> None:
        """Compares a write with that one of those which its producer has sent after it, or else
        with the one that it has sent last."""
        ended = sent.write.at
        newest = following or state.newest.get(ended.process, sent)
        first, second = (sent, newest) if sent.number < newest.number else (newest, sent)
        if following is None:
            state.newest[ended.process] = second
        if first.write.offset <= second.write.offset:
            return
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{operation} is at offset {offset} of {partition}, before {other_operation} at "
            "{other_offset}, which {client} had sent first",
            (newest.write.at.ref,),
            operation=second.write.operation,
            offset=second.write.offset,
            partition=partition_of(body),
            other_operation=first.write.operation,
            other_offset=first.write.offset,
            client=process_scope(ended.process),
        )
        state.suspects.append(_Suspect(ended.process, ended.at_ns, broken))

    def end(self, state: _Order, end: RunEnd) -> Findings:
        return tuple(one.violated for one in state.suspects)


def _out_of_order(
    event: Event,
    body: ProduceCompleted | Polled,
    before: _Acknowledged,
    write: _Acknowledged,
) -> Violated:
    """A write that was invoked after another's acknowledgement, and is not behind it."""
    return violated(
        event.ref,
        Evidence.CLIENT,
        "{operation} is at offset {offset} of {partition}, though it was invoked after "
        "{other_operation} had been acknowledged at {other_offset}",
        (before.at.ref,),
        operation=write.operation,
        offset=write.offset,
        partition=partition_of(body),
        other_operation=before.operation,
        other_offset=before.offset,
        client=process_scope(write.at.process),
        other=process_scope(before.at.process),
    )
