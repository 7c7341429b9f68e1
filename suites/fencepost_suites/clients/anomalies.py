"""The expectations of clients of any system: Jepsen's anomalies, under Jepsen's names.

Clients are their only evidence. If the final reading failed, findings that depend on it are
undecided. Without any reading, acknowledged writes cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    on,
    process_scope,
    violated,
)
from fencepost_kafka import Polled, ProduceCompleted, ReadCompleted, partition_of
from fencepost_suites.common.keys import by_partition, place_of

CLIENT = Evidence.CLIENT
ASKED_UNKNOWN = "it is not known when the reading asked for the end of the log"
RECOVERED = "AVAIL-recovered"
"""What cannot be read is undecided because the cluster has not recovered, if that is so."""


_Write = tuple[str, Event]
"""An acknowledged write: its operation, and its acknowledgement."""


@dataclass(slots=True)
class Unread:
    """The acknowledged writes of a partition that the current reading has not returned yet."""

    waiting: dict[int, tuple[_Write, ...]] = field(default_factory=dict)
    """offset -> the writes that were acknowledged there; at most one of them can be there."""
    unplaced: dict[str, _Write] = field(default_factory=dict)
    """operation -> the write, acknowledged without an offset, such as one that the broker knew."""
    early: dict[int, str] = field(default_factory=dict)
    """offset -> operation: read by the current reading before its acknowledgement was recorded."""
    top: int = -1
    """The highest offset that a consumer has got."""
    confirmed: bool = False
    """Whether the current reading has returned an acknowledged write."""
    below: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """The starts of logs that whole readings found -> how many acknowledged writes lay below, and
    the reading."""
    error: str = ""
    of: str = ""
    """The partition, by its name."""


@final
class LostWrite(Rule[Unread]):
    """JEPSEN-lost-write. A complete reading must return every acknowledged write below its end,
    with the content that was written. Of those that were acknowledged before the reading asked for
    the end of the log, it must also return each without an offset, and each whose offset a consumer
    had reached: one at the end of the log that no consumer got is JEPSEN-unseen. What lay below the
    start of the log is undecided: retention, or a client, may have deleted it."""

    clause = "JEPSEN-lost-write"
    keys = staticmethod(by_partition)

    def start(self, key: Key, shared: Shared) -> Unread:
        return Unread(of=place_of(key))

    @on(ProduceCompleted)
    def _produced(self, state: Unread, event: Event, body: ProduceCompleted) -> Findings:
        if body.acks == -1 and body.outcome == "ok":
            self.acknowledged(state, event, body)
        return NOTHING

    @staticmethod
    def acknowledged(state: Unread, event: Event, body: ProduceCompleted) -> None:
        """A write was acknowledged that a complete reading must return."""
        offset, operation = body.offset, body.operation
        # A reading may return a write before its acknowledgement is recorded: two processes write
        # the two events.
        shown = state.early.values() if offset < 0 else (state.early.get(offset),)
        if operation in shown:
            state.confirmed = True
            return
        if offset < 0:
            state.unplaced[operation] = (operation, event)
        else:
            state.waiting[offset] = (*state.waiting.get(offset, ()), (operation, event))

    @on(Polled)
    def polled(self, state: Unread, event: Event, body: Polled) -> Findings:
        """A consumer got messages; those of the final reading show what is there."""
        # A consumer shows only how far the log once went. What is in it at the end, the final
        # reading says.
        if not body.final:
            if body.offsets:
                state.top = max(state.top, body.offsets[-1])
            return NOTHING
        lost: list[tuple[int, _Write, str]] = []
        for offset, operation in zip(body.offsets, body.operations, strict=True):
            if state.unplaced.pop(operation, None) is not None:
                state.confirmed = True
            # Two writes may have been acknowledged at one offset, by two leaders. At most one of
            # them is there, and the other one is lost.
            known = state.waiting.pop(offset, ())
            if not known:
                state.early[offset] = operation
            for write in known:
                if write[0] == operation:
                    state.confirmed = True
                else:
                    lost.append((offset, write, operation))
        return _lost(event, body, lost)

    @on(ReadCompleted)
    def read(self, state: Unread, event: Event, body: ReadCompleted) -> Findings:
        """A reading ended."""
        state.early.clear()
        if body.outcome != "ok":
            state.error = body.error or "it did not complete"
            return NOTHING
        gone = [
            offset
            for offset, writes in sorted(state.waiting.items())
            # Below the end of the reading, it had to be returned. Beyond it, only if a consumer had
            # reached it and it was acknowledged before the reading asked for the end.
            if offset < body.end or (offset <= state.top and writes[0][1].at_ns < body.asked_ns)
        ]
        deleted = [offset for offset in gone if offset < body.start]
        if deleted:
            state.below[body.start] = sum(len(state.waiting.pop(o)) for o in deleted), event.ref
            gone = gone[len(deleted) :]
        owed = sorted(o for o, (_, at) in state.unplaced.items() if at.at_ns < body.asked_ns)
        found = [
            *_lost(event, body, [(o, w, None) for o in gone for w in state.waiting.pop(o)]),
            *_lost(event, body, [(-1, state.unplaced.pop(o), None) for o in owed]),
        ]
        if state.confirmed and not found:
            found.append(Exercised(event.ref, CLIENT))
        # Whether what is left was acknowledged before the reading asked for the end decides.
        asks = bool(state.unplaced) or any(offset <= state.top for offset in state.waiting)
        state.error = ASKED_UNKNOWN if asks and not body.asked_ns else ""
        state.confirmed = False
        return found

    def end(self, state: Unread, end: RunEnd) -> Findings:
        return (*self._left(state), *self._deleted(state))

    @staticmethod
    def _deleted(state: Unread) -> Iterator[Finding]:
        for start, (writes, read) in state.below.items():
            lack = Reason.of(
                "{writes} acknowledged writes of {partition} lie below the start of its log, "
                "{start}: they may have been deleted",
                writes=writes,
                partition=Scope("partition", state.of),
                start=start,
            )
            yield Undecided.since(lack, read)

    @staticmethod
    def _left(state: Unread) -> Findings:
        unread = len(state.waiting) + len(state.unplaced)
        # The cluster did not answer, so nothing is known of these writes. Without any reading,
        # nothing is said of them at all.
        if unread and state.error:
            lack = Reason.of(
                "{writes} acknowledged writes of {partition} could not be read back: {error}",
                writes=unread,
                partition=Scope("partition", str(state.of)),
                error=state.error,
            )
            return (Undecided.since(lack, follows=RECOVERED),)
        return NOTHING


def _lost(
    event: Event, body: Polled | ReadCompleted, lost: Sequence[tuple[int, _Write, str | None]]
) -> Findings:
    """One violation for the writes that an event shows to be lost, each with the operation that is
    in its place, if any is."""
    if not lost:
        return NOTHING
    offset, (operation, at), there = lost[0]
    last = f", up to offset {lost[-1][0]}" if offset >= 0 else ""
    others = f"; {len(lost) - 1} more are lost{last}" if len(lost) > 1 else ""
    broken = violated(
        event.ref,
        CLIENT,
        "{operation}, acknowledged at offset {offset} of {partition}, is lost: {shown}{others}"
        if offset >= 0
        else "{operation}, acknowledged without an offset of {partition}, is lost: {shown}{others}",
        (at.ref,),
        operation=operation,
        offset=offset,
        partition=partition_of(body),
        shown="the reading did not show it" if there is None else f"{there} is there",
        there=there or "",
        others=others,
        lost=len(lost),
        last_offset=lost[-1][0],
        client=process_scope(at.process),
        reader=process_scope(event.process),
    )
    return (broken,)


@dataclass(slots=True)
class _Unseen:
    """Acknowledged writes that no consumer has seen yet."""

    waiting: dict[int, tuple[str, Event]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    """operation -> where it waits, or did."""
    top: int = -1
    read_end: int = -1
    """The end of the last complete reading; -1 until there is one."""
    read: Cause | None = None
    """The event by which that reading ended."""
    before: set[int] = field(default_factory=set)
    """The waiting offsets that were acknowledged before that reading asked for its end."""
    seen: bool = False
    """Whether a consumer has seen an acknowledged write."""
    of: str = ""


@final
class Unseen(Rule[_Unseen]):
    """JEPSEN-unseen. A write that was acknowledged before the last complete reading asked for the
    end lies beyond it. The reading breaks the promise: until then, a consumer could still have seen
    the write."""

    clause = "JEPSEN-unseen"
    keys = staticmethod(by_partition)

    def start(self, key: Key, shared: Shared) -> _Unseen:
        return _Unseen(of=place_of(key))

    @on(ProduceCompleted)
    def _produced(self, state: _Unseen, event: Event, body: ProduceCompleted) -> Findings:
        offset = body.offset
        # Only an answer that is ok says where a write is.
        if offset > state.top and body.acks == -1 and body.outcome == "ok":
            state.waiting[offset] = (body.operation, event)
            state.offsets[body.operation] = offset
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Unseen, event: Event, body: Polled) -> Findings:
        offsets = body.offsets
        if offsets:
            state.top = max(state.top, offsets[-1])
            waiting = state.waiting
            for offset, operation in zip(offsets, body.operations, strict=False):
                if waiting.pop(offset, None) is not None:
                    state.seen = True
                # Seen, if not where it was acknowledged: that is JEPSEN-duplicate.
                elsewhere = state.offsets.pop(operation, offset)
                if elsewhere != offset:
                    waiting.pop(elsewhere, None)
        return NOTHING

    @on(ReadCompleted)
    def _read(self, state: _Unseen, event: Event, body: ReadCompleted) -> Findings:
        if body.outcome != "ok":
            return NOTHING
        # A write that is missing below the end is lost: that is JEPSEN-lost-write.
        state.waiting = {o: w for o, w in state.waiting.items() if o >= body.end}
        # What came after the end was asked for, the reading could not return.
        asked_ns = body.asked_ns or event.at_ns
        state.before = {o for o, (_, at) in state.waiting.items() if at.at_ns < asked_ns}
        state.read_end, state.read = body.end, event.ref
        seen = state.seen and not state.waiting
        return (Exercised(event.ref, CLIENT),) if seen else NOTHING

    def end(self, state: _Unseen, end: RunEnd) -> Findings:
        found: list[Finding] = []
        unseen = sorted(state.before & state.waiting.keys())
        if unseen and state.read is not None:
            found.append(_unseen(state, state.read, unseen))
        # Acknowledged after the last reading had asked: no reading could have returned them.
        late = len(state.waiting) - len(unseen)
        if late:
            lack = Reason.of(
                "nothing of {partition} was read after {writes} writes had been acknowledged",
                partition=Scope("partition", str(state.of)),
                writes=late,
            )
            found.append(Undecided.since(lack, follows=RECOVERED))
        return found


def _unseen(state: _Unseen, read: Cause, offsets: Sequence[int]) -> Violated:
    """One violation for all the writes that the reading lacks: they disappeared together."""
    (operation, first), (_, last) = state.waiting[offsets[0]], state.waiting[offsets[-1]]
    others = f"; {len(offsets) - 1} more were not, up to offset {offsets[-1]}"
    return violated(
        read,
        CLIENT,
        "{operation}, acknowledged at offset {offset} of {partition}, was never seen: the "
        "partition was read up to {read_end}{others}",
        (first.ref,) if first is last else (first.ref, last.ref),
        operation=operation,
        offset=offsets[0],
        partition=Scope("partition", state.of),
        read_end=state.read_end,
        client=process_scope(first.process),
        others=others if len(offsets) > 1 else "",
        unseen=len(offsets),
        last_offset=offsets[-1],
    )


@dataclass(slots=True)
class _Contents:
    at: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    """offset -> the operation first seen there, and the event that showed it."""
    got: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """The offsets that consumers received and no reading has returned yet: offset -> its last time
    and poll."""
    returned: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """The offsets that the current reading has returned so far, each with the time and the poll. A
    consumer that gets one of them after that, and before the reading ends, is not owed it a second
    time."""
    shown: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    """The same of the readings before, of failed ones, too: what they returned is owed to the
    next."""
    clashed: set[int] = field(default_factory=set)
    """The offsets at which two different messages were seen."""
    error: str = ""
    of: str = ""


@final
class InconsistentOffsets(Rule[_Contents]):
    """JEPSEN-inconsistent-offsets. A complete reading returns every message there is, so a
    message that a consumer received and the reading lacks is gone, at the end of the log too.
    Consecutive offsets are one violation. Exercised by each poll that returns an offset which
    was seen before."""

    clause = "JEPSEN-inconsistent-offsets"
    keys = staticmethod(by_partition)

    def start(self, key: Key, shared: Shared) -> _Contents:
        return _Contents(of=place_of(key))

    @on(ProduceCompleted)
    def _produced(self, state: _Contents, event: Event, body: ProduceCompleted) -> Findings:
        offset = body.offset
        # With fewer acks, a leader that is deposed may name an offset that the next one gives to
        # another message.
        if offset < 0 or body.acks != -1 or body.outcome != "ok":
            return NOTHING
        operation = body.operation
        if state.at.setdefault(offset, (operation, event.ref))[0] != operation:
            return _two(event, body, state, offset, operation)
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Contents, event: Event, body: Polled) -> Findings:
        if body.final:
            state.returned.update(dict.fromkeys(body.offsets, (event.at_ns, event.ref)))
            for offset in body.offsets if state.got else ():
                state.got.pop(offset, None)
        else:
            returned = state.returned.keys()
            got = body.offsets if returned.isdisjoint(body.offsets) else {*body.offsets} - returned
            state.got.update(dict.fromkeys(got, (event.at_ns, event.ref)))
        found: list[Finding] = []
        at, ref = state.at, event.ref
        before, agree = len(at), True
        for offset, operation in zip(body.offsets, body.operations, strict=True):
            if at.setdefault(offset, (operation, ref))[0] != operation:
                agree = False
                found += _two(event, body, state, offset, operation)
        if agree and len(at) - before < len(body.offsets):
            return (Exercised(event.ref, CLIENT),)
        return found

    @on(ReadCompleted)
    def _read(self, state: _Contents, event: Event, body: ReadCompleted) -> Findings:
        """Finds the missing messages: offsets that were received before the reading asked for the
        end of the log and are not below that end."""
        returned, state.returned = state.returned, {}
        if body.outcome != "ok":
            state.shown |= returned
            state.error = body.error or "it did not complete"
            return NOTHING
        got = {o: seen for o, seen in state.shown.items() if o not in returned} | state.got
        later = {
            offset: (at_ns, poll)
            for offset, (at_ns, poll) in got.items()
            if offset >= body.end and at_ns >= body.asked_ns
        }
        # Below the start of the log, retention has deleted.
        gone = [o for o in sorted(got) if o not in later and o >= body.start]
        found = (_gone(event, body, gone, (state.at, got)),) if gone else NOTHING
        state.got, state.shown = later, returned
        state.error = ASKED_UNKNOWN if later and not body.asked_ns else ""
        return found

    def end(self, state: _Contents, end: RunEnd) -> Findings:
        if state.got and state.error:
            lack = Reason.of(
                "{messages} messages of {partition} were not read again: {error}",
                messages=len(state.got),
                partition=Scope("partition", str(state.of)),
                error=state.error,
            )
            return (Undecided.since(lack, follows=RECOVERED),)
        return NOTHING


def _two(
    event: Event, body: Polled | ProduceCompleted, state: _Contents, offset: int, operation: str
) -> Findings:
    """A violation for a second message at this offset, unless this offset or the one right before
    it was reported already."""
    # Logs that diverge do so for many offsets: one violation for the run of them.
    known = offset in state.clashed or offset - 1 in state.clashed
    state.clashed.add(offset)
    if known:
        return NOTHING
    other, seen = state.at[offset]
    broken = violated(
        event.ref,
        CLIENT,
        "offset {offset} of {partition} held {other_operation}, and {operation} according to "
        "{client}",
        (seen,),
        offset=offset,
        partition=partition_of(body),
        other_operation=other,
        operation=operation,
        client=process_scope(event.process),
    )
    return (broken,)


def _gone(
    event: Event,
    body: ReadCompleted,
    offsets: Sequence[int],
    seen: tuple[Mapping[int, tuple[str, Cause]], Mapping[int, tuple[int, Cause]]],
) -> Violated:
    """One violation for all the missing messages: they disappeared together. `seen` are the
    messages by their offsets, and the polls that showed the missing ones."""
    first = offsets[0]
    contents, polls = seen
    _, poll = polls[first]
    others = f"; {len(offsets) - 1} more are gone, up to offset {offsets[-1]}"
    return violated(
        event.ref,
        CLIENT,
        "offset {offset} of {partition} held {operation} when {client} read it, and nothing when "
        "{reader} read everything up to {read_end}{others}",
        (poll,),
        offset=first,
        partition=partition_of(body),
        operation=contents[first][0],
        client=process_scope(poll.process),
        reader=process_scope(event.process),
        read_end=body.end,
        others=others if len(offsets) > 1 else "",
        gone=len(offsets),
        last_offset=offsets[-1],
    )
