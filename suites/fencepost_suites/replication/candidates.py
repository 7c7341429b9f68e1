"""Whoever may lead holds what is committed (RP-06), before it leads.

A member of the ISR that lacks a committed message shows by its own word once it leads, and not
before: in a run of a few minutes mostly never. Of the behaviours of broken models of Kafka's
replication that do serious harm, every eighth ended before that (no maximal ISR, a stale broker
epoch, replicas that stay eligible). So this rule asks for an invariant at each step: each broker
that the newest record lets lead has a log that reaches the highest watermark of any leader.

Whose word counts: the log end of a replica is its own, the watermark the leader's, the ISR the
committed record's. A replica that has not told how far its log reaches is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Excused,
    Finding,
    Findings,
    Key,
    Reason,
    Rule,
    Shared,
    first_of,
    is_second,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    HighWatermarkAdvanced,
    LogAppended,
    PartitionCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import eligible_leaders
from fencepost_suites.common.keys import by_partition
from fencepost_suites.replication.stored import STORED_KINDS, StoredEnds


@dataclass(slots=True)
class _Candidates:
    stored: StoredEnds
    record: PartitionCommitted | None = None
    """The newest record."""
    committed: int = 0
    """The highest watermark of any leader."""
    known_by: Cause | None = None
    judged: dict[str, int] = field(default_factory=dict)
    """process -> the watermark that it was found not to reach."""


@final
class CandidatesHoldCommitted(Rule[_Candidates]):
    """RP-06. By the records, the replicas and the leaders; see the module."""

    clause = "RP-06"
    keys = staticmethod(by_partition)

    def start(self, key: Key, shared: Shared) -> _Candidates:
        return _Candidates(StoredEnds.of(shared))

    @on(LogAppended)
    def _appended(self, state: _Candidates, event: Event, body: LogAppended) -> Findings:
        state.stored.take(event)  # it can only bring a replica nearer
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _advanced(self, state: _Candidates, event: Event, body: HighWatermarkAdvanced) -> Findings:
        if not body.as_leader or body.high_watermark <= state.committed:
            return NOTHING
        state.committed, state.known_by = body.high_watermark, event.ref
        return self._lacking(state, event)

    @on(*(STORED_KINDS - {LogAppended}))
    def _changed(self, state: _Candidates, event: Event, body: Struct) -> Findings:
        state.stored.take(event)
        if isinstance(body, PartitionCommitted):
            if state.record is not None and body.offset <= state.record.offset:
                return NOTHING
            state.record = body
        return self._lacking(state, event)

    @staticmethod
    def _lacking(state: _Candidates, event: Event) -> Findings:
        """The candidates whose logs end before what is committed."""
        record, known_by = state.record, state.known_by
        if record is None or known_by is None:
            return NOTHING
        found: list[Finding] = []
        for broker in sorted(eligible_leaders(record)):
            slot = f"broker-{broker}"
            process = state.stored.slots.get(slot, "")
            end = state.stored.ends.get(process, state.committed)
            if end >= state.committed or state.judged.get(process) == state.committed:
                continue
            # A second process of an id has another disk, and either may be the member.
            if any(is_second(one) and first_of(one) == slot for one in state.stored.slots):
                continue
            state.judged[process] = state.committed
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} may lead {partition} by offset {offset}, and its log ends at {log_end}, "
                "though {other} had committed up to {committed}",
                (known_by,),
                process=process_scope(process),
                partition=partition_of(record),
                offset=record.offset,
                log_end=end,
                other=process_scope(known_by.process),
                committed=state.committed,
                leader=broker_of(broker),
            )
            loss = state.stored.losses.get(slot)
            if loss is None:
                found.append(broken)
            else:
                taken = Reason.of("{fault} had taken it", fault=loss.fault_id)
                found.append(Excused.of(broken, taken))
        return found
