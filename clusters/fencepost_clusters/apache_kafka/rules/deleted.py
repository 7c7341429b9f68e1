"""The rule about the logs of deleted topics (RP-25)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    OBSERVERS,
    READ_WITHIN_NS,
    SECOND,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excuses,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Findings,
    NodeStarted,
    ProcessExited,
    Rule,
    RunEnd,
    is_second,
    judged,
    on,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import KRAFT
from fencepost_kafka import (
    BrokerStopping,
    MetadataApplied,
    PartitionCommitted,
    SegmentFound,
    TopicCommitted,
    partition_at,
)

REMOVED_WITHIN_NS = 10 * SECOND
"""How long a broker may take to remove its replicas, once it has applied the deletion."""


@dataclass(frozen=True, slots=True)
class _Deletion:
    topic: str
    offset: int
    at_ns: int
    ref: Cause
    replicas: frozenset[int]


@dataclass(slots=True)
class _Disks:
    replicas: dict[str, set[int]] = field(default_factory=dict)
    """topic -> the brokers that were ever its replicas."""
    deleted: dict[str, _Deletion] = field(default_factory=dict)
    """topic id -> its deletion."""
    dead: dict[str, int] = field(default_factory=dict)
    """topic -> the offset of the newest record that deleted one of that name."""
    ids: dict[str, int] = field(default_factory=dict)
    """slot -> broker id."""
    began: dict[str, int] = field(default_factory=dict)
    """slot -> when its newest process began."""
    applied: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """slot -> the metadata offsets that its newest process applied, and when."""
    last: dict[str, int] = field(default_factory=dict)
    """slot -> when it applied metadata last."""
    newest: dict[str, str] = field(default_factory=dict)
    """slot -> its newest process."""
    over: dict[str, int] = field(default_factory=dict)
    """slot -> when its newest process ended, or said that it stops; none: it lives on."""

    faults: Excuses = field(default_factory=Excuses)

    def lived_ns(self, slot: str, knew_ns: int, ended_at_ns: int) -> int:
        """Until when a slot's newest process lived: it may apply nothing more, if no record is
        written. What it logged in the last seconds of the run may be missing."""
        # A fault may have stopped it since it knew: then it lived as long as it says itself.
        if any(one.reason(slot, bool) for one in self.faults.since(knew_ns)):
            return self.last[slot]
        return max(self.last[slot], self.over.get(slot, ended_at_ns - READ_WITHIN_NS))

    held: dict[tuple[str, str], tuple[SegmentFound, Cause]] = field(default_factory=dict)
    """slot and topic id -> a segment of that topic on the slot's disk."""


@final
class DeletedIsRemoved(Rule[_Disks]):
    """RP-25. Judged by the disks: a broker that applied the deletion, and lived ten seconds longer,
    holds no log of the topic under its name. Exercised by a broker that was a replica, and was down
    when the topic was deleted."""

    clause = "RP-25"
    planes = KRAFT
    state = _Disks

    @on(
        TopicCommitted,
        PartitionCommitted,
        NodeStarted,
        BrokerStopping,
        ProcessExited,
        FaultInjected,
        FaultHealed,
        MetadataApplied,
        SegmentFound,
    )
    def step(self, state: _Disks, event: Event, body: Struct) -> Findings:
        slot = slot_of(event.process)
        match body:
            case PartitionCommitted() if body.offset > state.dead.get(body.topic, -1):
                state.replicas.setdefault(body.topic, set()).update(body.replicas)
            case TopicCommitted(deleted=True) if body.topic_id not in state.deleted:
                brokers = frozenset(state.replicas.pop(body.topic, ()))
                state.dead[body.topic] = body.offset
                one = _Deletion(body.topic, body.offset, event.at_ns, event.ref, brokers)
                state.deleted[body.topic_id] = one
            case NodeStarted(role="broker", node_id=node_id):
                state.ids[slot], state.began[slot] = node_id, event.at_ns
                state.applied[slot] = []
                state.newest[slot] = event.process
                state.over.pop(slot, None)
            case FaultInjected() | FaultHealed():
                state.faults.take(event)
            case BrokerStopping() if event.process == state.newest.get(slot):
                state.over.setdefault(slot, event.at_ns)
            case ProcessExited(ended=ended) if ended == state.newest.get(slot_of(ended)):
                state.over.setdefault(slot_of(ended), event.at_ns)
            case MetadataApplied() if slot in state.applied:
                state.applied[slot].append((body.offset, event.at_ns))
                state.last[slot] = event.at_ns
            case SegmentFound(topic_id=topic_id) if topic_id:
                state.held.setdefault((body.slot, topic_id), (body, event.ref))
        return NOTHING

    def end(self, state: _Disks, end: RunEnd) -> Findings:
        found: list[Finding] = []
        disks = {slot for slot, _ in state.held}
        for topic_id, deletion in state.deleted.items():
            for slot, node_id in state.ids.items():
                knew_ns = self._knew(state, slot, deletion)
                if is_second(slot) or knew_ns is None or slot not in disks:
                    continue
                until_ns = state.lived_ns(slot, knew_ns, end.ended_at_ns)
                lived_ns = until_ns - knew_ns
                held = state.held.get((slot, topic_id))
                if held is not None and lived_ns > REMOVED_WITHIN_NS:
                    late = violated(
                        held[1],
                        Evidence.PEER,
                        "the disk of {slot} has {partition}, though it applied the topic's "
                        "deletion {after_s} s before its end",
                        (deletion.ref,),
                        slot=slot_scope(slot),
                        partition=partition_at(deletion.topic, held[0].partition),
                        after_s=lived_ns // SECOND,
                    )
                    bound = REMOVED_WITHIN_NS
                    one = Deadline(
                        late, (slot, *OBSERVERS), knew_ns, until_ns, bound, omission=False
                    )
                    found += judged((one,), end)
                elif held is None and self._returned(state, slot, node_id, deletion):
                    found.append(Exercised(deletion.ref, Evidence.PEER))
        return found

    @staticmethod
    def _knew(state: _Disks, slot: str, deletion: _Deletion) -> int | None:
        """When the slot's newest process had applied a deletion."""
        known = [at for offset, at in state.applied.get(slot, ()) if offset >= deletion.offset]
        return min(known, default=None)

    @staticmethod
    def _returned(state: _Disks, slot: str, node_id: int, deletion: _Deletion) -> bool:
        """Whether the slot's broker was a replica, and began after the deletion."""
        return node_id in deletion.replicas and state.began[slot] > deletion.at_ns
