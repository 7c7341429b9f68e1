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
    Violated,
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
    """Those that failed for certain, and by which word."""
    ended: set[str] = field(default_factory=set)
    """Those of which the outcome is known."""
    early: dict[str, Cause] = field(default_factory=dict)
    """operation of which it was not -> the first poll that returned it."""

    def end(self, event: Event, body: ProduceCompleted | ProbeCompleted, failed: bool) -> Findings:
        """The outcome of a write is known: it may have been read before."""
        self.ended.add(body.operation)
        poll = self.early.pop(body.operation, None)
        if not failed:
            return NOTHING
        self.operations[body.operation] = event.ref
        return () if poll is None else (_read(event.ref, (poll, event.ref), body.operation, body),)


@final
class AbortedRead(Rule[_Failed]):
    """JEPSEN-aborted-read. A write failed for certain if its client says so. A probe is sent once:
    it failed if it was refused by an error of a broker that has stored nothing. Exercised by a
    whole reading after a write that failed. Whether it is read before its client says so or after
    that, it was stored."""

    clause = "JEPSEN-aborted-read"
    keys = staticmethod(by_partition)
    state = _Failed

    @on(ProduceCompleted)
    def _completed(self, state: _Failed, event: Event, body: ProduceCompleted) -> Findings:
        return state.end(event, body, body.outcome == "failed")

    @on(ProbeCompleted)
    def _probed(self, state: _Failed, event: Event, body: ProbeCompleted) -> Findings:
        errors = _NOT_STORED_BY_ONE if body.acks == 1 else _NEVER_STORED
        if body.api != "Produce":
            return NOTHING
        return state.end(event, body, body.outcome == "refused" and body.error in errors)

    @on(Polled)
    def _polled(self, state: _Failed, event: Event, body: Polled) -> Findings:
        if not state.ended.issuperset(body.operations):
            for operation in {*body.operations} - state.ended:
                state.early.setdefault(operation, event.ref)
        if not state.operations:
            return NOTHING
        return [
            _read(event.ref, (event.ref, state.operations[operation]), operation, body)
            for operation in body.operations
            if operation in state.operations
        ]

    @on(ReadCompleted)
    def _read(self, state: _Failed, event: Event, body: ReadCompleted) -> Findings:
        if body.outcome == "ok" and state.operations:
            return (Exercised(event.ref, CLIENT),)
        return NOTHING


def _read(
    at: Cause,
    read: tuple[Cause, Cause],
    operation: str,
    body: Polled | ProduceCompleted | ProbeCompleted,
) -> Violated:
    """A violation at the later one of the two: the poll that read a write, and its failure."""
    poll, failed = read
    return violated(
        at,
        CLIENT,
        "{reader} read {operation}, which had failed, in {partition}",
        (failed if at == poll else poll,),
        reader=process_scope(poll.process),
        operation=operation,
        partition=partition_of(body),
        client=process_scope(failed.process),
    )
