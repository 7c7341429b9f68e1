"""A place in the ISR is a process's own, and not its broker's (RP-10).

What a process has stored, its successor may have lost: with the page cache, or with the disk. So
the successor has to catch up, and the leader has to see that. Two ways lead past this, and no
request for an ISR shows them:

* The ISR keeps a broker whose next process has registered. In a moment the record may come that
  takes its place (QC-30 waits for it); until then it may be elected. So that record is the next one
  of the partition, and comes before the process is active.
* The leader asks for a process that has caught up, and its successor registers before that is
  stored (KIP-903).

By the offsets of the one metadata log: the controller that wrote a record knew all before it. A
process is a new one if its registration names another incarnation. Which one the leader counted is
its own word, the greatest broker epoch in a fetch of the follower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, final

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Finding,
    Findings,
    Rule,
    RunEnd,
    Violated,
    on,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    FollowerFetched,
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import Partitions, TopicPartition

NEVER = 1 << 62
"""An offset behind every record."""


class _Registration(NamedTuple):
    """A process of a broker, from the offset on at which it registered."""

    offset: int
    incarnation: str
    at: Cause


@dataclass(slots=True)
class _Members:
    partitions: Partitions = field(default_factory=Partitions)
    processes: dict[int, list[_Registration]] = field(default_factory=dict)
    """broker -> its processes that are known, in order of their offsets. Of the first one, it is
    not known whether there was another."""
    active: dict[int, dict[int, Cause]] = field(default_factory=dict)
    """broker -> the offsets of the records by which its newest process is active."""
    counted: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """partition and follower -> the greatest broker epoch of its fetches that a leader counted."""

    def register(self, event: Event, body: BrokerCommitted) -> None:
        """A record of a broker: of another process than before, or of the same one."""
        if not body.fenced:
            self.active.setdefault(body.broker_id, {}).setdefault(body.offset, event.ref)
        known = self.processes.setdefault(body.broker_id, [])
        if all(one.offset != body.offset for one in known):
            known.append(_Registration(body.offset, body.incarnation, event.ref))
            known.sort()
            # A process has one place here: where it registered.
            self.processes[body.broker_id] = [
                one
                for before, one in zip((None, *known), known, strict=False)
                if before is None or before.incarnation != one.incarnation
            ]

    def newest(self, broker: int, offset: int) -> _Registration | None:
        """The registration of the process that a broker had right before an offset, if it was not
        the broker's first."""
        before = [one for one in self.processes.get(broker, ())[1:] if one.offset < offset]
        return before[-1] if before else None


@final
class PlacesAreOfProcesses(Rule[_Members]):
    """RP-10. See the module. Of the last member of an ISR nothing is judged: it stays, since nobody
    else has what was committed."""

    clause = "RP-10"
    planes = ("quorum",)
    state = _Members

    @on(BrokerCommitted)
    def _registers(self, state: _Members, event: Event, body: BrokerCommitted) -> Findings:
        state.register(event, body)
        return NOTHING

    @on(FollowerFetched)
    def _counts(self, state: _Members, event: Event, body: FollowerFetched) -> Findings:
        key = (body.topic, body.partition), body.follower
        state.counted[key] = max(body.broker_epoch, state.counted.get(key, -1))
        return NOTHING

    @on(TopicCommitted)
    def _deletes(self, state: _Members, event: Event, body: TopicCommitted) -> Findings:
        state.partitions.forget(body)
        return NOTHING

    @on(PartitionCommitted)
    def _stores(self, state: _Members, event: Event, body: PartitionCommitted) -> Findings:
        news, known = state.partitions.take(body)
        if not news or known is None:
            return NOTHING
        found = list(_active_too_soon(state, known, body.offset))
        for broker in body.isr:
            process = state.newest(broker, body.offset)
            if process is None or known.isr == (broker,):
                continue
            stays = broker in known.isr
            # A leader that says nothing of its followers says nothing wrong.
            key = (body.topic, body.partition), broker
            counted = state.counted.get(key, process.offset)
            if process.offset < known.offset if stays else counted >= process.offset:
                continue
            how = "kept its place" if stays else "was taken"
            found.append(_another(event.ref, body, broker, process, (how, body.offset)))
        return found

    def end(self, state: _Members, end: RunEnd) -> Findings:
        newest = state.partitions.newest.values()
        return [one for record in newest for one in _active_too_soon(state, record, NEVER)]


def _active_too_soon(state: _Members, record: PartitionCommitted, until: int) -> Iterator[Finding]:
    """Members by a record whose next processes are active before the next one, at that offset."""
    for broker in record.isr if len(record.isr) > 1 else ():
        process = state.newest(broker, until)
        if process is None or process.offset < record.offset:
            continue
        active = state.active.get(broker, {})
        at = min((one for one in active if process.offset < one < until), default=None)
        if at is not None:
            yield _another(active[at], record, broker, process, ("was active with a place", at))


def _another(
    at: Cause,
    body: PartitionCommitted,
    broker: int,
    process: _Registration,
    what: tuple[str, int],
) -> Violated:
    """A broker has a place that is another process's: how, and by which record."""
    how, record = what
    return violated(
        at,
        Evidence.PEER,
        "broker {broker} {how} in the ISR of {partition} by record {record}, though record "
        "{registered} had registered another process of it",
        (process.at,),
        broker=broker_of(broker),
        how=how,
        partition=partition_of(body),
        record=record,
        registered=process.offset,
    )
