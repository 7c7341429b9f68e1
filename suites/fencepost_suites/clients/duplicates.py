"""The promise of an idempotent producer: each message is stored once (a Jepsen anomaly)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    AppStarted,
    Cause,
    Event,
    Evidence,
    Excused,
    Exercised,
    Findings,
    Reason,
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
    partition_at,
    partition_of,
)
from fencepost_kafka.judging.generations import Renews
from fencepost_suites.common.keys import by_partition

CLIENT = Evidence.CLIENT

_REMEMBERED_NS = 60_000_000_000
"""How long an ended operation is remembered. It may have been in flight when its producer's epoch
changed, which is recorded well within a second, unless the worker stalled."""


class _Suspect(Struct, frozen=True):
    """A message at two offsets: its operation, and the violation that it is."""

    operation: str
    violated: Violated


@dataclass(slots=True)
class _Places:
    at: dict[str, int] = field(default_factory=dict)
    """operation -> the offset where it was seen first."""
    promised: set[str] = field(default_factory=set)
    """The operations that are to be stored once: those of idempotent producers. One whose beginning
    was not seen is none of them."""
    in_two_epochs: dict[str, int] = field(default_factory=dict)
    """Operations in flight when their producer began an epoch -> that epoch. They may be stored
    under both."""
    under_way: dict[str, str] = field(default_factory=dict)
    """operation of an idempotent producer in flight -> its process."""
    ended: deque[tuple[int, str, str]] = field(default_factory=deque)
    """When each such operation ended, the operation, and its process; the newest ones, in order."""
    suspects: list[_Suspect] = field(default_factory=list)
    """Found at two offsets: the epoch change that explains one may be recorded later."""

    def counts(self, operation: str) -> bool:
        """Whether it is a message that is to be stored once."""
        return operation in self.promised

    def elsewhere(self, offset: int, operation: str) -> bool:
        """Whether a message that counts was seen at another offset before."""
        return self.counts(operation) and self.at.setdefault(operation, offset) != offset

    def judged(self, suspect: _Suspect) -> Violated | Excused:
        """A suspect as a finding: excused if its producer began an epoch with it in flight."""
        epoch = self.in_two_epochs.get(suspect.operation)
        if epoch is None:
            return suspect.violated
        why = Reason.of("its producer began epoch {epoch} with it in flight", epoch=epoch)
        return Excused.of(suspect.violated, why)

    def invoked(self, event: Event, body: ProduceInvoked) -> None:
        if body.idempotent:
            self.under_way[body.operation] = event.process
            self.promised.add(body.operation)

    def completed(self, event: Event, body: ProduceCompleted) -> None:
        operation, at_ns = body.operation, event.at_ns
        if self.under_way.pop(operation, None) is None:
            return
        self.ended.append((at_ns, operation, event.process))
        while self.ended[0][0] < at_ns - _REMEMBERED_NS:
            self.ended.popleft()

    def resent(self, event: Event, body: ProducerEpochChanged) -> None:
        """Notes the operations in flight when their producer's epoch changed."""
        mine, epoch = event.process, body.epoch
        self.in_two_epochs.update(
            (op, epoch) for op, process in self.under_way.items() if process == mine
        )
        self.in_two_epochs.update(
            (op, epoch)
            for at_ns, op, process in self.ended
            if process == mine and at_ns >= body.since_ns
        )


@final
class Duplicate(Renews[_Places]):
    """JEPSEN-duplicate. For idempotent producers, within one producer epoch: an operation in flight
    when the client library began a new epoch may be stored twice (KIP-360), and is excused.
    Exercised by each poll that returns a message at the offset where it was before."""

    clause = "JEPSEN-duplicate"
    keys = staticmethod(by_partition)
    state = _Places

    def renewed(self, state: _Places) -> _Places:
        """What was found in a topic counts, though the topic is deleted. Of what is in flight
        meanwhile, nothing is promised: of a partition that was lost with its disks nothing counts
        until a member has all of it again, so the epochs that its producer began go unseen."""
        return _Places(
            suspects=state.suspects,
            promised=state.promised - state.under_way.keys(),
            in_two_epochs=state.in_two_epochs,
        )

    @on(ProduceInvoked)
    def _invoked(self, state: _Places, event: Event, body: ProduceInvoked) -> Findings:
        state.invoked(event, body)
        return NOTHING

    @on(ProduceCompleted)
    def _completed(self, state: _Places, event: Event, body: ProduceCompleted) -> Findings:
        state.completed(event, body)
        offset, operation = body.offset, body.operation
        # The acknowledgement names an offset, too: a message may be acknowledged at one, and be
        # read at another.
        if offset >= 0 and body.outcome == "ok" and state.elsewhere(offset, operation):
            self._suspect(state, event, body, offset, operation)
        return NOTHING

    @on(ProducerEpochChanged)
    def _changed(self, state: _Places, event: Event, body: ProducerEpochChanged) -> Findings:
        state.resent(event, body)
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Places, event: Event, body: Polled) -> Findings:
        """Exercised if a message is where it was before, and none is elsewhere."""
        known = len(state.at)
        counted, moved, resent = 0, 0, 0
        for offset, operation in zip(body.offsets, body.operations, strict=True):
            counted += state.counts(operation)
            if state.elsewhere(offset, operation):
                moved += 1
                resent += operation in state.in_two_epochs
                self._suspect(state, event, body, offset, operation)
        # Of the messages that count, fewer were new than there are: one at least was seen before,
        # at the same offset.
        again = len(state.at) - known < counted - moved
        return (Exercised(event.ref, CLIENT),) if again and moved == resent else NOTHING

    @staticmethod
    def _suspect(
        state: _Places, event: Event, body: Polled | ProduceCompleted, offset: int, operation: str
    ) -> None:
        broken = violated(
            event.ref,
            CLIENT,
            "{operation} is in {partition} at offset {other_offset} and at offset {offset}",
            operation=operation,
            partition=partition_of(body),
            other_offset=state.at[operation],
            offset=offset,
            client=process_scope(event.process),
        )
        state.suspects.append(_Suspect(operation, broken))

    def end(self, state: _Places, end: RunEnd) -> Findings:
        return tuple(state.judged(one) for one in state.suspects)


