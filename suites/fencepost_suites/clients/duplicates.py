"""The promise of an idempotent producer: each message is stored once (a Jepsen anomaly)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Event, Evidence, Exercised, Finding, Key, RunEnd, Violated
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

    def invoked(self, event: Event, body: ProduceInvoked) -> None:
        if body.idempotent:
            self.under_way[body.operation] = event.process
        else:
            self.repeatable.add(body.operation)

    def completed(self, event: Event, body: ProduceCompleted) -> None:
        if self.under_way.pop(body.operation, None) is None:
            return
        self.ended.append((event.at_ns, body.operation, event.process))
        while self.ended[0][0] < event.at_ns - _REMEMBERED_NS:
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

    def step(self, state: _Places, event: Event) -> tuple[_Places, Sequence[Finding]]:
        body = event.body
        if isinstance(body, ProduceCompleted):
            state.completed(event, body)
            if body.offset >= 0:
                self._seen(state, event, body, (body.offset,), (body.operation,))
        elif isinstance(body, Polled):
            if self._seen(state, event, body, body.offsets, body.operations):
                return state, (Exercised(event.ref, CLIENT),)
        elif isinstance(body, ProduceInvoked):
            state.invoked(event, body)
        elif isinstance(body, ProducerEpochChanged):
            state.resent(event, body)
        return state, NOTHING

    @staticmethod
    def _seen(
        state: _Places,
        event: Event,
        body: Polled | ProduceCompleted,
        offsets: Sequence[int],
        operations: Sequence[str],
    ) -> bool:
        """Whether a message is where it was before, and none is elsewhere. A message without an
        operation, and one that may be stored twice, are left out."""
        at, again, elsewhere = state.at, False, False
        for offset, operation in zip(offsets, operations, strict=True):
            if not operation or operation in state.repeatable:
                continue
            known = at.get(operation)
            if known is None:
                at[operation] = offset
            elif known == offset:
                again = True
            else:
                elsewhere = True
                message = (
                    f"{operation} is in {body.topic}-{body.partition} at offset {known} and at "
                    f"offset {offset}"
                )
                state.suspects.append((operation, Violated(event.ref, CLIENT, message)))
        return again and not elsewhere

    def end(self, state: _Places, end: RunEnd) -> Sequence[Finding]:
        return tuple(
            violated for operation, violated in state.suspects if operation not in state.repeatable
        )
