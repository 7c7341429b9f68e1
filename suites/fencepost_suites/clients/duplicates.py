"""The promise of an idempotent producer: each message is stored once (a Jepsen anomaly)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Event,
    Evidence,
    Exercised,
    Finding,
    Handlers,
    Key,
    RunEnd,
    Violated,
    by_handlers,
)
from fencepost_kafka import (
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
)
from fencepost_suites.common.keys import NOTHING, by_partition

CLIENT = Evidence.CLIENT

_REMEMBERED_NS = 60_000_000_000
"""How long an ended operation is remembered. It may have been in flight when its producer's epoch
changed, which is recorded well within a second, unless the worker stalled."""


@dataclass(slots=True)
class _Places:
    at: dict[str, int] = field(default_factory=dict)
    """operation -> the offset where it was seen first."""
    repeatable: set[str] = field(default_factory=set)
    """Operations that may be stored twice."""
    under_way: dict[str, str] = field(default_factory=dict)
    """operation of an idempotent producer in flight -> its process."""
    ended: deque[tuple[int, str, str]] = field(default_factory=deque)
    """When each such operation ended, the operation, and its process; the newest ones, in order."""
    suspects: list[tuple[str, Violated]] = field(default_factory=list)
    """Operations found at two offsets: the epoch change that explains one may be recorded later."""

    def counts(self, operation: str) -> bool:
        """Whether it is a message with an operation, and one that may not be stored twice."""
        return operation != "" and operation not in self.repeatable

    def elsewhere(self, offset: int, operation: str) -> bool:
        """Whether a message that counts was seen at another offset before."""
        return self.counts(operation) and self.at.setdefault(operation, offset) != offset

    def invoked(self, event: Event, body: ProduceInvoked) -> None:
        if body.idempotent:
            self.under_way[body.operation] = event.process
        else:
            self.repeatable.add(body.operation)

    def completed(self, event: Event, body: ProduceCompleted) -> None:
        operation, at_ns = body.operation, event.at_ns
        if self.under_way.pop(operation, None) is None:
            return
        self.ended.append((at_ns, operation, event.process))
        while self.ended[0][0] < at_ns - _REMEMBERED_NS:
            self.ended.popleft()

    def resent(self, event: Event, body: ProducerEpochChanged) -> None:
        """Marks the operations in flight when their producer's epoch changed: they may be stored
        under both."""
        mine = event.process
        self.repeatable.update(op for op, process in self.under_way.items() if process == mine)
        self.repeatable.update(
            op for at_ns, op, process in self.ended if process == mine and at_ns >= body.since_ns
        )


def of_next_topic(state: _Places) -> _Places:
    """What was found in a topic counts, though the topic is deleted."""
    return _Places(suspects=state.suspects, repeatable=state.repeatable)


@final
class Duplicate(Struct, frozen=True):
    """JEPSEN-duplicate. For idempotent producers, within one producer epoch: an operation in flight
    when the client library began a new epoch may be stored twice (KIP-360). Exercised by each poll
    that returns a message at the offset where it was before."""

    clause: str = "JEPSEN-duplicate"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            ProduceInvoked,
            ProduceCompleted,
            ProducerEpochChanged,
            Polled,
        }
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Places:
        return _Places()

    @property
    def handlers(self) -> Handlers:
        return {
            ProduceInvoked: self._invoked,
            ProduceCompleted: self._completed,
            ProducerEpochChanged: self._changed,
            Polled: self._polled,
        }

    def step(self, state: _Places, event: Event) -> tuple[_Places, Sequence[Finding]]:
        return by_handlers(self, state, event)

    @staticmethod
    def _invoked(state: _Places, event: Event, body: ProduceInvoked) -> Sequence[Finding]:
        state.invoked(event, body)
        return NOTHING

    def _completed(self, state: _Places, event: Event, body: ProduceCompleted) -> Sequence[Finding]:
        state.completed(event, body)
        offset, operation = body.offset, body.operation
        if offset >= 0 and state.elsewhere(offset, operation):
            self._suspect(state, event, body, offset, operation)
        return NOTHING

    @staticmethod
    def _changed(state: _Places, event: Event, body: ProducerEpochChanged) -> Sequence[Finding]:
        state.resent(event, body)
        return NOTHING

    def _polled(self, state: _Places, event: Event, body: Polled) -> Sequence[Finding]:
        """Exercised if a message is where it was before, and none is elsewhere."""
        known = len(state.at)
        counted, elsewhere = 0, False
        for offset, operation in zip(body.offsets, body.operations, strict=True):
            counted += state.counts(operation)
            if state.elsewhere(offset, operation):
                elsewhere = True
                self._suspect(state, event, body, offset, operation)
        again = len(state.at) - known < counted
        return (Exercised(event.ref, CLIENT),) if again and not elsewhere else NOTHING

    @staticmethod
    def _suspect(
        state: _Places, event: Event, body: Polled | ProduceCompleted, offset: int, operation: str
    ) -> None:
        message = (
            f"{operation} is in {body.topic}-{body.partition} at offset {state.at[operation]} and "
            f"at offset {offset}"
        )
        state.suspects.append((operation, Violated(event.ref, CLIENT, message)))

    def end(self, state: _Places, end: RunEnd) -> Sequence[Finding]:
        return tuple(
            violated for operation, violated in state.suspects if operation not in state.repeatable
        )
