"""Writes that certainly failed, and are read all the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

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
from fencepost_kafka import Polled, ProbeCompleted, ProduceCompleted, ReadCompleted, partition_of
from fencepost_suites.common.keys import by_partition

CLIENT = Evidence.CLIENT


_NEVER_STORED = frozenset({"NOT_ENOUGH_REPLICAS", "MESSAGE_TOO_LARGE", "INVALID_RECORD"})
"""Errors by which a broker refuses a Produce before it stores anything."""
_NOT_STORED_BY_ONE = _NEVER_STORED | {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"}
"""The same for acks=1. With acks=all a leader answers these, too, if it steps down while a message
that it has stored waits for followers."""


@dataclass(slots=True)
class _Failed:
    operations: dict[str, Cause] = field(default_factory=dict)


@final
class AbortedRead(Rule[_Failed]):
    """JEPSEN-aborted-read. A write failed for certain if its client says so. A probe is sent once:
    it failed if it was refused by an error of a broker that has stored nothing. Exercised by a
    whole reading after a write that failed."""

    clause = "JEPSEN-aborted-read"
    keys = staticmethod(by_partition)
    state = _Failed

    @on(ProduceCompleted)
    def _completed(self, state: _Failed, event: Event, body: ProduceCompleted) -> Findings:
        if body.outcome == "failed":
            state.operations[body.operation] = event.ref
        return NOTHING

    @on(ProbeCompleted)
    def _probed(self, state: _Failed, event: Event, body: ProbeCompleted) -> Findings:
        errors = _NOT_STORED_BY_ONE if body.acks == 1 else _NEVER_STORED
        if body.api == "Produce" and body.outcome == "refused" and body.error in errors:
            state.operations[body.operation] = event.ref
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Failed, event: Event, body: Polled) -> Findings:
        if not state.operations:
            return NOTHING
        return [
            violated(
                event.ref,
                CLIENT,
                "{reader} read {operation}, which had failed, in {partition}",
                (state.operations[operation],),
                reader=process_scope(event.process),
                operation=operation,
                partition=partition_of(body),
                client=process_scope(state.operations[operation].process),
            )
            for operation in body.operations
            if operation in state.operations
        ]

    @on(ReadCompleted)
    def _read(self, state: _Failed, event: Event, body: ReadCompleted) -> Findings:
        if body.outcome == "ok" and state.operations:
            return (Exercised(event.ref, CLIENT),)
        return NOTHING
