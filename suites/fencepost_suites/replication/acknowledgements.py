"""Acknowledgements: the replicas that must have stored a write before."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import final

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Excused,
    Exercised,
    Findings,
    Key,
    Reason,
    Rule,
    RunEnd,
    Shared,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    PartitionCommitted,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    broker_of,
    partition_of,
)
from fencepost_suites.common.keys import by_partition
from fencepost_suites.replication.stored import Loss, Overtaken, StoredEnds


def _behind(followers: Mapping[str, int], end: int, lost: Mapping[str, Loss]) -> str:
    """The first follower whose log never reached that offset; empty if there is none."""
    for process, reaches in followers.items():
        if reaches < end and process not in lost:
            return process
    return ""


def _without(
    event: Event, body: ProduceAnswered, end: int, follower: str, reaches: int
) -> Violated:
    """An answer before a follower in the ISR had stored the write."""
    return violated(
        event.ref,
        Evidence.PEER,
        "{process} acknowledged acks=all of {partition} up to offset {offset} while {other}, in "
        "the ISR, had stored up to {log_end}",
        process=process_scope(event.process),
        partition=partition_of(body),
        offset=end,
        other=process_scope(follower),
        log_end=reaches,
    )


def _too_few(
    event: Event, body: ProduceAnswered, end: int, most: int, followers: Set[int]
) -> Violated:
    """An answer before so many followers had stored the write as are in the ISR."""
    return violated(
        event.ref,
        Evidence.PEER,
        "{process} acknowledged acks=all of {partition} up to offset {offset} while no more than "
        "{most} of the {needed} followers in the ISR had stored it",
        process=process_scope(event.process),
        partition=partition_of(body),
        offset=end,
        most=most,
        needed=len(followers),
        followers=tuple(map(broker_of, sorted(followers))),
    )


def _excused(event: Event, body: ProduceAnswered, process: str, stored: int, loss: Loss) -> Excused:
    behind = violated(
        event.ref,
        Evidence.PEER,
        "{other}, in the ISR, had stored up to {stored}",
        process=process_scope(event.process),
        other=process_scope(process),
        partition=partition_of(body),
        stored=stored,
    )
    taken = Reason.of(
        "{fault} had taken the rest, which {process} had",
        fault=loss.fault_id,
        process=process_scope(loss.process),
    )
    return Excused.of(behind, taken, ": ")


@dataclass(slots=True)
class _Answers:
    """What replicas have stored, and which answers wait for the end."""

    stored: StoredEnds
    overtaken: Overtaken


@final
class AcknowledgedByAllInSync(Rule[_Answers]):
    """RP-04. The ISR is the stored one, by the word of controllers if there are any, and what the
    leader names beside it: it may count more replicas than are stored, but none less. The leader's
    evidence is its high watermark, or the log ends it knows; the followers' is what they stored
    before: each that a leader has named, and as many as must have it, whatever a leader names.
    Exercised by every acks=all that had to wait for a follower. What a follower had stored before a
    fault took it from its disk counts, and is excused, until the leader hears of its next
    process."""

    clause = "RP-04"
    keys = staticmethod(by_partition)
    reads = frozenset({ProduceInvoked})
    folds = (StoredEnds,)

    def start(self, key: Key, shared: Shared) -> _Answers:
        stored: StoredEnds = shared[StoredEnds]
        return _Answers(stored, Overtaken(stored))

    @on(ProduceAnswered)
    def _answered(self, answers: _Answers, event: Event, body: ProduceAnswered) -> Findings:
        state = answers.stored
        # An answer without an end is one for the message at its offset, at least.
        end = max(body.log_end, body.base_offset + 1)
        if body.error != "NONE" or body.base_offset < 0:
            return NOTHING
        # First the leader itself: whatever was asked, it cannot acknowledge what its own log does
        # not have.
        own = state.ends.get(event.process, end)
        if own < end:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} acknowledged {partition} up to offset {offset} with a log that ends at "
                "{log_end}",
                process=process_scope(event.process),
                partition=partition_of(body),
                offset=end,
                log_end=own,
            )
            return (broken,)
        if body.acks != -1:
            return NOTHING
        # The ISR is taken as a union: the leader may count more replicas than are stored, since it
        # waits for those that it adds. A replica that only the stored ISR has must be counted as
        # well.
        stored = state.stored(event.process, body.leader_epoch)
        isr = body.isr
        leader = state.leaders.get(body.leader_epoch, -1)
        if stored is not None:
            if stored.isr != isr:
                isr = (*isr, *(one for one in stored.isr if one not in isr))
            leader = stored.leader if stored.leader >= 0 else leader
        # The leader is alone in its ISR, and nobody else has to have the write.
        if len(isr) < 2:
            return NOTHING
        known = state.followers(isr, leader)
        lost = state.lost(event.process, end)
        excused = [process for process in known if process in lost] if lost else []
        # Three proofs, from the surest on. A named follower has not stored the write; or fewer
        # processes have it, whoever they are, than the ISR has followers; or the leader's own words
        # contradict its answer.
        behind = _behind(known, end, lost)
        if behind:
            broken = _without(event, body, end, behind, known[behind])
            return self._by_stored(answers, event, body, stored, broken)
        enough = leader < 0 or state.enough(event.process, leader, isr, end)
        if stored is not None and not enough:
            reached = state.reached_of(event.process, leader, isr, stored.replicas, end)
            # Which process is which replica is the leader's word alone. A count needs no names: it
            # holds for a leader that names a wrong process, too.
            if reached.too_few:
                broken = _too_few(event, body, end, reached.most, reached.needed)
                return self._by_stored(answers, event, body, stored, broken)
            if reached.most < len(reached.needed):
                excused = list(reached.lost)
        if body.high_watermark < end and min(body.ends, default=end) < end:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} acknowledged acks=all of {partition} up to offset {offset} knowing its "
                "ISR {isr} only to reach {ends}",
                process=process_scope(event.process),
                partition=partition_of(body),
                offset=end,
                isr=tuple(body.isr),
                ends=body.ends,
            )
            return (broken,)
        if excused:
            return [_excused(event, body, one, state.ends[one], lost[one]) for one in excused]
        # A duplicate is acknowledged for what was stored long ago: it had to wait for nobody.
        if body.duplicate:
            return NOTHING
        evidence = Evidence.PEER if len(known) == len(isr) - 1 else Evidence.SELF
        return (Exercised(event.ref, evidence),)

    @staticmethod
    def _by_stored(
        answers: _Answers,
        event: Event,
        body: ProduceAnswered,
        stored: PartitionCommitted | None,
        broken: Violated,
    ) -> Findings:
        """What is violated, maybe for members only that the leader does not name."""
        if stored is None or {*stored.isr} <= {*body.isr}:
            return (broken,)
        return answers.overtaken.unless(event.process, body.leader_epoch, broken)

    def end(self, state: _Answers, end: RunEnd) -> Findings:
        return state.overtaken.at_end()

    @on(ProduceCompleted)
    def _completed(self, answers: _Answers, event: Event, body: ProduceCompleted) -> Findings:
        """A client has an acknowledgement, whether or not a leader has recorded an answer."""
        state = answers.stored
        newest = state.newest
        if body.outcome != "ok" or body.acks != -1 or body.offset < 0 or newest is None:
            return NOTHING
        process = state.terms.get(newest, "")
        stored = state.stored(process, newest)
        if not process or stored is None or stored.leader < 0:
            return NOTHING
        if state.enough(process, stored.leader, stored.isr, body.offset + 1):
            return NOTHING
        reached = state.reached(process, stored, body.offset + 1)
        if not reached.too_few:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{client} has an acknowledgement with acks=all of {partition} at offset {offset}, "
            "while no more than {most} of the {needed} followers in the ISR had stored it",
            client=process_scope(event.process),
            partition=partition_of(body),
            offset=body.offset,
            most=reached.most,
            needed=len(reached.needed),
            followers=tuple(map(broker_of, sorted(reached.needed))),
        )
        return (broken,)
