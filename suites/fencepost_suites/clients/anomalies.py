"""The expectations of clients of any system: Jepsen's anomalies, under Jepsen's names.

Clients are their only evidence. If the final reading failed, findings that depend on it are
undecided. Without any reading, acknowledged writes cannot be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

from msgspec import Struct

from fencepost import Cause, Event, Evidence, Exercised, Finding, Key, RunEnd, Undecided, Violated
from fencepost_kafka import (
    ConsumerPositioned,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
    ReadCompleted,
)
from fencepost_suites.common.keys import NOTHING, by_partition

CLIENT = Evidence.CLIENT


class _Write(Struct, frozen=True):
    """An acknowledged write, and the process, number and time of its acknowledgement."""

    operation: str
    process: str
    seq: int
    at_ns: int


@dataclass(slots=True)
class Unread:
    """The acknowledged writes of a partition that the current reading has not returned yet."""

    waiting: dict[int, list[_Write]] = field(default_factory=dict)
    """offset -> the writes that were acknowledged there; at most one of them can be there."""
    unplaced: dict[str, _Write] = field(default_factory=dict)
    """operation -> the write, acknowledged without an offset, such as one that the broker knew."""
    early: dict[int, str] = field(default_factory=dict)
    """offset -> operation: read by the current reading before its acknowledgement was recorded."""
    confirmed: bool = False
    """Whether the current reading has returned an acknowledged write."""
    error: str = ""


@final
class LostWrite(Struct, frozen=True):
    """JEPSEN-lost-write. A complete reading must return every acknowledged write below its end,
    with the content that was written; and every write that was acknowledged without an offset
    before the reading asked for the end of the log."""

    clause: str = "JEPSEN-lost-write"
    kinds: frozenset[type[Struct]] = frozenset({ProduceCompleted, Polled, ReadCompleted})
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> Unread:
        return Unread()

    def step(self, state: Unread, event: Event) -> tuple[Unread, Sequence[Finding]]:
        body = event.body
        if isinstance(body, ProduceCompleted):
            if body.acks != -1 or body.outcome != "ok":
                return state, NOTHING
            write = _Write(body.operation, event.process, event.node_seq, event.at_ns)
            shown = state.early.values() if body.offset < 0 else (state.early.get(body.offset),)
            if body.operation in shown:
                state.confirmed = True
            elif body.offset < 0:
                state.unplaced[body.operation] = write
            else:
                state.waiting.setdefault(body.offset, []).append(write)
        elif isinstance(body, Polled):
            if body.final:
                return state, self._read(state, event, body)
        elif isinstance(body, ReadCompleted):
            return state, self._completed(state, event, body)
        return state, NOTHING

    @staticmethod
    def _read(state: Unread, event: Event, body: Polled) -> Sequence[Finding]:
        lost: list[tuple[int, _Write, str]] = []
        for offset, operation in zip(body.offsets, body.operations, strict=True):
            if state.unplaced.pop(operation, None) is not None:
                state.confirmed = True
            known = state.waiting.pop(offset, ())
            if not known:
                state.early[offset] = operation
            for write in known:
                if write.operation == operation:
                    state.confirmed = True
                else:
                    lost.append((offset, write, f"{operation} is there"))
        return _lost(event, body, lost)

    @staticmethod
    def _completed(state: Unread, event: Event, body: ReadCompleted) -> Sequence[Finding]:
        state.early.clear()
        if body.outcome != "ok":
            state.error = body.error or "it did not complete"
            return NOTHING
        gone = [o for o in sorted(state.waiting) if o < body.end]
        owed = sorted(o for o, write in state.unplaced.items() if write.at_ns < body.asked_ns)
        unshown = "the reading did not show it"
        found = [
            *_lost(event, body, [(o, w, unshown) for o in gone for w in state.waiting.pop(o)]),
            *_lost(event, body, [(-1, state.unplaced.pop(o), unshown) for o in owed]),
        ]
        if state.confirmed and not found:
            found.append(Exercised(event.ref, CLIENT))
        state.error, state.confirmed = "", False
        return found

    def end(self, state: Unread, end: RunEnd) -> Sequence[Finding]:
        unread = len(state.waiting) + len(state.unplaced)
        if unread and state.error:
            message = f"{unread} acknowledged writes could not be read back: {state.error}"
            return (Undecided(message),)
        return NOTHING


def _lost(
    event: Event, body: Polled | ReadCompleted, lost: Sequence[tuple[int, _Write, str]]
) -> Sequence[Finding]:
    """One violation for the writes that an event shows to be lost, each with what shows it."""
    if not lost:
        return NOTHING
    offset, write, what = lost[0]
    at = f"at offset {offset}" if offset >= 0 else "without an offset"
    last = f", up to offset {lost[-1][0]}" if offset >= 0 else ""
    others = f"; {len(lost) - 1} more are lost{last}" if len(lost) > 1 else ""
    message = (
        f"{write.operation}, acknowledged {at} of {body.topic}-{body.partition}, is lost: "
        f"{what}{others}"
    )
    return (Violated(event.ref, CLIENT, message, (Cause(write.process, write.seq),)),)


@dataclass(slots=True)
class _Unseen:
    """Acknowledged writes that no consumer has seen yet."""

    waiting: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    top: int = -1
    read_end: int = -1
    """The end of the last complete reading; -1 until there is one."""
    before: set[int] = field(default_factory=set)
    """The waiting offsets that were acknowledged before that reading."""
    seen: bool = False
    """Whether a consumer has seen an acknowledged write."""


@final
class Unseen(Struct, frozen=True):
    """JEPSEN-unseen. A write that was acknowledged before the last complete reading lies beyond its
    end."""

    clause: str = "JEPSEN-unseen"
    kinds: frozenset[type[Struct]] = frozenset({ProduceCompleted, Polled, ReadCompleted})
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Unseen:
        return _Unseen()

    def step(self, state: _Unseen, event: Event) -> tuple[_Unseen, Sequence[Finding]]:
        body = event.body
        if isinstance(body, ProduceCompleted):
            if body.offset > state.top and body.acks == -1:
                state.waiting[body.offset] = (body.operation, event.ref)
        elif isinstance(body, Polled):
            if body.offsets:
                state.top = max(state.top, body.offsets[-1])
                waiting = state.waiting
                for offset in body.offsets:
                    if waiting.pop(offset, None) is not None:
                        state.seen = True
        elif isinstance(body, ReadCompleted) and body.outcome == "ok":
            # A write that is missing below the end is lost: that is JEPSEN-lost-write.
            state.waiting = {o: w for o, w in state.waiting.items() if o >= body.end}
            state.read_end, state.before = body.end, set(state.waiting)
            if state.seen and not state.waiting:
                return state, (Exercised(event.ref, CLIENT),)
        return state, NOTHING

    def end(self, state: _Unseen, end: RunEnd) -> Sequence[Finding]:
        found: list[Finding] = []
        for offset, (operation, ref) in state.waiting.items():
            if offset in state.before:
                message = (
                    f"{operation}, acknowledged at offset {offset}, was never seen: the partition "
                    f"was read up to {state.read_end}"
                )
                found.append(Violated(ref, CLIENT, message))
        late = len(state.waiting) - len(found)
        if late:
            message = f"nothing was read after {late} writes had been acknowledged"
            found.append(Undecided(message))
        return found


@dataclass(slots=True)
class _Contents:
    at: dict[int, str] = field(default_factory=dict)
    """offset -> the operation first seen there."""
    got: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """The offsets that consumers received and no reading has returned yet: offset -> its last time
    and poll."""
    clashed: set[int] = field(default_factory=set)
    """The offsets at which two different messages were seen."""
    error: str = ""


@final
class InconsistentOffsets(Struct, frozen=True):
    """JEPSEN-inconsistent-offsets. A complete reading returns every message there is, so a
    message that a consumer received and the reading lacks is gone, at the end of the log too.
    Consecutive offsets are one violation. Exercised by each poll that returns an offset which
    was seen before."""

    clause: str = "JEPSEN-inconsistent-offsets"
    kinds: frozenset[type[Struct]] = frozenset({ProduceCompleted, Polled, ReadCompleted})
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Contents:
        return _Contents()

    def step(self, state: _Contents, event: Event) -> tuple[_Contents, Sequence[Finding]]:
        body = event.body
        at = state.at
        if isinstance(body, ProduceCompleted):
            if body.acks != -1 or body.offset < 0:
                return state, NOTHING
            if at.setdefault(body.offset, body.operation) != body.operation:
                return state, _two(event, body, state, body.offset, body.operation)
        elif isinstance(body, Polled):
            return state, self._polled(state, event, body)
        elif isinstance(body, ReadCompleted):
            if body.outcome != "ok":
                state.error = body.error or "it did not complete"
                return state, NOTHING
            return state, self._read(state, event, body)
        return state, NOTHING

    @staticmethod
    def _polled(state: _Contents, event: Event, body: Polled) -> Sequence[Finding]:
        if not body.final:
            state.got.update(dict.fromkeys(body.offsets, (event.at_ns, event.ref)))
        elif state.got:
            for offset in body.offsets:
                state.got.pop(offset, None)
        found: list[Finding] = []
        at = state.at
        before, agree = len(at), True
        for offset, operation in zip(body.offsets, body.operations, strict=True):
            if at.setdefault(offset, operation) != operation:
                agree = False
                found += _two(event, body, state, offset, operation)
        if agree and len(at) - before < len(body.offsets):
            return (Exercised(event.ref, CLIENT),)
        return found

    @staticmethod
    def _read(state: _Contents, event: Event, body: ReadCompleted) -> Sequence[Finding]:
        """Finds the missing messages: offsets that were received before the reading asked for the
        end of the log and are not below that end."""
        later = {
            offset: (at_ns, poll)
            for offset, (at_ns, poll) in state.got.items()
            if offset >= body.end and at_ns >= body.asked_ns
        }
        gone = [o for o in sorted(state.got) if o not in later and o >= body.start]
        found = (_gone(event, body, gone, state),) if gone else NOTHING
        state.got, state.error = later, ""
        return found

    def end(self, state: _Contents, end: RunEnd) -> Sequence[Finding]:
        if state.got and state.error:
            message = f"{len(state.got)} messages were not read again: {state.error}"
            return (Undecided(message),)
        return NOTHING


def _two(
    event: Event, body: Polled | ProduceCompleted, state: _Contents, offset: int, operation: str
) -> Sequence[Finding]:
    """A violation for a second message at this offset, unless this offset or the one right before
    it was reported already."""
    known = offset in state.clashed or offset - 1 in state.clashed
    state.clashed.add(offset)
    if known:
        return NOTHING
    message = (
        f"offset {offset} of {body.topic}-{body.partition} held {state.at[offset]}, and "
        f"{operation} according to {event.process}"
    )
    return (Violated(event.ref, CLIENT, message),)


def _gone(event: Event, body: ReadCompleted, offsets: Sequence[int], state: _Contents) -> Violated:
    """One violation for all the missing messages: they disappeared together."""
    first = offsets[0]
    _, poll = state.got[first]
    others = f"; {len(offsets) - 1} more are gone, up to offset {offsets[-1]}"
    message = (
        f"offset {first} of {body.topic}-{body.partition} held {state.at[first]} when "
        f"{poll.process} read it, and nothing when {event.process} read everything up to {body.end}"
        f"{others if len(offsets) > 1 else ''}"
    )
    return Violated(event.ref, CLIENT, message, (poll,))


@dataclass(slots=True)
class _Position:
    last: int = -1
    ref: Cause | None = None


class _Refusal(Struct, frozen=True):
    """How a broker refused a consumer's offset as out of range, and the committed metadata by which
    it had been deposed."""

    message: str
    because: tuple[Cause, ...] = ()


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
        if self.elected is not None and broker != self.leader >= 0:
            says += f", which broker {self.leader} had deposed,"
            because = (self.elected,)
        self.refused[consumer] = _Refusal(f": {says} refused that as out of range", because)


@final
class NonmonotonicPoll(Struct, frozen=True):
    """JEPSEN-nonmonotonic-poll. Offsets grow within a poll, too. A consumer that begins anew since
    a broker refused its offset as out of range was not sent elsewhere: messages that it had got are
    gone, or that broker has been deposed and lacks them. Exercised by every poll after a consumer's
    first."""

    clause: str = "JEPSEN-nonmonotonic-poll"
    kinds: frozenset[type[Struct]] = frozenset({Polled, ConsumerPositioned, PartitionCommitted})
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Positions:
        return _Positions()

    def step(self, state: _Positions, event: Event) -> tuple[_Positions, Sequence[Finding]]:
        body = event.body
        if isinstance(body, PartitionCommitted):
            state.commit(event, body)
        elif isinstance(body, ConsumerPositioned) and body.out_of_range:
            state.refuse(event.process, body.refused_by)
        elif isinstance(body, ConsumerPositioned):
            state.of.pop(event.process, None)
            state.refused.pop(event.process, None)
        if not isinstance(body, Polled) or not body.offsets:
            return state, NOTHING
        offsets = body.offsets
        known = state.of.get(event.process, _Position())
        refused = state.refused.pop(event.process, _Refusal(""))
        before, because = known.last, known.ref
        state.of[event.process] = _Position(offsets[-1], event.ref)
        back = next(((a, b) for a, b in pairwise((before, *offsets)) if b <= a), None)
        if back is not None:
            got, then = back
            message = (
                f"{event.process} got offset {then} of {body.topic}-{body.partition} after "
                f"{got}{refused.message}"
            )
            refs = () if because is None else (because,)
            return state, (Violated(event.ref, CLIENT, message, (*refs, *refused.because)),)
        return state, (Exercised(event.ref, CLIENT),) if before >= 0 else NOTHING

    def end(self, state: _Positions, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Skips:
    """The next offset of each consumer, and the offsets it skipped that were not seen since."""

    next: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    """consumer -> the offset at which it was when a broker refused it as out of range."""
    gaps: list[tuple[int, int, str, Cause]] = field(default_factory=list)


@final
class PollSkip(Struct, frozen=True):
    """JEPSEN-poll-skip. A skipped offset counts once any reader finds a message there, at the
    latest the final reading. Skipped offsets without a message are no violation. A consumer whose
    offset was out of range, and that goes on beyond it, has skipped what is between."""

    clause: str = "JEPSEN-poll-skip"
    kinds: frozenset[type[Struct]] = frozenset({Polled, ConsumerPositioned, ReadCompleted})
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Skips:
        return _Skips()

    def step(self, state: _Skips, event: Event) -> tuple[_Skips, Sequence[Finding]]:
        body = event.body
        if isinstance(body, Polled):
            return state, self._polled(state, event, body)
        if isinstance(body, ConsumerPositioned):
            was = state.next.pop(event.process, None)
            state.refused.pop(event.process, None)
            if body.offset >= 0:
                state.next[event.process] = body.offset
            if body.out_of_range and was is not None:
                state.refused[event.process] = was
        elif isinstance(body, ReadCompleted) and body.outcome == "ok":
            state.gaps.clear()
        return state, NOTHING

    @staticmethod
    def _polled(state: _Skips, event: Event, body: Polled) -> Sequence[Finding]:
        offsets = body.offsets
        if not offsets:
            return NOTHING
        found = _met(state, body) if state.gaps else []
        due = state.next.get(event.process)
        refused = state.refused.pop(event.process, offsets[0])
        if refused < offsets[0]:
            due = refused
        state.next[event.process] = offsets[-1] + 1
        begins = offsets[0] if due is None else due
        if offsets[-1] - begins + 1 != len(offsets):
            for a, b in pairwise((begins - 1, *offsets)):
                if b > a + 1:
                    state.gaps.append((a + 1, b, event.process, event.ref))
        elif due is not None and not found:
            return (Exercised(event.ref, CLIENT),)
        return found

    def end(self, state: _Skips, end: RunEnd) -> Sequence[Finding]:
        if not state.gaps:
            return NOTHING
        start, stop, process, ref = state.gaps[0]
        message = f"{process} jumped from {start} to {stop}, and nothing was read afterwards"
        return (Undecided(message, ref),)


def _met(state: _Skips, body: Polled) -> list[Finding]:
    """The skipped ranges in which a message is found now; each is reported once."""
    found: list[Finding] = []
    kept: list[tuple[int, int, str, Cause]] = []
    for start, stop, process, ref in state.gaps:
        there = next((o for o in body.offsets if start <= o < stop), None)
        if there is None:
            kept.append((start, stop, process, ref))
            continue
        message = (
            f"{process} got offset {stop} of {body.topic}-{body.partition} next after {start - 1}, "
            f"though there is a message at {there}"
        )
        found.append(Violated(ref, CLIENT, message))
    state.gaps = kept
    return found
