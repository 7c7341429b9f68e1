"""The cluster as a test sees it: its nodes, and the only way to wait.

Everything here is a value over the run's events: a `Node` holds no connection and a condition asks
no node. Time passes only in `Cluster.eventually`, `comes_to` and `await_recovery`. A system's own
terms (a leader, a holder of a lock) are in its facade (`Faceted`).

See docs/decisions/03-waiting.md.
See docs/decisions/23-duplicates.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, final, runtime_checkable

from fencepost.events import ClusterRecovered, Event, Stalled
from fencepost.model.clock import MS
from fencepost.model.errors import Inconclusive, Violation, no_such
from fencepost.model.runtime import Condition, Runtime, SeesBypass, Signal
from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import CLIENT, Layout, Slot
from fencepost.model.view import View

_STALL_SHARE = 10
"""A wait proves nothing if stalls took more than a tenth of it."""
_NAMED = 3
"""Of how many pairs of nodes the connections are named that pass no link."""
T = TypeVar("T")


@runtime_checkable
class InSlot(Protocol):
    """A value that stands for the node in a slot; faults accept it as a target."""

    @property
    def slot(self) -> Slot:
        """The node's slot."""
        ...


@final
@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A node, named by its slot. Conditions on it are about the newest process of the slot."""

    slot: Slot

    @property
    def name(self) -> str:
        """`broker-2`."""
        return self.slot.name

    def __str__(self) -> str:
        return self.name

    def process(self, view: View) -> str:
        """Its newest process, alive or not; empty if it never had one."""
        return view.newest.get(self.name, "")

    @property
    def alive(self) -> Condition:
        """Its newest process runs."""
        return Condition(f"{self} to be alive", lambda view: self.process(view) in view.alive)

    @property
    def started(self) -> Condition:
        """Its newest process has written `node.started`."""
        return Condition(f"{self} to start", lambda view: self.process(view) in view.node_of)

    @property
    def dead(self) -> Condition:
        """Its newest process has ended, or it never had one."""
        return Condition(f"{self} to be dead", lambda view: self.process(view) not in view.alive)


@runtime_checkable
class Configured(Protocol):
    """A system that can say how a node would read a configuration, without starting the node."""

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Every setting as a node with this configuration has it; raises UsageError if the node
        would refuse to start."""
        ...


@runtime_checkable
class Supersedes(Protocol):
    """A system in which a process may lose its id to another one for good."""

    def superseded(self, view: View, layout: Layout) -> Collection[Slot]:
        """The slots whose process never regains its id, though the other one has ended.

        While the harness awaits recovery, it kills such a process and starts the next one in its
        slot, as an operator would. This is called after every event.
        """
        ...


