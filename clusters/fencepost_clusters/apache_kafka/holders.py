"""Who holds which broker id, as Kafka's own rules see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from fencepost import Event, FaultHealed, FaultInjected, NodeStarted, ProcessExited
from fencepost_clusters.apache_kafka.keys import MS, slot_of
from fencepost_clusters.apache_kafka.log_parser import SessionConfigured
from fencepost_kafka import BrokerCommitted, BrokerStopping

KINDS: frozenset[type[Struct]] = frozenset(
    {
        *(NodeStarted, ProcessExited, BrokerStopping, FaultInjected, FaultHealed),
        *(BrokerCommitted, SessionConfigured),
    }
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
    struck: dict[str, frozenset[str]] = field(default_factory=dict)
    """Each fault that lasts -> the slots it is aimed at. A second process with an id is none: what
    that does is what is judged."""
    healed_ns: dict[str, int] = field(default_factory=dict)
    """slot -> when a fault at it ended last."""
    session_ns: int = 0
    """The longest session of any broker."""

    def learn(self, event: Event) -> None:
        """Takes in what processes and faults tell; records are for `commit`."""
        match event.body:
            case NodeStarted(role="broker", incarnation=incarnation):
                self.incarnations[incarnation] = event.process
            case ProcessExited(ended=ended):
                self.gone.add(ended)
            case BrokerStopping():
                self.gone.add(event.process)
            case SessionConfigured(timeout_ms=timeout_ms):
                self.session_ns = max(self.session_ns, timeout_ms * MS)
            case FaultInjected(fault_id, fault, targets) if fault != "duplicate_id":
                self.struck[fault_id] = frozenset(map(slot_of, targets))
            case FaultHealed(fault_id):
                healed = self.struck.pop(fault_id, frozenset())
                self.healed_ns.update(dict.fromkeys(healed, event.at_ns))

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

    def well(self, process: str, at_ns: int) -> bool:
        """Whether nothing excuses a process from losing what it holds.

        A fault does for a session longer than it lasts: the process's own may have ended unseen.
        """
        slot = slot_of(process)
        if not process or process in self.gone or any(slot in one for one in self.struck.values()):
            return False
        return slot not in self.healed_ns or at_ns - self.healed_ns[slot] > self.session_ns
