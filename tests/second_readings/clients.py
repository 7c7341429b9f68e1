"""Second readings of what clients may expect (Jepsen's anomalies of a log), a partition at a time.

Nothing is said of a topic that was deleted: its name may have had two lives. And of a run in which
a disk was harmed, or an id was given to a second process, whatever would be violated is undecided:
a message that all disks lost is promised to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from msgspec import Struct

from fencepost import ProcessExited
from fencepost_kafka import (
    AdminCompleted,
    ConsumerPositioned,
    LeadershipEnded,
    LeadershipStarted,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
    ReadCompleted,
    ReplicaRemoved,
    TopicCommitted,
    TopicMarked,
)
from second_readings.reading import At, History, Word, reading, softened, undecided, violated

_CLIENTS = (ProduceInvoked, ProduceCompleted, ProducerEpochChanged, Polled, ConsumerPositioned)
_DELETIONS = (AdminCompleted, TopicCommitted, TopicMarked, LeadershipEnded, ReplicaRemoved)
KINDS: tuple[type[Struct], ...] = (*_CLIENTS, ReadCompleted, *_DELETIONS)


@dataclass
class Log:
    """What clients saw of one partition."""

    topic: str
    partition: int
    invoked: dict[str, At] = field(default_factory=dict)
    completed: list[At] = field(default_factory=list)
    epochs: list[At] = field(default_factory=list)
    moves: list[At] = field(default_factory=list)
    polls: list[At] = field(default_factory=list)
    readings: list[At] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def acknowledged(self, acks: int) -> Iterator[tuple[str, At]]:
        """The writes that are acknowledged, with the event that says so."""
        for at in self.completed:
            if at.body.outcome == "ok" and at.body.acks == acks:
                yield at.body.operation, at

    def seen(self, final: bool | None = None) -> Iterator[tuple[int, str, At]]:
        """What consumers got: offset, operation, poll; of the final reading or of others only."""
        for poll in self.polls:
            if final is None or poll.body.final is final:
                for offset, operation in zip(poll.body.offsets, poll.body.operations, strict=False):
                    yield offset, operation, poll

    @property
    def read(self) -> At | None:
        """The end of the last reading from start to end, if that read everything."""
        last = self.readings[-1] if self.readings else None
        return last if last is not None and last.body.outcome == "ok" else None

    @cached_property
    def _places(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for offset, operation, _ in self.seen():
            found.setdefault(operation, set()).add(offset)
        for operation, ack in self.acknowledged(-1):
            found.setdefault(operation, set()).add(ack.body.offset)
        return found

    def offsets(self, operation: str) -> set[int]:
        """Where a write lies, as its acknowledgements and consumers say."""
        return self._places.get(operation, set()) - {-1}

    def sent_again(self, operation: str) -> bool:
        """Whether it was in flight when its producer began a new epoch: then it was sent again, and
        no broker can know whether it was stored before (KIP-360)."""
        sent = self.invoked.get(operation)
        ended = [at.at_ns for at in self.completed if at.body.operation == operation]
        return sent is None or any(
            sent.process == epoch.process
            and sent.at_ns <= epoch.at_ns
            and (not ended or max(ended) >= epoch.body.since_ns)
            for epoch in self.epochs
        )


def logs(history: History) -> Sequence[Log]:
    found: dict[tuple[str, int], Log] = {}
    for at in history.of(*_CLIENTS, ReadCompleted):
        body = at.body
        log = found.setdefault((body.topic, body.partition), Log(body.topic, body.partition))
        match body:
            case ProduceInvoked():
                log.invoked[body.operation] = at
            case ProduceCompleted():
                log.completed.append(at)
            case ProducerEpochChanged():
                log.epochs.append(at)
            case ConsumerPositioned():
                log.moves.append(at)
            case Polled():
                log.polls.append(at)
            case ReadCompleted():
                log.readings.append(at)
    return list(found.values())


def deleted(history: History, topic: str) -> bool:
    """Whether anybody says that the topic was deleted."""
    for at in history.of(*_DELETIONS):
        match at.body:
            case AdminCompleted(api="delete_topic", subject=name) | TopicMarked(topic=name):
                gone = name == topic
            case TopicCommitted(topic=name, deleted=True):
                gone = name == topic
            case LeadershipEnded(topic=name, reason="deleted"):
                gone = name == topic
            case ReplicaRemoved(topic=name, reason="deleted"):
                gone = name == topic
            case _:
                gone = False
        if gone:
            return True
    return False


def of_logs(
    clause: str, *more: type[Struct]
) -> Callable[[Callable[[Log, History], Iterable[Word]]], None]:
    """Registers a reading of each log by itself, where that log was promised to be kept."""

    def register(words: Callable[[Log, History], Iterable[Word]]) -> None:
        def whole(history: History) -> Iterator[Word]:
            for log in logs(history):
                uncertain = history.lost_data or deleted(history, log.topic)
                found = words(log, history)
                yield from softened(found) if uncertain else found

        reading(clause, *KINDS, *more)(whole)

    return register


@of_logs("JEPSEN-lost-write")
def lost_write(log: Log, history: History) -> Iterator[Word]:
    """A write acknowledged with acks=all is in the partition when it is read from start to end
    after the run."""
    there = {operation for _, operation, _ in log.seen(final=True)}
    at = {(offset, operation) for offset, operation, _ in log.seen(final=True)}
    consumed = {operation for _, operation, _ in log.seen(final=False)}
    top = max((offset for offset, _, _ in log.seen()), default=-1)
    for operation, ack in log.acknowledged(-1):
        offset = ack.body.offset
        if log.read is None or log.read.body.end <= offset <= top:
            yield undecided(log.name, operation)
        if log.read is None:
            continue
        if log.read.body.start <= offset < log.read.body.end and (offset, operation) not in at:
            # One that is there, and not where it was acknowledged, is in the partition by the
            # sentence; but what was acknowledged at that offset is not there.
            yield (undecided if operation in there else violated)(log.name, operation, offset)
        elif offset >= log.read.body.end and operation not in there and operation in consumed:
            # The log once had it, as consumers know: it is not only unseen.
            asked = log.read.body.asked_ns or log.read.at_ns
            yield (violated if ack.at_ns < asked else undecided)(log.name, operation, offset)


@of_logs("JEPSEN-unseen")
def unseen(log: Log, history: History) -> Iterator[Word]:
    """A write acknowledged with acks=all has been seen by some consumer once everything was read;
    it is a lost write if it lies before the end of the last reading."""
    for operation, ack in log.acknowledged(-1):
        if log.read is None:
            yield undecided(log.name, operation)
            continue
        # Who saw it before it was sent, saw another one: JEPSEN-G1c-realtime says so.
        sent = log.invoked.get(operation)
        polls = [poll.place for _, one, poll in log.seen() if one == operation]
        later = [place for place in polls if sent is None or place > sent.place]
        if ack.body.offset >= log.read.body.end and not later:
            # What came after the end was asked for, the reading could not have seen.
            asked = log.read.body.asked_ns or log.read.at_ns
            word = violated if ack.at_ns < asked and not polls else undecided
            yield word(log.name, operation, ack.body.offset)


@of_logs("JEPSEN-duplicate")
def duplicate(log: Log, history: History) -> Iterator[Word]:
    """A message produced once by an idempotent producer is at one offset only."""
    for operation, sent in log.invoked.items():
        if len(log.offsets(operation)) < 2:
            continue
        # What was read before it was sent is not it: JEPSEN-G1c-realtime says so. But what is read
        # at that offset later is.
        polls = [(at, poll.place) for at, one, poll in log.seen() if one == operation]
        early = {at for at, place in polls if place < sent.place}
        found = log.offsets(operation) - (early - {at for at, place in polls if place > sent.place})
        if sent.body.idempotent and len(found) > 1:
            word = undecided if log.sent_again(operation) else violated
            yield word(log.name, operation, *sorted(found))


@of_logs("JEPSEN-inconsistent-offsets")
def inconsistent_offsets(log: Log, history: History) -> Iterator[Word]:
    """Every client that sees an offset sees the same message there, and a message that a consumer
    got is in the reading from start to end."""
    at: dict[int, set[str]] = {}
    for offset, operation, _ in log.seen():
        at.setdefault(offset, set()).add(operation)
    for operation, ack in log.acknowledged(-1):
        if ack.body.offset >= 0:
            at.setdefault(ack.body.offset, set()).add(operation)
    for offset, operations in at.items():
        if len(operations) > 1:
            yield violated(log.name, offset, *sorted(operations))
    finally_read = {offset for offset, _, _ in log.seen(final=True)}
    for offset, operation, poll in log.seen(final=False):
        if log.read is None or poll.at_ns >= (log.read.body.asked_ns or log.read.at_ns):
            continue
        if log.read.body.start <= offset and offset not in finally_read:
            yield violated(log.name, offset, operation)


@of_logs("JEPSEN-nonmonotonic-send")
def nonmonotonic_send(log: Log, history: History) -> Iterator[Word]:
    """Of two writes acknowledged with acks=all, one that was invoked after the other's
    acknowledgement lies behind it; those of an idempotent producer lie in the order in which it
    sent them."""
    acked = [(log.invoked.get(one), one, ack) for one, ack in log.acknowledged(-1)]
    for sent, later, ack in acked:
        for _, earlier, before in acked:
            if sent is None or earlier == later or -1 in (ack.body.offset, before.body.offset):
                continue
            if before.at_ns < sent.at_ns and ack.body.offset <= before.body.offset:
                yield violated(log.name, earlier, later)
    # Of one that timed out, or was acknowledged without an offset, a reader may show the place.
    ended = {at.body.operation: at for at in log.completed if at.body.acks == -1}
    for earlier, before in log.acknowledged(-1):
        for later, after in ended.items():
            sent = log.invoked.get(later)
            shown = -1 in (before.body.offset, after.body.offset) or after.body.outcome != "ok"
            if not shown or sent is None or before.at_ns >= sent.at_ns or earlier == later:
                continue
            if log.offsets(later) and min(log.offsets(later)) <= max(
                log.offsets(earlier), default=-1
            ):
                yield undecided(log.name, earlier, later)
    own = [
        (sent, operation, log.offsets(operation))
        for operation, sent in log.invoked.items()
        if sent.body.idempotent
    ]
    for first, earlier, before_at in own:
        for second, later, after_at in own:
            if first.process != second.process or first.place >= second.place:
                continue
            if before_at and after_at and min(after_at) <= max(before_at):
                again = log.sent_again(earlier) or log.sent_again(later)
                certain = not again and len(before_at) == len(after_at) == 1
                yield (violated if certain else undecided)(log.name, earlier, later)


def stretches(log: Log) -> Iterator[tuple[str, list[int]]]:
    """The offsets that each consumer got one after the other, without being sent elsewhere: to
    begin anew since a broker refused its offset, it was sent by nobody."""
    going: dict[str, list[int]] = {}
    for at in sorted([*log.moves, *log.polls], key=lambda at: at.place):
        if isinstance(at.body, Polled):
            going.setdefault(at.process, []).extend(at.body.offsets)
        elif not at.body.out_of_range:
            yield at.process, going.pop(at.process, [])
    yield from going.items()


@of_logs("JEPSEN-nonmonotonic-poll")
def nonmonotonic_poll(log: Log, history: History) -> Iterator[Word]:
    """A consumer that was not sent elsewhere never gets an offset at or before one it already
    got."""
    for consumer, got in stretches(log):
        highest = -1
        for offset in got:
            if offset <= highest:
                yield violated(log.name, consumer, offset)
            highest = max(highest, offset)


BEGINNING = -2
"""The offset of a consumer that is sent to the beginning of the log."""


def place_of(at: At) -> int:
    return at.place


@of_logs("JEPSEN-poll-skip")
def poll_skip(log: Log, history: History) -> Iterator[Word]:
    """A consumer that was not sent elsewhere gets every message between two that it gets. It gets
    them in their order: one that it gets after a later one was skipped."""
    there = {offset for offset, _, _ in log.seen()}
    there |= {ack.body.offset for _, ack in log.acknowledged(-1)}
    at_last = {offset for offset, _, _ in log.seen(final=True)}
    for consumer, got in stretches(log):
        for before, after in pairwise(got):
            for skipped in there:
                if before < skipped < after:
                    # What a whole reading does not show may have been gone when this one came by.
                    sure = log.read is None or skipped in at_last
                    yield (violated if sure else undecided)(log.name, consumer, skipped)
    # One that was sent to the beginning gets the first message first.
    for move in log.moves:
        later = [at for at in (*log.polls, *log.moves) if at.place > move.place]
        mine = min((at for at in later if at.process == move.process), key=place_of, default=None)
        if move.body.offset == BEGINNING and mine in log.polls and mine is not None:
            for skipped in there:
                if mine.body.offsets and skipped < mine.body.offsets[0]:
                    yield undecided(log.name, move.process, skipped)


@of_logs("JEPSEN-aborted-read")
def aborted_read(log: Log, history: History) -> Iterator[Word]:
    """A write that certainly failed is never read."""
    for offset, operation, _ in log.seen():
        ends = {at.body.outcome for at in log.completed if at.body.operation == operation}
        if "failed" in ends:
            yield (violated if len(ends) == 1 else undecided)(log.name, operation, offset)


@of_logs("JEPSEN-lost-write-acks1", LeadershipStarted, PartitionCommitted, ProcessExited)
def lost_write_acks1(log: Log, history: History) -> Iterator[Word]:
    """A write acknowledged with acks=1 is read where it was acknowledged, as long as its partition
    has had one leader."""
    leaders: set[int] = set()
    processes: set[str] = set()
    for at in history.of(LeadershipStarted, PartitionCommitted):
        if (at.body.topic, at.body.partition) == (log.topic, log.partition):
            if isinstance(at.body, PartitionCommitted):
                # Before its first leader it has had none; later it may get another one.
                leaders |= {at.body.leader} if leaders or at.body.leader >= 0 else set()
            else:
                processes.add(at.process)
    # That there is none for a time counts as a change: the next one may be another.
    # A node that only says itself that it leads is no second leader for certain.
    known = len(leaders) == 1 and len(processes) <= 1
    there = {offset for offset, _, _ in log.seen(final=True)}
    for operation, ack in log.acknowledged(1):
        where, read = ack.body.offset, log.read
        covered = read is not None and read.body.start <= where < read.body.end
        # After a loss it is promised anew: which leader is the first one then is not judged here.
        if not (covered or where in there) or (len(leaders) > 1 and not history.lost_data):
            continue
        if (where, operation) not in {(offset, one) for offset, one, _ in log.seen(final=True)}:
            yield (violated if known else undecided)(log.name, operation, where)


@of_logs("JEPSEN-G1c-realtime")
def cycle_in_real_time(log: Log, history: History) -> Iterator[Word]:
    """A message lies behind every message of its partition that a consumer had got before it was
    invoked, and none is read before it was invoked, or without that."""
    for operation in {operation for _, operation, _ in log.seen()} - {*log.invoked}:
        yield undecided(log.name, operation)  # the event of its sending may be missing
    for operation, sent in log.invoked.items():
        earlier = [poll.body for poll in log.polls if poll.at_ns < sent.at_ns]
        before = [max(body.offsets) for body in earlier if body.offsets]
        if any(operation in body.operations for body in earlier):
            yield violated(log.name, operation)
        places = log.offsets(operation)
        for place in places:
            if any(place <= offset for offset in before):
                # Where clients contradict each other, nobody knows where it lies.
                yield (violated if len(places) == 1 else undecided)(log.name, operation, place)
