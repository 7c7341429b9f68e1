"""One history of a run, made of the events that each process wrote; it names missing events.

The problem. Rules judge one sequence of events, in which each cause comes before its effects. But
each process writes a file of its own, times alone may put an effect before its cause, and processes
are killed in the middle of a line. A history that silently lacks an event would make rules accuse:
a message that no node has stored may have been stored in a line that is lost.

The order (`in_order`), strongest first:

1. A process's events come in the order of their numbers, whatever their times. So an event is never
   sorted before an earlier one of its process (`_next`).
2. An event waits while its cause is still to come from a process that has more events. A cause that
   was never written delays nothing: that process has no more events, or a later number has passed.
   If causes form a circle, time alone decides.
3. `at_ns`, which is one clock for all processes of the host.
4. The end of a process comes after what happened at the same instant. A simulation may start a
   process and kill it at one time; if its end came first, the history would say that its end is
   missing.

A cause that names a request needs no rule: the request is recorded before it is sent, so its time
is smaller. `merge` streams: memory holds one event for each process, so a million events take some
tens of seconds.

What is missing (`Examiner`) is found in the same pass, and again in each `read`: skipped numbers,
lines that are not events, processes without a recorded end, what an observer reports as missed and
no disk has supplied, a run without an end. A rule must not pass on such a history. If only events
of one kind are missing, that is a gap, and leaves open only the rules that read the kind.

Two cases to know:

* A history that was read during its run is made again once events came since.
* The damage that merging found in events files is kept beside the history (damage.json): a line
  that is torn or no event never reaches the history, so a second reading would find nothing wrong.

What is not done. No event is repaired, dropped or moved in time, and an event of an unknown kind is
kept as it was written. Nothing is judged.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, final

import msgspec

from fencepost.events import (
    Cause,
    Codec,
    Event,
    EvidenceMissed,
    EvidenceSupplied,
    LinkFailed,
    NodeStopped,
    ProcessExited,
    ProcessLeft,
    ProcessSpawned,
    RunEnded,
)
from fencepost.events.traits import by_harness
from fencepost.history import files
from fencepost.history.files import write_whole
from fencepost.history.run_end import DISKS, HARNESS, NEVER_NS, RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.history.stalls import Stalls
from fencepost.model.disk import written_to
from fencepost.model.errors import UsageError

_NAMED_SINGLY = 10


class Written(NamedTuple):
    """An event and its line. The line is kept as it is, since its kind may be unknown."""

    event: Event
    line: bytes


class _Head(NamedTuple):
    """The next event of a source, ordered by time, then by the source's number. The end of a
    process is the last event of its instant: a simulation may start and kill it at one time."""

    at_ns: int
    """Its time, or that of the latest event before it in its source, if that is later."""
    ends: bool
    number: int
    """No two sources have the same, so comparisons never reach `written`, which has no order."""
    written: Written
    source: Iterator[Written]


@final
@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is missing in a history."""

    says: str
    since_ns: int = 0
    """The time of the earliest event that it may have taken; 0: not known."""


