"""What the controller owes to the newest processes of brokers, and the faults that excuse it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excused,
    Excuses,
    FaultHealed,
    FaultInjected,
    Finding,
    Findings,
    NodeStarted,
    NodeStopped,
    ProcessExited,
    Reason,
    Violated,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerChangeHandled,
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    ControllerBegan,
    ControllerElected,
    ControllerEnded,
    ControllerResigned,
    SessionChanged,
    broker_of,
)

BOUND_NS = 6_000 * MS
"""How long a controller may take to handle a broker change, and to initialise a broker. The
documents name no time; on a busy machine, each takes a fraction of this."""
ALL_TERMS_NS = 5 * BOUND_NS
"""How long all controllers together may take, each in its term."""
SESSION_NS = 18_000 * MS
"""Apache Kafka's session timeout, after which a controller without ZooKeeper is replaced."""


@final
@dataclass(slots=True)
class Due:
    """An action that the controller owes to the newest process of a broker."""

    process: str
    epoch: int
    at: Cause
    since_ns: int
    bounced: bool
    registered_ns: int
    excused_ns: int = 0
    """Until when a fault excuses the controller."""
    excuse: Reason | None = None
    """What that fault did."""
    counted: bool = False
    """Whether the excuse was reported: the action would have been overdue."""
    waited_ns: int = 0
    """For how long former controllers owed it, each in its term."""
    overlooked: bool = False
    """Whether the controller has compared registrations since, and saw no difference."""


@final
@dataclass(slots=True)
class Owed:
    """The current controller, and the actions that it owes to brokers."""

    controller: str = ""
    began_ns: int = 0
    due: dict[int, Due] = field(default_factory=dict)
    found: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """broker -> the newest broker epoch that a controller has declared, and whether the reason was
    a bounce. The declaration may come before the broker's own event about its registration."""
    held: dict[int, int] = field(default_factory=dict)
    """broker -> the broker epoch that the controller declared first, since it began or since it
    declared the broker absent."""
    compared: dict[int, bool] = field(default_factory=dict)
    """broker -> whether the controller's log has the broker's newest process as bounced."""
    by_log: bool = False
    """Whether the controller is Apache Kafka's. Its cluster over ZooKeeper keeps a broker that the
    controller cannot reach, so no action is due to a broker while a fault names it."""
    faults: Excuses = field(default_factory=Excuses)
    suspects: list[Deadline] = field(default_factory=list)

    def remove(self, process: str) -> None:
        """Drops a process that has ended, or is no longer a broker: nothing is owed to it."""
        self.due = {b: one for b, one in self.due.items() if one.process != process}
        if process == self.controller:
            self.controller = ""

    def leave(self, at_ns: int) -> None:
        """The controller leaves office: what it owed is left to its successor."""
        for one in self.due.values() if self.controller else ():
            since_ns = max(one.since_ns, self.began_ns, one.excused_ns)
            one.waited_ns += max(0, at_ns - since_ns)

    def begin(self, event: Event) -> None:
        """Begins a controller's term: the time for all that is owed starts now."""
        self.leave(event.at_ns)
        self.controller, self.began_ns = event.process, event.at_ns
        self.held.clear()

    def overdue(self, now_ns: int, template: str, needs_broker: bool = True) -> Findings:
        """Adds a suspect for each action that has been due for longer than the bound, with the
        facts of `_overdue`. Returns the excuses of those that would have been, but for a fault.

        `needs_broker`: the action is a request to the broker, and not only a look at ZooKeeper.
        """
        if not self.controller:
            return NOTHING
        found: list[Finding] = []
        for broker, one in list(self.due.items()):
            excuse = self._excuse(one, now_ns, needs_broker)
            if excuse is not None:
                one.excused_ns, one.excuse = now_ns, excuse
            # Each controller has the whole time for what it finds.
            began_ns = max(one.since_ns, self.began_ns)
            # All of them have a multiple of it: a new one each five seconds once owed nothing.
            in_all_ns = one.waited_ns + now_ns - max(began_ns, one.excused_ns)
            if now_ns > began_ns and in_all_ns > ALL_TERMS_NS:
                broken = self._overdue(template, broker, one, in_all_ns)
                self.suspects.append(
                    Deadline(
                        broken,
                        (self.controller,),
                        one.since_ns,
                        now_ns,
                        bound_ns=ALL_TERMS_NS,
                        due_ns=now_ns - in_all_ns + ALL_TERMS_NS,
                    )
                )
                del self.due[broker]
                continue
            if now_ns - began_ns <= BOUND_NS:
                continue
            # A fault that acted until then begins the time anew. What is excused by that is printed
            # once.
            from_ns = max(began_ns, one.excused_ns)
            since_ns = from_ns if now_ns - from_ns > BOUND_NS else began_ns
            broken = self._overdue(template, broker, one, now_ns - since_ns)
            if one.excuse is not None and now_ns - from_ns <= BOUND_NS:
                if not one.counted:
                    one.counted = True
                    found.append(Excused.of(broken, one.excuse, "; but "))
                continue
            due_ns = from_ns + BOUND_NS
            late = Deadline(
                broken, (self.controller,), from_ns, now_ns, bound_ns=BOUND_NS, due_ns=due_ns
            )
            self.suspects.append(late)
            del self.due[broker]
        return found

    def _overdue(self, template: str, broker: int, one: Due, since_ns: int) -> Violated:
        return violated(
            one.at,
            Evidence.PEER,
            template,
            process=process_scope(self.controller),
            other=process_scope(one.process),
            broker=broker_of(broker),
            epoch=one.epoch,
            with_epoch=f" with broker epoch {one.epoch}" if one.epoch >= 0 else "",
            since_ns=since_ns,
            mistook=", and took it for its former process" if one.overlooked else "",
            overlooked=one.overlooked,
        )

    def gone(self, broker: int) -> None:
        """The controller finds no registration of a broker. Nothing is owed to a process whose
        session may have ended by a fault, and its registration with it."""
        due = self.due.get(broker)
        if due is not None and any(self.faults.among((due.process,), _is_zookeeper)):
            del self.due[broker]

    def _excuse(self, one: Due, now_ns: int, needs_broker: bool) -> Reason | None:
        """Which fault may keep the controller from an action; None if none may.

        A broker that registers during a fault reaches ZooKeeper, which thus serves. If the
        controller does not, another is elected after the session timeout.
        """
        if needs_broker:
            for fault in self.faults.now.values():
                if fault.between(one.process, self.controller):
                    return fault.upon_link(one.process, self.controller)
        if not self.by_log:
            return None
        for fault in self.faults.now.values():
            # Which server the controller is connected to is not known.
            if fault.slots and all(map(_is_zookeeper, fault.slots)):
                return Reason.of(
                    "{fault} acted upon {servers}",
                    fault=fault.fault_id,
                    servers=", ".join(sorted(fault.slots)),
                )
        both = one.process, self.controller
        for fault, reason in self.faults.among(both, _is_zookeeper):
            if (
                needs_broker
                or one.registered_ns < fault.began_ns
                or now_ns <= one.registered_ns + SESSION_NS
            ):
                return reason
        return None


