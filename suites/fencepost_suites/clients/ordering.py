"""The order of writes in a partition, as clients know it (a Jepsen anomaly)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from msgspec import Struct, field

from fencepost import Cause, Event, Evidence, Exercised, Finding, Key, RunEnd, Violated
from fencepost_kafka import ProduceCompleted, ProduceInvoked
from fencepost_suites.common.keys import NOTHING, by_partition


class _Acknowledged(Struct, frozen=True):
    """A write that was acknowledged with acks=all."""

    offset: int
    operation: str
    at_ns: int
    ref: Cause


class _Order(Struct):
    last: _Acknowledged | None = None
    """The acknowledged write with the highest offset."""
    before: dict[str, _Acknowledged] = field(default_factory=dict)
    """operation in flight -> the last write when it was invoked."""


@final
class NonmonotonicSend(Struct, frozen=True):
    """JEPSEN-nonmonotonic-send. The writes may be of one producer, or of several: then it is
    Jepsen's order in real time. Both are acknowledged with acks=all, since a leader that was
    deposed may store what is only its own. A log that was set back counts once: the order begins
    anew with the first write behind it. Exercised by each write that was invoked after another was
    acknowledged."""

    clause: str = "JEPSEN-nonmonotonic-send"
    kinds: frozenset[type[Struct]] = frozenset({ProduceInvoked, ProduceCompleted})
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Order:
        return _Order()

    def step(self, state: _Order, event: Event) -> tuple[_Order, Sequence[Finding]]:
        body = event.body
        if isinstance(body, ProduceInvoked):
            last = state.last
            if last is not None and last.at_ns < event.at_ns and body.acks == -1:
                state.before[body.operation] = last
        elif isinstance(body, ProduceCompleted):
            before = state.before.pop(body.operation, None)
            if body.acks != -1 or body.outcome != "ok" or body.offset < 0:
                return state, NOTHING
            if state.last is None or body.offset > state.last.offset:
                state.last = _Acknowledged(body.offset, body.operation, event.at_ns, event.ref)
            if before is not None:
                return state, self._judged(state, event, body, before)
        return state, NOTHING

    @staticmethod
    def _judged(
        state: _Order, event: Event, body: ProduceCompleted, before: _Acknowledged
    ) -> Sequence[Finding]:
        if body.offset > before.offset:
            return (Exercised(event.ref, Evidence.CLIENT),)
        state.last = _Acknowledged(body.offset, body.operation, event.at_ns, event.ref)
        state.before.clear()
        message = (
            f"{body.operation} is at offset {body.offset} of {body.topic}-{body.partition}, though "
            f"it was invoked after {before.operation} had been acknowledged at {before.offset}"
        )
        return (Violated(event.ref, Evidence.CLIENT, message, (before.ref,)),)

    def end(self, state: _Order, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
