"""A slow port of Jepsen's analyses of a log (`jepsen/src/jepsen/tests/kafka.clj`), for one key and
without transactions: each message is an operation of its own.

One difference throughout: places are offsets, not indexes by value. So a message that lies at two
offsets is a duplicate, and nothing that follows from having one place only.

What our rules judge otherwise, and why, is `more_of_ours` and `less_of_ours`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.suites.clients.small_histories import READER, Message, Step


class Write(NamedTuple):
    """A message that was sent: by whom, at which step, and when and how that ended, if it did."""

    name: str
    process: str
    sent: int
    ended: int = -1
    outcome: str = ""
    offset: int = -1


def writes(history: Sequence[Step]) -> Sequence[Write]:
    found: dict[str, Write] = {}
    for at, step in enumerate(history):
        for one in step.messages:
            if step.does == "sends":
                found[one.name] = Write(one.name, step.process, at)
            elif step.does in ("acks", "loses", "fails"):
                found[one.name] = found[one.name]._replace(
                    ended=at, outcome=step.does, offset=one.offset
                )
    return list(found.values())


def acked(history: Sequence[Step]) -> Sequence[Write]:
    return [one for one in writes(history) if one.outcome == "acks"]


def polls(history: Sequence[Step]) -> Sequence[Step]:
    return [step for step in history if step.does == "polls"]


def polled(history: Sequence[Step]) -> frozenset[Message]:
    return frozenset(one for step in polls(history) for one in step.messages)


def log(history: Sequence[Step]) -> dict[int, set[str]]:
    """What anybody says that lies at each offset."""
    found: dict[int, set[str]] = {}
    said = [*polled(history), *(Message(one.name, one.offset) for one in acked(history))]
    for name, offset in said:
        if offset >= 0:
            found.setdefault(offset, set()).add(name)
    return found


def places(history: Sequence[Step]) -> dict[str, set[int]]:
    """The offsets at which each message lies."""
    found: dict[str, set[int]] = {}
    for offset, names in log(history).items():
        for name in names:
            found.setdefault(name, set()).add(offset)
    return found


def runs_of_polls(history: Sequence[Step]) -> Iterator[Sequence[int]]:
    """The offsets that a process polled one after the other, without being sent elsewhere."""
    going: dict[str, list[int]] = {}
    for step in history:
        if step.does == "polls":
            going.setdefault(step.process, []).extend(one.offset for one in step.messages)
        elif step.does == "goes":
            yield going.pop(step.process, [])
    yield from going.values()


def aborted_read(history: Sequence[Step]) -> bool:
    """G1a: a message whose send failed is polled."""
    failed = {one.name for one in writes(history) if one.outcome == "fails"}
    return any(one.name in failed for one in polled(history))


def inconsistent_offsets(history: Sequence[Step]) -> bool:
    """Two messages at one offset."""
    return any(len(names) > 1 for names in log(history).values())


def duplicate(history: Sequence[Step]) -> bool:
    """A message that did not fail at two offsets."""
    failed = {one.name for one in writes(history) if one.outcome == "fails"}
    return any(len(at) > 1 for name, at in places(history).items() if name not in failed)


def lost_write(history: Sequence[Step]) -> bool:
    """An acknowledged message is never polled, though one that lies behind it is."""
    seen = {one.name for one in polled(history)}
    last = max((one.offset for one in polled(history)), default=-1)
    return any(one.name not in seen and 0 <= one.offset <= last for one in acked(history))


def unseen(history: Sequence[Step]) -> bool:
    """An acknowledged message is never polled, and lies behind all that is."""
    seen = {one.name for one in polled(history)}
    last = max((one.offset for one in polled(history)), default=-1)
    return any(one.name not in seen and one.offset > last for one in acked(history))


def poll_skip(history: Sequence[Step]) -> bool:
    """Between two messages that a process polls, one after the other, lies another."""
    there = log(history)
    return any(
        any(offset in there for offset in range(first + 1, then))
        for offsets in runs_of_polls(history)
        for first, then in pairwise(offsets)
    )


def nonmonotonic_poll(history: Sequence[Step]) -> bool:
    """What a process polls lies at or before what it polled last."""
    return any(
        then <= first for offsets in runs_of_polls(history) for first, then in pairwise(offsets)
    )


def nonmonotonic_send(history: Sequence[Step]) -> bool:
    """What a process sends lies before what it had sent."""
    return any(True for _ in _sent_behind(history))


def _sent_behind(history: Sequence[Step]) -> Iterator[tuple[Write, Write]]:
    """Two writes of a process, the later one before the other one's place."""
    at = places(history)
    own = [
        one for one in writes(history) if one.outcome != "fails" and len(at.get(one.name, ())) == 1
    ]
    for place, first in enumerate(own):
        for then in own[place + 1 :]:
            if first.process == then.process and min(at[then.name]) <= min(at[first.name]):
                yield first, then


