"""Which process holds which broker id, by Kafka's own rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct, json

from fencepost import (
    MS,
    Effect,
    Event,
    Excuse,
    Excuses,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    Reason,
    slot_of,
)
from fencepost_clusters.apache_kafka.log_memory import SessionConfigured
from fencepost_kafka import BrokerCommitted, BrokerStopping, ControllerElected

KINDS: frozenset[type[Struct]] = frozenset(
    {
        *(NodeStarted, ProcessExited, BrokerStopping, FaultInjected, FaultHealed),
        *(BrokerCommitted, SessionConfigured, ControllerElected),
    }
)
"""The kinds that `IdHolders` reads."""
HEARTBEAT = 63
"""The API key of a broker's heartbeat to the controller."""
SILENCING = (Effect.STOPS, Effect.ENDS, Effect.SEVERS, Effect.SLOWS, Effect.HOLDS)
"""What may keep a process silent, or from doing its work, for as long as the fault acts."""
DELAYS = 8
"""A session runs out if it is shorter than so many delays of a link: the versions of a new
connection and a heartbeat pass it twice each, and the interval between heartbeats is shorter than
half of a session."""


def longest_delay_ns(body: FaultInjected) -> int | None:
    """By how long a fault delays what a link carries, at most; None: it does more, or it is not
    known."""
    arguments = json.decode(body.arguments) if body.arguments else {}
    # Where the rate is limited, too, what waits before a message may delay it without a bound.
    slows = body.acts(Effect.SLOWS) and not body.acts(Effect.SEVERS, Effect.HOLDS)
    if not slows or "latency_ms" not in arguments or arguments.get("rate_kb"):
        return None
    delay_ms: int = arguments["latency_ms"] + arguments.get("jitter_ms", 0)
    return delay_ms * MS


@dataclass(slots=True)
class IdHolders:
    """The holders of ids by the committed records, and the faults that excuse the loss of one."""

    incarnations: dict[str, str] = field(default_factory=dict)
    """incarnation -> its process."""
    records: dict[int, BrokerCommitted] = field(default_factory=dict)
    """broker id -> its newest record."""
    gone: set[str] = field(default_factory=set)
    """Processes that have ended."""
    stopping: dict[str, int] = field(default_factory=dict)
    """Processes that were asked to end -> until when they may take their time, and give up waiting
    for a controller's grant: they are silent from then on."""
    controllers: set[str] = field(default_factory=set)
    """The slots of controllers."""
    faults: Excuses = field(default_factory=Excuses)
    """A duplicate id is left out, since the rule judges its effects."""
    session_ns: int = 0
    """The longest session of any broker."""
    active: str = ""
    """The slot of the controller that was elected last; empty: none is known."""
    elected_ns: int = 0
    """When it was."""
    delays: dict[str, int] = field(default_factory=dict)
    """The faults that only delay what a link carries -> by how long at most."""
    holding: set[str] = field(default_factory=set)
    """The faults that only hold other requests than heartbeats."""
    silencing: set[str] = field(default_factory=set)
    """The faults that may keep a process silent for as long as they act: they stop it or its links,
    or were to end it."""

    def learn(self, event: Event) -> None:
        """Applies an event of a process or a fault; records are for `commit`."""
        match event.body:
            case NodeStarted(role="broker", incarnation=incarnation):
                self.incarnations[incarnation] = event.process
            case NodeStarted(role="controller"):
                self.controllers.add(slot_of(event.process))
            case ProcessExited(ended=ended):
                self.gone.add(ended)
            case BrokerStopping(limit_ms=limit_ms):
                self.stopping.setdefault(event.process, event.at_ns + limit_ms * MS)
            case SessionConfigured(timeout_ms=timeout_ms):
                self.session_ns = max(self.session_ns, timeout_ms * MS)
            case ControllerElected():
                self.active, self.elected_ns = slot_of(event.process), event.at_ns
            case FaultInjected() as body if not body.acts(Effect.DOUBLES):
                self.faults.take(event)
                self._read(body)
            case FaultHealed():
                self.faults.take(event)

    def commit(self, body: BrokerCommitted) -> tuple[bool, BrokerCommitted | None]:
        """Applies a record. Returns whether it is newer than the known one, and the record known
        before."""
        was = self.records.get(body.broker_id)
        # The record is read by more than one process, and so comes more than once.
        if was is not None and body.offset <= was.offset:
            return False, was
        self.records[body.broker_id] = body
        return True, was

    def process(self, record: BrokerCommitted | None) -> str:
        """The process that a record gives the id to; empty if it is not known."""
        return "" if record is None else self.incarnations.get(record.incarnation, "")

    def alive(self, process: str, at_ns: int) -> bool:
        """Whether a process is known, has not ended, and was not asked to; or was asked, and its
        time was over two sessions ago. It is fenced by then, so one that is not may be heard."""
        stops_ns = self.stopping.get(process)
        stops = stops_ns is not None and at_ns <= stops_ns + 2 * self.session_ns
        return bool(process) and process not in self.gone and not stops

    def excuse(self, process: str, at_ns: int) -> Reason | None:
        """Why a process may have lost what it holds; None if no fault excuses it.

        A broker keeps its id by its own heartbeats to the active controller. So a fault excuses it
        that stops its process, or that keeps heartbeats from that controller for a session; for two
        sessions also one that acts upon its process otherwise. A broker may ask any controller for
        a new one, so within two sessions of an election a link to any counts. A fault still counts
        for one session after it was healed: the process's session may have ended unseen.
        """
        faults = self.faults.since(at_ns - self.session_ns)
        reasons = (self._silences(one, process, at_ns) for one in faults)
        return next(filter(None, reasons), None)

    def _read(self, body: FaultInjected) -> None:
        """Keeps what the arguments of a fault of links tell about heartbeats."""
        delay_ns = longest_delay_ns(body)
        if delay_ns is not None:
            self.delays[body.fault_id] = delay_ns
        arguments = json.decode(body.arguments) if body.arguments else {}
        apis = arguments.get("apis") if body.acts(Effect.HOLDS) else None
        if apis and HEARTBEAT not in apis:
            self.holding.add(body.fault_id)
        if body.acts(*SILENCING):
            self.silencing.add(body.fault_id)

    def _silences(self, fault: Excuse, process: str, at_ns: int) -> Reason | None:
        """How a fault may end the session of a process; None if it cannot.

        Heartbeats must pass in the broker's direction. Where no data passes back, a broker waits
        for an answer, and sends no other heartbeat meanwhile.
        """
        if fault.hits(process):
            # Another one, as a fault of its disk, may end its session when it begins. A process
            # that has its id two sessions later was heard under it.
            lasts = not self.session_ns or at_ns - fault.began_ns <= 2 * self.session_ns
            acts = lasts or fault.fault_id in self.silencing
            return fault.reason(process, self.controllers.__contains__) if acts else None
        delay_ns = self.delays.get(fault.fault_id)
        short = delay_ns is not None and DELAYS * delay_ns < self.session_ns
        if short or fault.fault_id in self.holding:
            return None
        own, settled = slot_of(process), at_ns - self.elected_ns > 2 * self.session_ns
        asked = {self.active} if self.active and settled else self.controllers
        for one in sorted(asked):
            ways = {(own, one), (one, own)} if fault.severs else {(own, one)}
            if not ways.isdisjoint(fault.directions):
                return fault.upon_link(process, one)
        return None
