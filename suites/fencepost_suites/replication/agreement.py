"""The logs of a partition's replicas hold equal messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Key,
    Reason,
    Rule,
    RunEnd,
    Scope,
    Shared,
    Undecided,
    Violated,
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
    ReplicaRemoved,
    partition_of,
)
from fencepost_kafka.log_ends import LogEnds
from fencepost_suites.common.keys import by_partition
from fencepost_suites.common.replica_logs import Conflict, ReplicaLogs, Terms


@dataclass(slots=True)
class _Agreement:
    logs: ReplicaLogs
    terms: Terms = field(default_factory=Terms)
    anew: set[str] = field(default_factory=set)
    """Processes that began to follow with messages in their log, and have not been compared
    since."""
    ends: LogEnds[str] = field(default_factory=LogEnds)
    """Where the log of each process ends."""
    newest: dict[str, str] = field(default_factory=dict)
    """slot -> its newest process with a log, whose end the next one goes on from."""
    told: dict[bool, dict[str, Cause]] = field(default_factory=lambda: {True: {}, False: {}})
    """Whether it told what it stored -> process -> the first such batch. Nodes that never tell
    that are of a system whose disks are read instead."""

    def names(self, process: str, end: int) -> None:
        """A process begins to lead or to follow, and names the end of its log."""
        slot, known = slot_of(process), self.ends.known
        former = self.newest.get(slot, process)
        self.newest[slot] = process
        # What a new process has beyond the end of its slot's log is a hole, or was never there,
        # where the former one has told all: each batch with what it holds, before it was stored. A
        # node whose log is read prints a batch that it has stored, and may be killed in between.
        # Only the disk of a second process may be a copy.
        told_all = former in self.told[True]
        if former != process and told_all and not is_second(slot):
            end = min(end, known.get(former, end))
        self.ends.names(process, end)


@final
class ReplicasAgree(Rule[_Agreement]):
    """RP-05. A batch is stored at the end of the log: the end that the replica names, and the end
    that its batches and truncations before have made. Exercised by a replica that follows a leader
    with messages in its log, once what it commits equals what another replica committed. At the end
    also a replica is compared that has called nothing committed, by the batches of one leader
    epoch."""

    clause = "RP-05"
    keys = staticmethod(by_partition)
    folds = (ReplicaLogs,)

    def start(self, key: Key, shared: Shared) -> _Agreement:
        return _Agreement(shared[ReplicaLogs])

    @on(LogAppended)
    def _appended(self, state: _Agreement, event: Event, body: LogAppended) -> Findings:
        process, base = event.process, body.base_offset
        told = state.told[bool(body.digest)]
        if process not in told:
            told[process] = event.ref
        state.newest[slot_of(process)] = process
        ended = state.ends.appends(process, base, body.log_end)
        # Two ends: the one that the replica names, and the one that its events have made. A replica
        # that names a wrong end is found by the second.
        expected = body.expected_base
        if base != expected:
            ended = expected
        if base == ended:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} stored a batch of {partition} at offset {offset} though its log ended at "
            "{log_end}",
            process=process_scope(process),
            partition=partition_of(body),
            offset=base,
            log_end=ended,
        )
        return (broken,)

    @on(LogTruncated)
    def _truncated(self, state: _Agreement, event: Event, body: LogTruncated) -> Findings:
        state.ends.cuts(event.process, body.to_offset)
        return NOTHING

    @on(ReplicaRemoved)
    def _removed(self, state: _Agreement, event: Event, body: ReplicaRemoved) -> Findings:
        state.ends.cuts(event.process, 0)
        return NOTHING

    @on(FollowingStarted)
    def _follows(self, state: _Agreement, event: Event, body: FollowingStarted) -> Findings:
        state.names(event.process, body.log_end)
        if body.log_end > 0:
            state.anew.add(event.process)
        return NOTHING

    @on(LeadershipStarted)
    def _leads(self, state: _Agreement, event: Event, body: LeadershipStarted) -> Findings:
        state.names(event.process, body.log_end)
        state.terms.begin(event, body.leader_epoch)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _commits(self, state: _Agreement, event: Event, body: HighWatermarkAdvanced) -> Findings:
        process, done = event.process, state.logs.moved
        conflict = done.conflict
        if conflict is not None:
            because = state.terms.proof(process, conflict)
            partition = partition_of(body)
            return (_different(event.ref, process, conflict, partition, because),)
        if done.agreed and process in state.anew:
            state.anew.discard(process)
            return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    def end(self, state: _Agreement, end: RunEnd) -> Findings:
        found: list[Finding] = []
        # Over ZooKeeper two processes of one id may lead in one epoch, each with a log of its own.
        if not any(map(is_second, state.newest)):
            for one in state.logs.unlike():
                body, process = one.batch.body, one.batch.process
                at = state.told[True][process]
                found.append(
                    _different(
                        at, process, one, partition_of(body), state.terms.of(one.other_epoch)
                    )
                )
        if state.told[True]:
            for process, at in state.told[False].items():
                why = Reason.of(
                    "{process} did not tell what it stored, as others do",
                    process=process_scope(process),
                )
                found.append(Undecided.since(why, at))
        return found


def _different(
    at: Cause, process: str, conflict: Conflict, partition: Scope, because: tuple[Cause, ...]
) -> Violated:
    """Two replicas hold different messages where one of them is committed."""
    return violated(
        at,
        Evidence.PEER,
        "{process} and {other} hold different messages at offset {offset} of {partition}, "
        "below the high watermark: of leader epochs {epoch} and {other_epoch}",
        because,
        process=process_scope(process),
        other=process_scope(conflict.other),
        offset=conflict.batch.base_offset,
        partition=partition,
        epoch=conflict.batch.batch_epoch,
        other_epoch=conflict.other_epoch,
    )