@final
@dataclass(slots=True)
class Examiner:
    """Finds what is missing in a history: a fold over its events in order."""

    damage: list[Damage] = field(default_factory=list)
    """What is missing. Readers of the files add to this same list."""
    completed: bool | None = None
    """What the run said of itself at its end; None: it said nothing, so it was killed."""
    cut_short_by: str = ""
    """What kept it from its planned end, as it said."""
    first_ns: int = NEVER_NS
    last_ns: int = 0
    expected: dict[str, int] = field(default_factory=dict)
    """process -> the node_seq its next event must have."""
    unended: dict[str, int] = field(default_factory=dict)
    """Processes that were seen and whose end was not, in order of appearance -> the time of the
    last event of each."""
    stalls: Stalls = field(default_factory=Stalls)
    gaps: dict[Cause, list[tuple[str, str]]] = field(default_factory=dict)
    """Event that reports evidence as missed -> the kinds, each with what is missing."""
    doubtful_ns: int = NEVER_NS
    """Since when a link may have failed without a fault."""

    def step(self, event: Event) -> None:
        """Applies one event."""
        process, seq = event.process, event.node_seq
        # 1. The numbers of its process: the first is 0, and each is one more than the last.
        due = self.expected.get(process)
        if due is None:
            due = 0
            # The harness records its own end as the run's (`RunEnded`). The disks are no process.
            if process not in (HARNESS, DISKS):
                self.unended[process] = event.at_ns
        elif process in self.unended:
            self.unended[process] = event.at_ns
        if seq != due:
            self.damage.append(Damage(_jump(process, due, seq)))
        # A number that is used twice is named once, and does not make all later ones jumps.
        self.expected[process] = max(due, seq + 1)
        self.first_ns = min(self.first_ns, event.at_ns)
        self.last_ns = max(self.last_ns, event.at_ns)
        self.stalls.take(event)
        if process != HARNESS and by_harness(type(event.body)):
            said = f"{process} wrote {event.kind}, which only the harness can know"
            self.damage.append(Damage(said, event.at_ns))
            return
        # 2. What the event says of the history itself.
        match event.body:
            case ProcessSpawned(started=started):
                # Also a process that never wrote an event has to end: it may have been killed
                # before its first.
                self.unended.setdefault(started, event.at_ns)
            case ProcessExited(ended=ended):
                self.unended.pop(ended, None)
            # It has no end in this run, and what it did until here is known.
            case ProcessLeft(left=left):
                self.unended.pop(left, None)
            # Its last event, in its own words: nothing of this process is missing behind it.
            case NodeStopped():
                self.unended.pop(process, None)
            # Nobody knows which kinds are missing, so every rule may lack something.
            case EvidenceMissed(what=what, kinds=()):
                self.damage.append(Damage(what))
            case EvidenceMissed(what=what, kinds=kinds):
                self.gaps[event.ref] = [(kind, what) for kind in kinds]
            case EvidenceSupplied():
                if event.cause is not None:
                    self.gaps.pop(event.cause, None)
            case LinkFailed(since_ns=since_ns):
                self.damage.append(Damage(event.body.sentence(), since_ns))
                self.doubtful_ns = min(self.doubtful_ns, since_ns)
            case RunEnded(completed=completed, reason=reason):
                self.completed, self.cut_short_by = completed, reason

    def end(self) -> RunEnd:
        """What is missing in the whole history, after its last event."""
        damage = [*self.damage]
        damage += [
            Damage(f"how {process} ended is not recorded", since_ns)
            for process, since_ns in self.unended.items()
        ]
        if self.completed is None:
            damage.append(Damage("the run's end is not recorded", self.last_ns))
        return RunEnd(
            # Gaps are left out here: they concern only the rules that read the kind
            # (`RunEnd.as_read`).
            complete=self.completed is True and not damage,
            ended_at_ns=self.last_ns,
            damage=tuple(one.says for one in damage),
            stalls=tuple(self.stalls.found),
            gaps=tuple(gap for gaps in self.gaps.values() for gap in gaps),
            doubtful_from_ns=self.doubtful_ns,
            began_at_ns=min(self.first_ns, self.last_ns),
            cut_short_by=self.cut_short_by,
            lost_from_ns=min((one.since_ns for one in damage), default=NEVER_NS),
        )


def _jump(process: str, due: int, seq: int) -> str:
    if seq < due:
        return f"{process} numbers an event {seq} after {due - 1}"
    lost = seq - due
    words = "an event is" if lost == 1 else f"{lost} events are"
    return f"{process}: {words} missing before number {seq}"


@final
class Reading:
    """The whole events of a history, read lazily and once; `end` is known after the last one."""

    def __init__(self, folder: RunFolder, codec: Codec) -> None:
        self._folder = folder
        self._codec = codec
        self._end: RunEnd | None = None

    def __iter__(self) -> Iterator[Event]:
        examiner = Examiner()
        lines = files.lines(self._folder.path, self._folder.history)
        for event, _ in _whole(lines, "the history", self._codec, examiner.damage):
            examiner.step(event)
            yield event
        # What merging found is added: lines that were torn are not in the history, so this pass
        # could not see them.
        known = {one.says for one in examiner.damage}
        examiner.damage += [Damage(one) for one in _damage(self._folder) if one not in known]
        self._end = examiner.end()

    @property
    def end(self) -> RunEnd:
        """The end of the run; raises RuntimeError before the last event was read."""
        if self._end is None:
            raise RuntimeError("the history has not been read to its end")
        return self._end


def read(folder: RunFolder, codec: Codec) -> Reading:
    """The history of a run. It is made first if there are only events files, and made again if
    events came since, because it was read during the run.

    Raises UsageError when the folder has neither.
    """
    if not is_merged(folder):
        merge(folder, codec)
    return Reading(folder, codec)


def is_merged(folder: RunFolder) -> bool:
    """Whether the history holds all events of the run; raises UsageError when there are neither a
    history nor events."""
    made = files.changed_ns(folder.path, folder.history)
    # By the times of change: an events file that is newer than the history has events that it
    # lacks. Equal times count as merged, since the history is written after all that it was made
    # of.
    written = [files.changed_ns(folder.path, path) or 0 for path in event_files(folder)]
    if made is None and not folder.events.is_dir():
        raise UsageError(f"{folder.path} holds no history")
    return made is not None and max(written, default=0) <= made


def merge(folder: RunFolder, codec: Codec) -> RunEnd:
    """Writes history.ndjson (whole or not at all) and damage.json; returns the end of the run."""
    examiner = Examiner()
    # The name includes this process: two workers of a report may both find that the history must be
    # made again.
    beside = folder.history.with_name(f".{folder.history.name}.{os.getpid()}")
    # For the error of a full disk: the history has every line once.
    needed = sum(path.stat().st_size for path in event_files(folder))
    try:
        with written_to(folder.history, needed), files.created(beside) as out:
            for event, line in in_order(_sources(folder, codec, examiner.damage)):
                examiner.step(event)
                out.write(line)
        end = examiner.end()
        # Before the history is in place: a history without its damage would look whole. If this
        # process ends in between, there is no history, and it is made again.
        write_whole(
            folder.damage,
            msgspec.json.format(msgspec.json.encode([one.says for one in examiner.damage])),
        )
        beside.replace(folder.history)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return end


