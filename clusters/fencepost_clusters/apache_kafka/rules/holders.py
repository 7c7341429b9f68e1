"""Which process holds which broker id, by Kafka's own rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from fencepost import Event, FaultHealed, FaultInjected, NodeStarted, ProcessExited
from fencepost_clusters.apache_kafka.log_parser import SessionConfigured
from fencepost_clusters.apache_kafka.rules.keys import MS, slot_of
from fencepost_kafka import BrokerCommitted, BrokerStopping

KINDS: frozenset[type[Struct]] = frozenset(
    {
        *(NodeStarted, ProcessExited, BrokerStopping, FaultInjected, FaultHealed),
        *(BrokerCommitted, SessionConfigured),
    }
)
"""The kinds that `IdHolders` reads."""


@dataclass(slots=True)
class IdHolders:
    """The holders of ids by the committed records, and the faults that excuse the loss of one."""

    incarnations: dict[str, str] = field(default_factory=dict)
    """incarnation -> its process."""
    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    """broker id -> its newest record."""
    gone: set[str] = field(default_factory=set)
    """Processes that have ended, or were asked to."""
    active_faults: dict[str, frozenset[str]] = field(default_factory=dict)
    """Each active fault -> the slots it was injected into. A duplicate id is left out, since the
    rule judges its effects."""
    healed_ns: dict[str, int] = field(default_factory=dict)
    """slot -> the time when its last fault ended."""
    session_ns: int = 0
    """The longest session of any broker."""

    def learn(self, event: Event) -> None:
        """Applies an event of a process or a fault; records are for `commit`."""
        match event.body:
            case NodeStarted(role="broker", incarnation=incarnation):
                self.incarnations[incarnation] = event.process
            case ProcessExited(ended=ended):
                self.gone.add(ended)
            case BrokerStopping():
                self.gone.add(event.process)
            case SessionConfigured(timeout_ms=timeout_ms):
                self.session_ns = max(self.session_ns, timeout_ms * MS)
            case FaultInjected(fault_id=fault_id, fault=fault, targets=targets) if (
                fault != "duplicate_id"
            ):
                self.active_faults[fault_id] = frozenset(map(slot_of, targets))
            case FaultHealed(fault_id=fault_id):
                healed = self.active_faults.pop(fault_id, frozenset())
                self.healed_ns.update(dict.fromkeys(healed, event.at_ns))

    def commit(self, body: BrokerCommitted) -> tuple[bool, BrokerCommitted | None]:
        """Applies a record. Returns whether it is newer than the known one, and the record known
        before."""
        was = self.records.get(body.broker_id)
        if was is not None and body.offset <= was.offset:
            return False, was
        self.records[body.broker_id] = body
        return True, was

    def process(self, record: BrokerCommitted | None) -> str:
        """The process that a record gives the id to; empty if it is not known."""
        return "" if record is None else self.incarnations.get(record.incarnation, "")

    def unaffected(self, process: str, at_ns: int) -> bool:
        """Whether no fault excuses a process from losing what it holds.

        A fault still counts for one session after it was healed: the process's session may have
        ended unseen.
        """
        slot = slot_of(process)
        if (
            not process
            or process in self.gone
            or any(slot in one for one in self.active_faults.values())
        ):
            return False
        return slot not in self.healed_ns or at_ns - self.healed_ns[slot] > self.session_ns
