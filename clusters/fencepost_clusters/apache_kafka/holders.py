"""Who holds which broker id, as Kafka's own rules see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from fencepost import (
    BrokerCommitted,
    BrokerStopping,
    Event,
    FaultStruck,
    NodeStarted,
    ProcessExited,
)
from fencepost_clusters.apache_kafka.keys import slot_of

KINDS: frozenset[type[Struct]] = frozenset(
    {NodeStarted, ProcessExited, BrokerStopping, FaultStruck, BrokerCommitted}
)
"""What `Holders` learns from."""


@dataclass(slots=True)
class Holders:
    """The holders of ids by the committed records, and who has an excuse to lose one."""

    incarnations: dict[str, str] = field(default_factory=dict)
    """incarnation -> its process."""
    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    """broker id -> its newest record."""
    gone: set[str] = field(default_factory=set)
    """Processes that have ended, or were asked to."""
    struck: set[str] = field(default_factory=set)
    """Slots that a fault was ever aimed at: a session may be over there unseen. A second process
    with an id is none: what that does is what is judged."""

    def learn(self, event: Event) -> None:
        """Takes in what processes and faults tell; records are for `commit`."""
        match event.body:
            case NodeStarted(role="broker", incarnation=incarnation):
                self.incarnations[incarnation] = event.process
            case ProcessExited(ended=ended):
                self.gone.add(ended)
            case BrokerStopping():
                self.gone.add(event.process)
            case FaultStruck(fault=fault, targets=targets) if fault != "duplicate_id":
                self.struck.update(slot_of(target) for target in targets)

    def commit(self, body: BrokerCommitted) -> tuple[bool, BrokerCommitted | None]:
        """Takes in a record; whether it is news, and the one that stood before it."""
        was = self.records.get(body.broker_id)
        if was is not None and body.offset <= was.offset:
            return False, was
        self.records[body.broker_id] = body
        return True, was

    def process(self, record: BrokerCommitted | None) -> str:
        """The process that a record gives the id to; empty if it is not known."""
        return "" if record is None else self.incarnations.get(record.incarnation, "")

    def well(self, process: str) -> bool:
        """Whether nothing excuses a process from losing what it holds."""
        known = process and process not in self.gone
        return bool(known) and slot_of(process) not in self.struck
