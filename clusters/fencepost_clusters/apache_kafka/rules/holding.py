"""The rule that a process with an id changes nothing for the process that holds the id (KR-06)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Excused,
    Exercised,
    Findings,
    NodeStarted,
    ProcessExited,
    Rule,
    RunEnd,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.holders import KINDS, IdHolders
from fencepost_kafka import (
    BrokerCommitted,
    HeartbeatRefused,
    PartitionCommitted,
    broker_of,
    partition_of,
)


@dataclass(slots=True)
class _Places:
    """The holders of ids and leaders of partitions by the committed records, and the other
    processes that claim an id."""

    holders: IdHolders = field(default_factory=IdHolders)
    ids: dict[str, int] = field(default_factory=dict)
    """process -> broker id, of live processes."""
    partitions: dict[tuple[str, int], PartitionCommitted] = field(default_factory=dict)
    refused: dict[str, Cause] = field(default_factory=dict)
    """process -> its newest refusal since it held the id. What it was answered before, while it
    waited for the session of another one, says nothing of the time after."""
    held: set[str] = field(default_factory=set)
    """The processes that were registered with an id: one that is no more has lost it to another."""
    suspects: list[tuple[int, Violated | Excused]] = field(default_factory=list)
    """The losses of an id's holder, in records that follow each other without a gap."""
    next_offset: int = -1

    def holder(self, broker: int, at_ns: int) -> str:
        """The live process that holds an id unfenced."""
        record = self.holders.records.get(broker)
        process = self.holders.process(record)
        held = record is not None and not record.fenced
        return process if held and self.holders.alive(process, at_ns) else ""

    def others(self, broker: int, holder: str) -> list[str]:
        """The other live processes with that id."""
        return [p for p, known in self.ids.items() if known == broker and p != holder]

    def confirmed(self) -> Findings:
        """The suspects, now that no fencing explains them."""
        found = tuple(finding for _, finding in self.suspects)
        self.suspects.clear()
        return found


@final
class RefusedChangesNothing(Rule[_Places]):
    """KR-06. Broken by a record that takes a leadership from a broker that is unfenced and
    unaffected by faults, while another process with its id runs: with its place in the ISR, or
    without it for another than the preferred replica. A record that
    precedes the broker's own fencing in the same batch does not count. Exercised by the end of a
    process that was refused while the holder led something."""

    clause = "KR-06"
    state = _Places

    @on(*KINDS, PartitionCommitted, HeartbeatRefused)
    def step(self, state: _Places, event: Event, body: Struct) -> Findings:
        state.holders.learn(event)
        match body:
            case NodeStarted(role="broker"):
                state.ids[event.process] = body.node_id
            case HeartbeatRefused():
                state.refused[event.process] = event.ref
            case ProcessExited():
                return self._exited(state, event, body.ended)
            case BrokerCommitted():
                return self._broker(state, body)
            case PartitionCommitted():
                return self._partition(state, event, body)
        return NOTHING

    @staticmethod
    def _exited(state: _Places, event: Event, process: str) -> Findings:
        broker = state.ids.pop(process, None)
        if broker is None or process not in state.refused:
            return NOTHING
        leads = any(one.leader == broker for one in state.partitions.values())
        holder = state.holder(broker, event.at_ns)
        unaffected = holder and not state.holders.excuse(holder, event.at_ns)
        return (Exercised(event.ref, Evidence.PEER),) if unaffected and leads else NOTHING

    @staticmethod
    def _broker(state: _Places, body: BrokerCommitted) -> Findings:
        news, _ = state.holders.commit(body)
        if not news:
            return NOTHING
        registered = state.holders.process(body)
        state.refused.pop(registered, None)
        state.held.add(registered)
        if body.fenced and body.offset == state.next_offset:
            state.suspects = [one for one in state.suspects if one[0] != body.broker_id]
        return state.confirmed()

    @staticmethod
    def _partition(state: _Places, event: Event, body: PartitionCommitted) -> Findings:
        place = body.topic, body.partition
        was = state.partitions.get(place)
        if was is not None and body.offset <= was.offset:
            return NOTHING
        state.partitions[place] = body
        found = state.confirmed() if body.offset != state.next_offset else NOTHING
        state.next_offset = body.offset + 1
        if was is None or was.leader not in body.replicas:
            return found
        # One that keeps its place in the ISR may have lost the leadership to the preferred replica,
        # the first one. No election gives it to another one while it is there.
        stays = was.leader in body.isr
        if stays and body.leader in (*body.replicas[:1], was.leader, -1):
            return found
        holder = state.holder(was.leader, event.at_ns)
        others = state.others(was.leader, holder)
        if holder and others:
            excuse = state.holders.excuse(holder, event.at_ns)
            taken_over = others[0] in state.held
            does = ", whose id it has taken over, still ran" if taken_over else " claimed its id"
            place_too = "" if stays else " and its place in the ISR"
            bare = "broker {broker} lost {partition}" + place_too + " at offset {offset}"
            held = ", unfenced and unaffected by faults, while {other}" + does
            lost = violated(
                event.ref,
                Evidence.PEER,
                bare if excuse else bare + held,
                tuple(state.refused[one] for one in others if one in state.refused),
                broker=broker_of(was.leader),
                partition=partition_of(body),
                offset=body.offset,
                other=process_scope(others[0]),
                holder=process_scope(holder),
                taken_over=taken_over,
            )
            finding = Excused.of(lost, excuse, ", while ") if excuse else lost
            state.suspects.append((was.leader, finding))
        return found

    def end(self, state: _Places, end: RunEnd) -> Findings:
        return state.confirmed()
