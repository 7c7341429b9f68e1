"""The order of the offsets that a consumer gets (Jepsen's anomalies)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Facts,
    Finding,
    Findings,
    Key,
    Reason,
    Rule,
    RunEnd,
    Scope,
    Shared,
    Undecided,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    ConsumerPositioned,
    PartitionCommitted,
    Polled,
    ReadCompleted,
    broker_of,
    partition_of,
)
from fencepost_suites.clients.anomalies import RECOVERED
from fencepost_suites.common.keys import by_partition, place_of

CLIENT = Evidence.CLIENT
_BEGINNING = -2
"""The offset of a consumer that was sent to the beginning of the log."""


@dataclass(slots=True)
class _Position:
    last: int = -1
    ref: Cause | None = None


class _Refusal(Struct, frozen=True):
    """How a broker refused a consumer's offset as out of range, and the committed metadata by which
    it had been deposed."""

    message: str
    because: tuple[Cause, ...] = ()
    facts: Facts = {}


@dataclass(slots=True)
class _Positions:
    """The positions of the consumers of a partition, and its leader."""

    of: dict[str, _Position] = field(default_factory=dict)
    refused: dict[str, _Refusal] = field(default_factory=dict)
    """consumer -> the refusal of its offset since its last poll."""
    leader: int = -1
    elected: Cause | None = None
    """The committed metadata by which the leader leads."""
    record: int = -1
    """The offset of the newest committed metadata."""

    def commit(self, event: Event, body: PartitionCommitted) -> None:
        """Takes the leader from committed metadata, if these are newer."""
        if body.offset <= self.record:
            return
        if body.leader != self.leader:
            self.leader, self.elected = body.leader, event.ref
        self.record = body.offset

    def refuse(self, consumer: str, broker: int) -> None:
        """A broker refused the consumer's offset; one that has been deposed may lack messages."""
        if broker < 0:
            return
        says = f"broker {broker}"
        because: tuple[Cause, ...] = ()
        facts: Facts = {"broker": broker_of(broker)}
        if self.elected is not None and broker != self.leader >= 0:
            says += f", which broker {self.leader} had deposed,"
            because = (self.elected,)
            facts = {"former": broker_of(broker), "leader": broker_of(self.leader)}
        self.refused[consumer] = _Refusal(f": {says} refused that as out of range", because, facts)


@final
class NonmonotonicPoll(Rule[_Positions]):
    """JEPSEN-nonmonotonic-poll. Offsets grow within a poll, too. A consumer that begins anew since
    a broker refused its offset as out of range was not sent elsewhere: messages that it had got are
    gone, or that broker has been deposed and lacks them. Exercised by every poll after a consumer's
    first."""

    clause = "JEPSEN-nonmonotonic-poll"
    keys = staticmethod(by_partition)
    state = _Positions

    @on(PartitionCommitted)
    def _committed(self, state: _Positions, event: Event, body: PartitionCommitted) -> Findings:
        state.commit(event, body)
        return NOTHING

    @on(ConsumerPositioned)
    def _positioned(self, state: _Positions, event: Event, body: ConsumerPositioned) -> Findings:
        # The consumer was sent nowhere by a test. It begins anew since a broker has no message at
        # its offset, so what it gets next is compared with what it had.
        if body.out_of_range:
            state.refuse(event.process, body.refused_by)
        else:
            state.of.pop(event.process, None)
            state.refused.pop(event.process, None)
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Positions, event: Event, body: Polled) -> Findings:
        offsets = body.offsets
        if not offsets:
            return NOTHING
        known = state.of.get(event.process, _Position())
        refused = state.refused.pop(event.process, _Refusal(""))
        before, because = known.last, known.ref
        state.of[event.process] = _Position(offsets[-1], event.ref)
        # Within the poll, and from the poll before to this one.
        back = next(((a, b) for a, b in pairwise((before, *offsets)) if b <= a), None)
        if back is not None:
            got, then = back
            refs = () if because is None else (because,)
            broken = violated(
                event.ref,
                CLIENT,
                "{client} got offset {offset} of {partition} after {other_offset}{refusal}",
                (*refs, *refused.because),
                client=process_scope(event.process),
                offset=then,
                partition=partition_of(body),
                other_offset=got,
                refusal=refused.message,
                **refused.facts,
            )
            return (broken,)
        return (Exercised(event.ref, CLIENT),) if before >= 0 else NOTHING


class _Gap(Struct, frozen=True):
    """Offsets that a consumer skipped: from `start` up to before `stop`, which it got by a poll."""

    start: int
    stop: int
    process: str
    poll: Cause