def so_far(folder: RunFolder, codec: Codec) -> Sequence[Event]:
    """Every whole event that the processes of a run have written so far, in order; the run may be
    over or not."""
    return [event for event, _ in in_order(_sources(folder, codec, []))]


def in_order(sources: Iterable[Iterable[Written]]) -> Iterator[Written]:
    """Merges the events of processes, one source each, into happens-before order.

    A source waits while the cause of its next event is still to come. A cause that its process
    never wrote delays nothing. If causes form a circle, time alone decides.
    """
    ready: list[_Head] = []  # a heap: the next event of each source that waits for nothing
    waiting: dict[str, list[_Head]] = {}  # process -> the events that wait for one of its own
    passed: dict[str, int] = {}  # process -> the number of its last event that is in order
    coming: set[str] = set()  # the processes with more events: no other one is waited for
    for number, source in enumerate(sources):
        head = _next(0, number, iter(source))
        if head is not None:
            heapq.heappush(ready, head)
            coming.add(head.written.event.process)
    # Each round gives out one event, except where the earliest has to wait for its cause.
    while ready or waiting:
        if ready:
            head = heapq.heappop(ready)
            cause = head.written.event.cause
            if (
                cause is not None
                and not cause.request
                and cause.process in coming
                # A larger number that passed shows as well that the cause was never written, or has
                # passed.
                and passed.get(cause.process, -1) < cause.seq
            ):
                # Its source waits with it, since a process's events keep their order.
                waiting.setdefault(cause.process, []).append(head)
                continue
        else:
            # All wait for each other: the causes form a circle, which no clock can resolve. The
            # earliest goes on.
            head = _take_earliest(waiting)
        yield head.written
        process = head.written.event.process
        passed[process] = max(passed.get(process, -1), head.written.event.node_seq)
        following = _next(head.at_ns, head.number, head.source)
        if following is None:
            # Nothing more comes from it: whoever waits for it waits no longer.
            coming.discard(process)
        else:
            heapq.heappush(ready, following)
        # All that waited for this process try again: some wait on, if their causes come later.
        for freed in waiting.pop(process, ()):
            heapq.heappush(ready, freed)


def _next(latest_ns: int, number: int, source: Iterator[Written]) -> _Head | None:
    """The next event of a source. Its sort time is never before that of the source's earlier
    events, since within a process the order of the numbers decides."""
    written = next(source, None)
    if written is None:
        return None
    ends = isinstance(written.event.body, ProcessExited)
    return _Head(max(latest_ns, written.event.at_ns), ends, number, written, source)


def _take_earliest(waiting: dict[str, list[_Head]]) -> _Head:
    head = min(head for group in waiting.values() for head in group)
    for wanted, group in list(waiting.items()):
        if head in group:
            group.remove(head)
            if not group:
                del waiting[wanted]
    return head


def _sources(folder: RunFolder, codec: Codec, damage: list[Damage]) -> list[Iterator[Written]]:
    return [
        _whole(files.lines(folder.path, path), path.stem, codec, damage)
        for path in event_files(folder)
    ]


def event_files(folder: RunFolder) -> Sequence[Path]:
    """The files of events, one for each process; none if there is no folder of them."""
    return files.listed(folder.path, folder.events, ".ndjson")


def _whole(
    lines: Iterable[bytes], name: str, codec: Codec, damage: list[Damage]
) -> Iterator[Written]:
    """The whole events among the lines. Lines that are not events are named in `damage`, only the
    first few one by one."""
    wrong = 0
    for number, line in enumerate(lines, 1):
        if not line.endswith(Codec.LINE_END):
            what = "ends in the middle of an event, in"
            # A line without an end is either the last, torn by a kill, or too long to be read.
            if len(line) >= files.MOST_LINE_BYTES:
                what = f"is read no further: more than {len(line)} bytes are in"
            damage.append(Damage(f"{name} {what} line {number}"))
            break
        try:
            event = codec.decode(line)
        except msgspec.DecodeError as why:
            wrong += 1
            if wrong <= _NAMED_SINGLY:
                damage.append(Damage(f"{name}, line {number} is not an event: {why}"))
        else:
            yield Written(event, line)
    if wrong > _NAMED_SINGLY:
        damage.append(Damage(f"{name}: {wrong - _NAMED_SINGLY} more lines are not events"))


def _damage(folder: RunFolder) -> list[str]:
    """What merging reported as missing, if that was recorded."""
    try:
        return files.decoded(files.content(folder.path, folder.damage), list[str])
    except (FileNotFoundError, msgspec.DecodeError):
        return []
