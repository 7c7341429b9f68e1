"""A promise of every system: a node ends only when it is asked to, or says why it may.

A crash hides well. The supervisor starts the next process within a second, the cluster fails over
as it does for a kill, and every other promise is kept. So the end itself is judged, by the harness,
which sees each end and knows whether it caused it.

* A node that has left for good says so (`NodeStopped`), and ends with code 0. It is excused, with
  its words. So is one beside which another process had its id, whatever its code: a system may
  refuse the id to either of them. One that says nothing at all has crashed even then.
* A node whose disk a fault damaged, emptied or kept from flushing need not be able to go on.
* A node that starts may need others, and end if these do not answer: its supervisor tries again. So
  an end within 30 s of its start is excused if a fault acted meanwhile, unless that ended the
  process before it.
* A signal that ends a process for good comes from outside: the kernel sends SIGKILL for lack of
  memory. And a machine without space on its disk lets no program run. Neither says anything about
  the node: undecided.
* Before the cluster was ready once, a node that cannot start is a failed start, and no broken
  promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from signal import Signals
from typing import Any, final

from msgspec import Struct

from fencepost import (
    CLIENT,
    HARMS_DISK,
    SECOND,
    Cause,
    Clause,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultHealed,
    FaultInjected,
    Findings,
    NodeStopped,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    Reason,
    Rule,
    Undecided,
    Violated,
    hookimpl,
    on,
    process_scope,
    slot_of,
    violated,
)

RUNNING = "AVAIL-running"
FROM_OUTSIDE = frozenset({Signals.SIGKILL, Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP})
"""The signals that a program does not send to itself when it crashes."""
STARTS_WITHIN_NS = 30 * SECOND
"""How long a node may take to start. Kafka in ZooKeeper mode waits 18 s for a server once its JVM
runs, and ends."""


@dataclass(slots=True)
class _Node:
    """A live process of a node."""

    slot: str
    identity: tuple[str, int]
    """Its role and its id. A second process may have the same."""
    began_ns: int
    first: bool
    """Whether it began before the cluster was ready: then it is not starting any more."""
    faults: set[str]
    """The faults that have acted since it began."""
    rivalled: bool = False
    """Whether a process with the same identity ran beside it at any time."""
    stopped: NodeStopped | None = None
    """Why it ends, as it said."""
    said_at: tuple[Cause, ...] = ()
    """The event by which it said so."""


@dataclass(slots=True)
class _Nodes:
    alive: dict[str, _Node] = field(default_factory=dict)
    """process -> the node."""
    faults: dict[str, frozenset[str]] = field(default_factory=dict)
    """Those that act -> the slots that each acts upon itself, and not upon links."""
    harmed: dict[str, str] = field(default_factory=dict)
    """slot -> the last fault that harmed its disk. No later process is sure to read that disk."""
    began: bool = False
    """Whether the cluster was ready once."""

    def spawned(self, event: Event, body: ProcessSpawned) -> None:
        """A node's process began: from now on it is the rival of those that have its identity. What
        ended the process before it is over, though its healing is told later."""
        new = self.alive[body.started] = _Node(
            body.slot,
            (body.role, body.node_id),
            event.at_ns,
            not self.began,
            {one for one, upon in self.faults.items() if body.slot not in upon},
        )
        for name, one in self.alive.items():
            if name != body.started and one.identity == new.identity and one.slot != new.slot:
                one.rivalled = new.rivalled = True

    def struck(self, body: FaultInjected) -> None:
        """A fault acts from now on."""
        upon = () if body.directions else body.targets
        self.faults[body.fault_id] = frozenset(slot_of(one) for one in upon)
        for node in self.alive.values():
            node.faults.add(body.fault_id)
        self.harmed |= dict.fromkeys(body.acts(*HARMS_DISK), body.fault_id)

    def ended(self, event: Event, body: ProcessExited, node: _Node) -> Findings:
        """The findings about the end of a process."""
        if body.expected:
            return (Exercised(event.ref, Evidence.PEER),) if self.began else ()
        if not self.began:
            unready = Reason("before the cluster was ready")
            return (Undecided.of(_by_itself(event, body, node), unready, ", "),)
        if not body.signal and body.exit_code < 0:
            unseen = Reason("how it ended is not known: it was no process of Fencepost's")
            return (Undecided.of(_by_itself(event, body, node), unseen, ", "),)
        if body.lacked:
            lacked = Reason.of("{lacked}", lacked=body.lacked)
            return (Undecided.of(_by_itself(event, body, node), lacked),)
        if body.signal in FROM_OUTSIDE:
            outside = Reason.of(
                "{process} was ended from outside of the run, by {signal}",
                process=process_scope(body.ended),
                signal=Signals(body.signal).name,
            )
            return (Undecided.since(outside),)
        excuse = self._excuse(event, body, node)
        if excuse is not None:
            return (Excused.of(_by_itself(event, body, node), excuse),)
        said = ", and last said: {said}" if body.said else ""
        return (_by_itself(event, body, node, said),)

    def _excuse(self, event: Event, body: ProcessExited, node: _Node) -> Reason | None:
        """Why a node may have ended by itself; None if nothing excuses it."""
        said = node.stopped.reason if node.stopped is not None else ""
        if node.rivalled and (said or body.said):
            template = 'another process had its id; it said "{said}"'
            return Reason.of(template, said=said or body.said, rivalled=True)
        if node.stopped is not None and not body.exit_code:
            return Reason.of('it said "{said}"', said=said)
        starting = not node.first and event.at_ns - node.began_ns <= STARTS_WITHIN_NS
        if node.faults and starting:
            return Reason.of("it was starting as {fault} acted", fault=min(node.faults))
        if node.slot in self.harmed:
            return Reason.of("{fault} harmed its disk", fault=self.harmed[node.slot])
        return None


def _by_itself(event: Event, body: ProcessExited, node: _Node, and_said: str = "") -> Violated:
    how = "by signal {signal}" if body.signal else "with exit code {exit_code}"
    return violated(
        event.ref,
        Evidence.PEER,
        f"{{process}} ended by itself {how}{and_said}",
        node.said_at,
        process=process_scope(body.ended),
        exit_code=body.exit_code,
        signal=body.signal,
        said=body.said,
    )


@final
class EndsOnlyWhenAsked(Rule[_Nodes]):
    """AVAIL-running; see the module. Exercised by each node that ends when it is asked or made to,
    such as at the end of the run."""

    clause = RUNNING
    state = _Nodes

    @on(ProcessSpawned, ProcessExited, NodeStopped, FaultInjected, FaultHealed, PhaseStarted)
    def step(self, state: _Nodes, event: Event, body: Struct) -> Findings:
        match body:
            case ProcessSpawned() if body.role != CLIENT:
                state.spawned(event, body)
            case NodeStopped() if event.process in state.alive:
                node = state.alive[event.process]
                node.stopped, node.said_at = body, (event.ref,)
            case FaultInjected(receipt=True):
                state.struck(body)
            case FaultHealed(fault_id=fault_id):
                state.faults.pop(fault_id, None)
            case PhaseStarted(phase="load"):
                state.began = True
            case ProcessExited(ended=ended) if ended in state.alive:
                return state.ended(event, body, state.alive.pop(ended))
        return ()


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return (
        Clause(
            id=RUNNING,
            source="availability",
            planes=(),
            says="A node ends only when it is asked to, or says why it may.",
            note="it may end itself when another process has its id, or when it starts and a fault "
            "keeps it from what it needs; a node that crashes is started again, as a supervisor "
            "does, and at its third crash within a minute the run gives up",
        ),
    )


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return (EndsOnlyWhenAsked(),)