@dataclass(slots=True)
class _Skips:
    """The next offset of each consumer, and the offsets it skipped that were not seen since."""

    next: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    """The consumers that have got anything. One that leaves a partition and comes back may go on
    where another one of its group was, wherever it says that it is."""
    refused: dict[str, int] = field(default_factory=dict)
    """consumer -> the offset at which it was when a broker refused it as out of range."""
    gaps: dict[tuple[str, int], list[_Gap]] = field(default_factory=dict)
    """consumer, and how often it went back -> what it skipped since: in order, so that a poll is
    compared with the gaps that it may fill alone."""
    of: str = ""
    """The partition, by its name."""

    def skip(self, process: str, gap: _Gap) -> None:
        """A consumer skipped some offsets."""
        back = 0
        while (one := self.gaps.get((process, back))) and one[-1].stop > gap.start:
            back += 1
        self.gaps.setdefault((process, back), []).append(gap)

    def filled(self, offsets: Sequence[int]) -> Iterator[tuple[_Gap, int]]:
        """The gaps in which there is a message, each with one: they are reported once."""
        least, most = min(offsets), max(offsets)
        for key, gaps in list(self.gaps.items()):
            at = first = bisect_right(gaps, least, key=lambda gap: gap.stop)
            kept: list[_Gap] = []
            while at < len(gaps) and gaps[at].start <= most:
                gap = gaps[at]
                there = next((one for one in offsets if gap.start <= one < gap.stop), None)
                if there is None:
                    kept.append(gap)
                else:
                    yield gap, there
                at += 1
            if len(kept) < at - first:
                gaps[first:at] = kept
            if not gaps:
                del self.gaps[key]


@final
class PollSkip(Rule[_Skips]):
    """JEPSEN-poll-skip. A skipped offset counts once any reader finds a message there, at the
    latest the final reading. Skipped offsets without a message are no violation. A consumer whose
    offset was out of range, and that goes on beyond it, has skipped what is between."""

    clause = "JEPSEN-poll-skip"
    keys = staticmethod(by_partition)

    def start(self, key: Key, shared: Shared) -> _Skips:
        return _Skips(of=place_of(key))

    @on(ConsumerPositioned)
    def _positioned(self, state: _Skips, event: Event, body: ConsumerPositioned) -> Findings:
        was = state.next.pop(event.process, None)
        state.refused.pop(event.process, None)
        if body.offset >= 0:
            state.next[event.process] = body.offset
        elif body.offset == _BEGINNING and event.process not in state.begun:
            # Where the log begins, nobody has said yet. A message that a later reader finds before
            # the first one that it gets was there: the start of a log only grows.
            state.next[event.process] = 0
        if body.out_of_range and was is not None:
            state.refused[event.process] = was
        return NOTHING

    @on(ReadCompleted)
    def _read(self, state: _Skips, event: Event, body: ReadCompleted) -> Findings:
        if body.outcome == "ok":
            # A complete reading has returned all that there is. An offset at which it found nothing
            # has no message, such as that of a control batch.
            state.gaps.clear()
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Skips, event: Event, body: Polled) -> Findings:
        offsets = body.offsets
        if not offsets:
            return NOTHING
        # Gaps of any consumer: an offset may be skipped by one, and be read by another.
        found = _met(state, body) if state.gaps else []
        state.begun.add(event.process)
        due = state.next.get(event.process)
        refused = state.refused.pop(event.process, offsets[0])
        # It goes on beyond the offset that was refused: what is between was skipped, whatever
        # position it says it took.
        if refused < offsets[0]:
            due = refused
        state.next[event.process] = offsets[-1] + 1
        begins = offsets[0] if due is None else due
        if offsets[-1] - begins + 1 != len(offsets):
            for a, b in pairwise((begins - 1, *offsets)):
                if b > a + 1:
                    state.skip(event.process, _Gap(a + 1, b, event.process, event.ref))
        elif due is not None and not found:
            return (Exercised(event.ref, CLIENT),)
        return found

    def end(self, state: _Skips, end: RunEnd) -> Findings:
        if not state.gaps:
            return NOTHING
        (first, *_), *_ = state.gaps.values()
        skipped = Reason.of(
            "{client} jumped from {start} to {stop} of {partition}, and nothing was read "
            "afterwards",
            client=process_scope(first.process),
            start=first.start,
            stop=first.stop,
            partition=Scope("partition", str(state.of)),
        )
        return (Undecided.since(skipped, first.poll, RECOVERED),)


def _met(state: _Skips, body: Polled) -> list[Finding]:
    """The skipped ranges in which a message is found now."""
    return [
        violated(
            gap.poll,
            CLIENT,
            "{client} got offset {offset} of {partition} next after {other_offset}, though there "
            "is a message at {skipped}",
            client=process_scope(gap.process),
            offset=gap.stop,
            partition=partition_of(body),
            other_offset=gap.start - 1,
            skipped=there,
        )
        for gap, there in state.filled(body.offsets)
    ]
