"""Which process holds which broker id, by Kafka's own rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from fencepost import Event, FaultHealed, FaultInjected, NodeStarted, ProcessExited
from fencepost_clusters.apache_kafka.log_memory import SessionConfigured
from fencepost_clusters.apache_kafka.rules.keys import MS
from fencepost_kafka import BrokerCommitted, BrokerStopping
from fencepost_kafka.active_faults import ActiveFault, ActiveFaults, slot_of

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
    controllers: set[str] = field(default_factory=set)
    """The slots of controllers."""
    faults: ActiveFaults = field(default_factory=ActiveFaults)
    """A duplicate id is left out, since the rule judges its effects."""
    healed: list[tuple[ActiveFault, int]] = field(default_factory=list)
    """The faults that have ended, and when."""
    session_ns: int = 0
    """The longest session of any broker."""

    def learn(self, event: Event) -> None:
        """Applies an event of a process or a fault; records are for `commit`."""
        match event.body:
            case NodeStarted(role="broker", incarnation=incarnation):
                self.incarnations[incarnation] = event.process
            case NodeStarted(role="controller"):
                self.controllers.add(slot_of(event.process))
            case ProcessExited(ended=ended):
                self.gone.add(ended)
            case BrokerStopping():
                self.gone.add(event.process)
            case SessionConfigured(timeout_ms=timeout_ms):
                self.session_ns = max(self.session_ns, timeout_ms * MS)
            case FaultInjected(fault=fault) if fault != "duplicate_id":
                self.faults.take(event)
            case FaultHealed():
                healed = self.faults.take(event)
                if healed is not None:
                    self.healed.append((healed, event.at_ns))

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

    def alive(self, process: str) -> bool:
        """Whether a process is known, has not ended, and was not asked to."""
        return bool(process) and process not in self.gone

    def excuse(self, process: str, at_ns: int) -> str:
        """Why a process may have lost what it holds; empty if no fault excuses it.

        A broker keeps its id by its own heartbeats to the controllers. So a fault excuses it that
        acts upon its process, or upon its link to a controller. A fault still counts for one
        session after it was healed: the process's session may have ended unseen.
        """
        self.healed = [one for one in self.healed if at_ns - one[1] <= self.session_ns]
        faults = (*self.faults.now.values(), *(healed for healed, _ in self.healed))
        reasons = (one.reason(process, self.controllers.__contains__) for one in faults)
        return next(filter(None, reasons), "")
