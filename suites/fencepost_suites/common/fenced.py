"""Which brokers were fenced at an offset of the metadata log, whatever the order of the events.

A node names each record that it replays by its offset in the one log (`metadata.committed`). Where
a fencing and a change of a partition are both such records, their offsets are their order, and the
controller that wrote the later one knew the earlier one. Planes without such a log give no evidence
of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Event
from fencepost_kafka import BrokerCommitted, BrokerDeleted, MetadataCommitted

LOG_KINDS: frozenset[type[Struct]] = frozenset({MetadataCommitted, BrokerCommitted, BrokerDeleted})
"""The events that `FencedAt.take` applies."""


@final
@dataclass(slots=True)
class FencedAt:
    """Every registration, fencing and deletion of brokers, by offset."""

    records: dict[int, dict[int, tuple[bool, Event]]] = field(default_factory=dict)
    """broker -> offset -> whether it is out of the cluster from there on, and the event."""
    named: dict[str, int] = field(default_factory=dict)
    """process -> the record that it has named last."""

    def take(self, event: Event) -> None:
        """Applies an event; others than `LOG_KINDS` are ignored."""
        match event.body:
            case MetadataCommitted() as body:
                self.named[event.process] = body.offset
            case BrokerCommitted() as body:
                known = self.records.setdefault(body.broker_id, {})
                known.setdefault(body.offset, (body.fenced, event))
            case BrokerDeleted() as body:
                known = self.records.setdefault(body.broker_id, {})
                known.setdefault(body.offset, (True, event))

    def in_log(self, process: str, offset: int) -> bool:
        """Whether the process that reports a record names it as one of the log."""
        return self.named.get(process) == offset

    def by(self, broker: int, offset: int) -> Event | None:
        """The event by which a broker was out of the cluster right before an offset; None if it was
        in it, or nothing is known. To be asked once all events were taken."""
        known = self.records.get(broker, {})
        newest = max((one for one in known if one < offset), default=None)
        if newest is None:
            return None
        fenced, at = known[newest]
        return at if fenced else None