@final
class Cluster:
    """The cluster under test, of any system."""

    def __init__(
        self,
        runtime: Runtime,
        missing: Callable[[View], Sequence[str]],
        recovery_bound_ms: int,
        shape: Shape,
        system: object = None,
    ) -> None:
        self.runtime = runtime
        """For facades of systems; a test does not need it."""
        self.missing = missing
        self.recovery_bound_ms = recovery_bound_ms
        self.shape = shape
        self._system = system

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, without duplicates and spares."""
        return tuple(Node(slot) for slot in self.runtime.layout.nodes())

    def of(self, role: str) -> tuple[Node, ...]:
        """Every node of a role except duplicates and spares; raises UsageError for an unknown
        role."""
        layout = self.runtime.layout
        if role not in layout.roles:
            raise no_such("role", role, layout.roles)
        return tuple(Node(slot) for slot in layout.of(role))

    def node(self, name: str) -> Node:
        """The node of that name, duplicates included; raises UsageError with the nearest name."""
        nodes = {s.name: s for s in self.runtime.layout.slots if s.role != CLIENT}
        if name not in nodes:
            raise no_such("node", name, nodes)
        return Node(nodes[name])

    def start(self, node: InSlot) -> None:
        """Starts a spare node for the first time; returns before it is ready.

        Raises UsageError if a process is alive there already.
        """
        self.runtime.start(node.slot)

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """How a node of this system would read these properties: the value of every setting.

        Raises UsageError if the node would refuse to start, with the node's own sentence, and
        Inconclusive if the system cannot tell.
        """
        if not isinstance(self._system, Configured):
            raise Inconclusive("this system does not say how it reads a configuration")
        return self._system.effective(properties)

    @property
    def recovered(self) -> Condition:
        """Nothing is missing; see `System.missing`."""
        return Condition("the cluster to recover", lambda view: not self.missing(view))

    def holds(self, condition: Condition) -> bool:
        """Whether the condition holds now, by the events so far."""
        return condition.holds(self.runtime.view)

    def eventually(self, condition: Condition, within_ms: int | None = None) -> Event:
        """Lets time pass until the condition holds; returns the event that decided it.

        The limit is the cluster's recovery bound unless given. Raises Violation if the condition
        does not hold in time, Inconclusive if the machine stalled in between or nodes have
        connections on which the faults of this run did not act, and EnvironmentFailed if a process
        died that should be alive and is not started again.
        """
        __tracebackhide__ = True  # pytest shows the test, and not these lines
        limit_ms = self._limit_ms(within_ms)
        event = self._await(condition, limit_ms)
        if event is None:
            raise Violation(_in_vain(condition, limit_ms))
        return event

    def comes_to(self, condition: Condition, within_ms: int | None = None) -> bool:
        """Whether the condition holds in time; raises as `eventually` does, but no Violation."""
        return self._await(condition, self._limit_ms(within_ms)) is not None

    def await_recovery(self) -> ClusterRecovered:
        """Lets time pass until the cluster has recovered or its bound is over; returns the outcome.

        A process that has lost its id for good is replaced by the next one in its slot, once, and
        the bound begins anew.
        """
        began_ns = self.runtime.now_ns()
        bound_ms = self.recovery_bound_ms
        replaced: set[Slot] = set()
        lost: set[Slot] = set()

        def settled(view: View) -> bool:
            lost.clear()
            # Each slot is replaced once: if the next process loses its id as well, the cluster has
            # not recovered.
            lost.update(self._superseded(view) - replaced)
            return bool(lost) or not self.missing(view)

        condition = Condition(self.recovered.description, settled)
        lacks: tuple[str, ...] = ()
        while True:
            # A bound of its own after each replacement: a process that has just started needs the
            # whole of it.
            if self.runtime.advance(condition, self.runtime.now_ns() + bound_ms * MS) is None:
                lacks = (*self.missing(self.runtime.view), *self._bypassing())
                break
            if not lost:
                break
            for slot in sorted(lost, key=lambda one: one.name):
                self._replace(slot)
                replaced.add(slot)
        took_ms = (self.runtime.now_ns() - began_ns) // MS
        return ClusterRecovered(
            recovered=not lacks, took_ms=took_ms, bound_ms=bound_ms, missing=lacks
        )

    def found(self, what: str, find: Callable[[View], T | None]) -> T:
        """Lets time pass until `find` finds something, and returns it; raises as `eventually` does.

        The result is read in the first view in which it exists, since the next event may remove it.
        """
        __tracebackhide__ = True
        found: T | None = None

        def holds(view: View) -> bool:
            # Kept from the view in which the condition came true: after the wait, later events may
            # have removed it.
            nonlocal found
            found = find(view)
            return found is not None

        self.eventually(Condition(what, holds))
        assert found is not None
        return found

    def _superseded(self, view: View) -> frozenset[Slot]:
        if not isinstance(self._system, Supersedes):
            return frozenset()
        return frozenset(self._system.superseded(view, self.runtime.layout))

    def _replace(self, slot: Slot) -> None:
        """Kills the process in a slot, and starts the next one."""
        process = self.runtime.living(slot)
        if process is None:
            return
        self.runtime.signal(process, Signal.KILL)
        # A slot holds one process, so the next one is started only once this one's end is in the
        # history.
        ended = Condition(f"{process.name} to end", lambda view: process.name not in view.alive)
        self._await(ended, self.recovery_bound_ms)
        self.start(Node(slot))

    def _limit_ms(self, within_ms: int | None) -> int:
        return self.recovery_bound_ms if within_ms is None else within_ms

    def _await(self, condition: Condition, limit_ms: int) -> Event | None:
        __tracebackhide__ = True
        began_ns = self.runtime.now_ns()
        event = self.runtime.advance(condition, began_ns + limit_ms * MS)
        if event is None:
            stalled_ms = stalled_since(self.runtime.events(), began_ns) // MS
            # In vain, and the machine stood still for more than a tenth of the time: nobody can
            # tell whether the condition would have come true. If it does come true, stalls do not
            # matter.
            if stalled_ms * _STALL_SHARE > limit_ms:
                waited = _in_vain(condition, limit_ms)
                raise Inconclusive(f"{waited}, but processes stalled for {stalled_ms} ms of it")
            if past := "; ".join(self._bypassing()):
                waited = _in_vain(condition, limit_ms)
                raise Inconclusive(f"{waited}, and a fault of links did not act on all: {past}")
        return event

    def _bypassing(self) -> Sequence[str]:
        runtime = self.runtime
        return runtime.bypassing()[:_NAMED] if isinstance(runtime, SeesBypass) else ()


def _in_vain(condition: Condition, limit_ms: int) -> str:
    return f"waited {limit_ms} ms for {condition.description}, in vain"


def stalled_since(events: Sequence[Event], from_ns: int) -> int:
    """The longest time that any one process has stalled since then, in nanoseconds."""
    stalls: dict[str, int] = {}
    for event in events:
        if isinstance(event.body, Stalled) and event.at_ns >= from_ns:
            # The stalls of one process are added up. Of several processes the longest counts: they
            # may have stood still at the same time.
            process = event.body.of or event.process
            stalls[process] = stalls.get(process, 0) + event.body.stalled_ns
    return max(stalls.values(), default=0)