_Place = tuple[str, int]


@dataclass(slots=True)
class _Sent:
    """The writes of one partition."""

    once: set[str] = field(default_factory=set)
    """The operations of idempotent producers that were invoked for it."""
    others: set[str] = field(default_factory=set)
    """Those of other producers."""
    stored: set[str] = field(default_factory=set)
    """The operations that were acknowledged for it, or read in it."""
    read: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """operation that was not invoked for it so far -> where the first poll returned it."""


@dataclass(slots=True)
class _AllSent:
    of: dict[_Place, _Sent] = field(default_factory=dict)
    app: str = ""
    """The first process of a program of the user's, if any ran."""

    def at(self, body: ProduceInvoked | ProduceCompleted | Polled) -> _Sent:
        """The partition that an event is about."""
        place = body.topic, body.partition
        one = self.of.get(place)
        if one is None:
            one = self.of[place] = _Sent()
        return one


@final
class InOnePartition(Rule[_AllSent]):
    """JEPSEN-duplicate. A message that is in the partition to which it was sent, and in another
    one. Whatever a topic of a name held before, nobody sent the message there. A new epoch of a
    producer excuses none: what it sends again, it sends to the same partition. A program of the
    user's does: it may copy what it reads, as a mirror or a pipeline does. Never exercised: each
    message that is read would be."""

    clause = "JEPSEN-duplicate"
    state = _AllSent

    @on(AppStarted)
    def _app(self, state: _AllSent, event: Event, body: AppStarted) -> Findings:
        state.app = state.app or body.started
        return NOTHING

    @on(ProduceInvoked)
    def _invoked(self, state: _AllSent, event: Event, body: ProduceInvoked) -> Findings:
        one = state.at(body)
        (one.once if body.idempotent else one.others).add(body.operation)
        return NOTHING

    @on(ProduceCompleted)
    def _completed(self, state: _AllSent, event: Event, body: ProduceCompleted) -> Findings:
        if body.outcome == "ok":
            state.at(body).stored.add(body.operation)
        return NOTHING

    @on(Polled)
    def _polled(self, state: _AllSent, event: Event, body: Polled) -> Findings:
        one = state.at(body)
        one.stored.update(body.operations)
        if not one.once.issuperset(body.operations):
            for offset, operation in zip(body.offsets, body.operations, strict=True):
                if operation not in one.once and operation not in one.others:
                    one.read.setdefault(operation, (offset, event.ref))
        return NOTHING

    def end(self, state: _AllSent, end: RunEnd) -> Findings:
        found = (
            _in_two(operation, home, place, one.read[operation])
            for place, one in state.of.items()
            if one.read  # nearly never: each message is where it was sent
            for home, other in state.of.items()
            for operation in sorted(other.once & other.stored & one.read.keys())
            # It may have been read before its invocation was recorded.
            if operation not in one.once | one.others
        )
        if not state.app:
            return tuple(found)
        copied = Reason.of("{app} may have copied it", app=process_scope(state.app))
        return tuple(Excused.of(one, copied) for one in found)


def _in_two(operation: str, home: _Place, place: _Place, read: tuple[int, Cause]) -> Violated:
    offset, poll = read
    return violated(
        poll,
        CLIENT,
        "{operation} is in {other}, to which it was sent, and in {partition} at offset {offset}, "
        "to which it was not",
        operation=operation,
        partition=partition_at(*place),
        other=partition_at(*home),
        offset=offset,
        client=process_scope(poll.process),
    )