ANALYSES = {
    "aborted-read": aborted_read,
    "inconsistent-offsets": inconsistent_offsets,
    "duplicate": duplicate,
    "lost-write": lost_write,
    "unseen": unseen,
    "poll-skip": poll_skip,
    "nonmonotonic-poll": nonmonotonic_poll,
    "nonmonotonic-send": nonmonotonic_send,
}


def anomalies(history: Sequence[Step]) -> frozenset[str]:
    """The anomalies that Jepsen's analyses find."""
    return frozenset(name for name, found in ANALYSES.items() if found(history))


def _firsts(history: Sequence[Step]) -> Iterator[int]:
    """What consumers got first after they had gone to the beginning."""
    at_begin: set[str] = set()
    for step in history:
        if step.does == "goes":
            at_begin.add(step.process)
        elif step.does == "polls" and step.process in at_begin:
            at_begin.remove(step.process)
            yield step.messages[0].offset


def more_of_ours(history: Sequence[Step]) -> frozenset[str]:
    """What our rules find beside, each by a statement of its own."""
    at_last = [step for step in history if step.process == READER and step.does == "polls"]
    there = {one for step in at_last for one in step.messages}
    end = max((step.messages[0].offset for step in history if step.does == "reads"), default=0)
    consumed = {one for step in polls(history) if step.process != READER for one in step.messages}
    own = acked(history)
    sent = {one.name for one in writes(history)}
    lies = places(history)
    own_order = [
        (first, then)
        for place, first in enumerate(writes(history))
        for then in writes(history)[place + 1 :]
        if first.process == then.process
    ]
    found = {
        # One that failed, too: it is stored, and that twice.
        "duplicate": any(len(at) > 1 for name, at in places(history).items() if name in sent),
        # A consumer got it, and the whole reading has nothing there.
        "inconsistent-offsets": any(
            one.offset not in {other.offset for other in there} for one in consumed
        ),
        # Any place below the end is read, also one behind the last message there. And what a
        # consumer got and the reading lacks is lost, wherever it lay.
        "lost-write": any(
            Message(one.name, one.offset) not in there
            and (one.offset < end or one.name in {other.name for other in consumed})
            for one in own
        ),
        # Behind an acknowledgement in real time, whoever sent it. And each place of a message that
        # lies at two.
        "nonmonotonic-send": any(
            min(lies.get(then.name, {end})) <= max(lies.get(first.name, {-1}))
            for first, then in own_order
        )
        or any(
            one.ended < other.sent and min(lies.get(other.name, {end})) <= max(lies[one.name])
            for one in own
            for other in writes(history)
        ),
        # A consumer that goes to the beginning gets what is first there.
        "poll-skip": any(first > offset for first in _firsts(history) for offset in log(history)),
    }
    seen = {one.name for one in polled(history)}
    # What the reading did not reach, though a consumer once had got something behind it.
    found["unseen"] = any(one.name not in seen and one.offset >= end for one in own)
    return frozenset(name for name, yes in found.items() if yes)


def less_of_ours(history: Sequence[Step]) -> frozenset[str]:
    """What our rules do not find, and why."""
    shown = {one.offset for one in polled(history)}
    gone = {one.offset for one in acked(history)} - shown
    there = {
        one.offset for step in polls(history) if step.process == READER for one in step.messages
    }
    ends = [one.offset for one in acked(history)]
    found = {
        # Of two that were acknowledged at one offset, one is remembered: that they are two is an
        # inconsistent offset.
        "unseen": len(set(ends)) < len(ends),
        # Of one that a consumer alone has placed, and another one at the same offset, either was
        # there: that is an inconsistent offset.
        "nonmonotonic-send": all(
            places(history)[first.name] == places(history)[then.name]
            for first, then in _sent_behind(history)
        ),
        # A skipped message that no whole reading shows is a lost write, or gone: it may have been
        # gone when the consumer came by.
        "poll-skip": all(
            offset in gone or offset not in there
            for offsets in runs_of_polls(history)
            for first, then in pairwise(offsets)
            for offset in log(history)
            if first < offset < then
        ),
    }
    return frozenset(name for name, yes in found.items() if yes)
