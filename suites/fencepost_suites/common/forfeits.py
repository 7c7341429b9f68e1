"""Partitions whose messages no promise covers any more: each replica that had them lost its disk.

A committed message is kept while one member of the ISR keeps its disk. So a partition is forfeited
once the disk of each member of its committed ISR was harmed since the member joined: emptied,
damaged, or without the data that was not synced. That is known by the harness and by the committed
records. No word of a broker counts. What a second process with a broker's id does is no excuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from msgspec import Struct

from fencepost import FaultInjected, ProcessSpawned
from fencepost_kafka import PartitionCommitted, TopicCommitted
from fencepost_kafka.active_faults import slot_of
from fencepost_suites.common.keys import HARMS_DISK

Place = tuple[str, int]
"""A topic and a partition."""
_HARMS: Final = frozenset({*HARMS_DISK, "lose_power"})
FORFEITING: Final[frozenset[type[Struct]]] = frozenset(
    {FaultInjected, ProcessSpawned, PartitionCommitted, TopicCommitted}
)
"""The events that `Forfeits.take` applies."""


@final
class Forfeits:
    """Which partitions are forfeited, and why."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        """slot -> the id of its broker."""
        self._records: dict[Place, PartitionCommitted] = {}
        self._harmed: dict[Place, dict[int, str]] = {}
        """partition -> the members of its ISR whose disk was harmed, and the fault that did it."""

    def take(self, body: Any) -> Sequence[tuple[Place, str]]:
        """Applies an event. Returns the partitions that it forfeits, each with the reason."""
        match body:
            case PartitionCommitted():
                return self._committed(body)
            case FaultInjected(fault=fault) if fault in _HARMS:
                slots = {slot_of(target) for target in body.targets}
                brokers = frozenset(self._ids[slot] for slot in slots & self._ids.keys())
                return self._harm(brokers, body.fault_id)
            case ProcessSpawned(role=role) if "broker" in role:
                self._ids[body.slot] = body.node_id
            case TopicCommitted(deleted=True):
                for place in [one for one in self._records if one[0] == body.topic]:
                    if body.offset > self._records[place].offset:
                        del self._records[place]
                        self._harmed.pop(place, None)
        return ()

    def _committed(self, body: PartitionCommitted) -> Sequence[tuple[Place, str]]:
        place = body.topic, body.partition
        known = self._records.get(place)
        if known is not None and body.offset <= known.offset:
            return ()
        self._records[place] = body
        harmed = self._harmed.get(place)
        if not harmed:
            return ()
        stayed = set(body.isr).intersection(known.isr if known is not None else ())
        self._harmed[place] = {one: fault for one, fault in harmed.items() if one in stayed}
        return self._forfeited(place)

    def _harm(self, brokers: frozenset[int], fault_id: str) -> Sequence[tuple[Place, str]]:
        found: list[tuple[Place, str]] = []
        for place, record in self._records.items():
            members = brokers.intersection(record.isr)
            if members:
                harmed = self._harmed.setdefault(place, {})
                harmed |= dict.fromkeys(sorted(members), fault_id)
                found += self._forfeited(place)
        return found

    def _forfeited(self, place: Place) -> Sequence[tuple[Place, str]]:
        isr, harmed = self._records[place].isr, self._harmed[place]
        if not isr or not harmed.keys() >= {*isr}:
            return ()
        faults = ", ".join(sorted(set(harmed.values())))
        name = f"{place[0]}-{place[1]}"
        reason = (
            f"each member of the ISR {[*isr]} of {name} had lost its disk, or a part ({faults})"
        )
        return ((place, reason),)