def _is_zookeeper(slot: str) -> bool:
    return slot.startswith("zookeeper-")


CONTROLLER_KINDS: frozenset[type[Struct]] = frozenset(
    {
        *(BrokerRegistered, BrokerDeclared, ControllerBegan, ControllerEnded, SessionChanged),
        *(BrokerStateChanged, BrokerStopping, NodeStopped, ProcessExited),
        *(BrokerChangeHandled, ControllerElected, ControllerResigned),
        *(FaultInjected, FaultHealed, NodeStarted),
    }
)


def apply_term(state: Owed, event: Event) -> None:
    """Applies an event about the current controller, or about which processes are brokers."""
    body = event.body
    if event.process == state.controller or isinstance(body, ProcessExited):
        gone = isinstance(body, ControllerEnded | ControllerResigned | NodeStopped)
        if gone or (isinstance(body, ProcessExited) and body.ended == state.controller):
            state.leave(event.at_ns)
    match body:
        case ControllerBegan():
            state.begin(event)
        case ControllerElected():
            state.begin(event)
            state.by_log = True
        case ControllerEnded() | ControllerResigned() if event.process == state.controller:
            state.controller = ""
        case FaultInjected() | FaultHealed():
            state.faults.take(event)
        case ProcessExited():
            state.remove(body.ended)
        case NodeStopped():
            state.remove(event.process)
        case SessionChanged(state="ended") | BrokerStateChanged(reason="taken_over"):
            state.remove(event.process)
        case BrokerStopping():
            state.due = {b: one for b, one in state.due.items() if one.process != event.process}
        case _:
            pass
