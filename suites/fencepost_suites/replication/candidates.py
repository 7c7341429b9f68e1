"""Whoever may lead holds what is committed (RP-06), before it leads.

A member of the ISR that lacks a committed message shows by its own word once it leads, and not
before: in a run of a few minutes mostly never. Of the behaviours of broken models of Kafka's
replication that do serious harm, every eighth ended before that (no maximal ISR, a stale broker
epoch, replicas that stay eligible). So this rule asks for an invariant at each step: each broker
that the newest record lets lead has a log that reaches the highest watermark of any leader.

Whose word counts: the log end of a replica is its own, the watermark the leader's, the ISR the
committed record's. Three words show only later that a line was missing, so what was found waits
until the end:

* A replica that has told nothing yet is not judged.
* One that stores, or begins, behind what it has told lacks a line, or its log has a hole, of which
  RP-05 judges.
* One may tell a moment later that it has stored it. RP-04 and RP-32 hold the leader to the order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct
from msgspec.structs import replace

from fencepost import (
    MS,
    NOTHING,
    Event,
    Evidence,
    Excused,
    Finding,
    Findings,
    Key,
    Reason,
    Rule,
    RunEnd,
    Shared,
    first_of,
    is_second,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import eligible_leaders
from fencepost_suites.common.keys import by_partition
from fencepost_suites.replication.stored import StoredEnds

_TOLD_WITHIN_NS = 1_000 * MS
"""How much later than the leader's commit a replica may tell that it has stored the messages."""


class _Short(Struct, frozen=True):
    """A candidate whose log ends before what is committed."""

    committed: int
    at_ns: int
    finding: Finding


@dataclass(slots=True)
class _Candidates:
    stored: StoredEnds
    record: PartitionCommitted | None = None
    """The newest record."""
    may_lead: dict[str, int] = field(default_factory=dict)
    """The slots of the brokers that it lets lead -> their ids."""
    committed: int = 0
    """The highest watermark of any leader."""
    known_by: Event | None = None
    judged: dict[str, int] = field(default_factory=dict)
    """process -> the watermark that it was found not to reach."""
    found: dict[str, list[_Short]] = field(default_factory=dict)
    """process -> what was found of it."""


@final
class CandidatesHoldCommitted(Rule[_Candidates]):
    """RP-06. By the records, the replicas and the leaders; see the module."""

    clause = "RP-06"
    # Lines of Apache Kafka's nodes come out of order: RP-07 and RP-32 there wait for the others.
    planes = ("quorum", "legacy", "classic")
    keys = staticmethod(by_partition)
    folds = (StoredEnds,)

    def start(self, key: Key, shared: Shared) -> _Candidates:
        return _Candidates(shared[StoredEnds])

    @on(LogAppended)
    def _appended(self, state: _Candidates, event: Event, body: LogAppended) -> Findings:
        # It can only bring a replica nearer.
        if state.found and event.process in state.found:
            since_ns = event.at_ns - _TOLD_WITHIN_NS
            state.found[event.process] = [
                one
                for one in state.found[event.process]
                if body.log_end < one.committed or one.at_ns < since_ns
            ]
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _advanced(self, state: _Candidates, event: Event, body: HighWatermarkAdvanced) -> Findings:
        if not body.as_leader or body.high_watermark <= state.committed:
            return NOTHING
        state.committed, state.known_by = body.high_watermark, event
        self._look(state, event)
        return NOTHING

    @on(FollowingStarted, LeadershipStarted, LogTruncated, PartitionCommitted)
    def _changed(self, state: _Candidates, event: Event, body: Struct) -> Findings:
        if isinstance(body, FollowingStarted | LeadershipStarted):
            if body.log_end > state.stored.ends[event.process]:
                for former in [
                    one for one in state.found if slot_of(one) == slot_of(event.process)
                ]:
                    del state.found[former]
        elif isinstance(body, PartitionCommitted):
            if state.record is not None and body.offset <= state.record.offset:
                return NOTHING
            state.record = body
            state.may_lead = {f"broker-{one}": one for one in sorted(eligible_leaders(body))}
        self._look(state, event)
        return NOTHING

    @staticmethod
    def _look(state: _Candidates, event: Event) -> None:
        """Looks for candidates whose logs end before what is committed."""
        record, known_by, stored = state.record, state.known_by, state.stored
        # Where not even its leader tells that it has stored it, nobody tells what is stored.
        if record is None or known_by is None or stored.farthest < state.committed:
            return
        for slot, broker in state.may_lead.items():
            process = stored.slots.get(slot, "")
            end = stored.ends.get(process, state.committed)
            if end >= state.committed or process in stored.torn:
                continue
            if state.judged.get(process) == state.committed:
                continue
            # A second process of an id has another disk, and either may be the member.
            if any(is_second(one) and first_of(one) == slot for one in stored.slots):
                continue
            state.judged[process] = state.committed
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} may lead {partition} by offset {offset}, and its log ends at {log_end}, "
                "though {other} had committed up to {committed}",
                (known_by.ref,),
                process=process_scope(process),
                partition=partition_of(record),
                offset=record.offset,
                log_end=end,
                other=process_scope(known_by.process),
                committed=state.committed,
                leader=broker_of(broker),
            )
            finding: Finding = replace(broken, certain_ns=event.at_ns)
            loss = stored.losses.get(slot)
            if loss is not None:
                taken = Reason.of("{fault} had taken it", fault=loss.fault_id)
                finding = Excused.of(broken, taken)
            found = state.found.setdefault(process, [])
            found.append(_Short(state.committed, event.at_ns, finding))

    def end(self, state: _Candidates, end: RunEnd) -> Findings:
        torn = state.stored.torn
        several = (found for process, found in state.found.items() if process not in torn)
        return [one.finding for found in several for one in found]
