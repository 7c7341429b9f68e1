"""The cluster as a test sees it: its nodes, and the only way to wait.

Everything here is a value over the run's events: a `Node` holds no connection and a condition asks
no node. Time passes in `Cluster.eventually`, `comes_to` and `await_recovery` alone. What a system
has beyond nodes (a leader, an active controller) is in its facade (`Faceted`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, final, runtime_checkable

from fencepost.events import ClusterRecovered, Event, Stalled
from fencepost.model.clock import MS
from fencepost.model.errors import Inconclusive, Violation, no_such
from fencepost.model.runtime import Condition, Runtime
from fencepost.model.shape import Shape
from fencepost.model.topology import CLIENT, Slot
from fencepost.model.view import View

_STALL_SHARE = 10
"""A wait of which stalls took more than a tenth proves nothing."""
T = TypeVar("T")


@runtime_checkable
class InSlot(Protocol):
    """Anything that stands for the node in a slot; faults take it for their targets."""

    @property
    def slot(self) -> Slot: ...


@final
@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A node by its slot. Of the slot's processes the newest is meant."""

    slot: Slot

    @property
    def name(self) -> str:
        """`broker-2`."""
        return self.slot.name

    def __str__(self) -> str:
        return self.name

    def process(self, view: View) -> str:
        """Its newest process, alive or not; empty when it never had one."""
        return view.newest.get(self.name, "")

    @property
    def alive(self) -> Condition:
        return Condition(f"{self} to be alive", lambda view: self.process(view) in view.alive)

    @property
    def started(self) -> Condition:
        """Its newest process has written `node.started`."""
        return Condition(f"{self} to start", lambda view: self.process(view) in view.node_of)

    @property
    def dead(self) -> Condition:
        return Condition(f"{self} to be dead", lambda view: self.process(view) not in view.alive)


@runtime_checkable
class Configured(Protocol):
    """A system that can say what a node would make of a configuration, without starting it."""

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Every setting as a node so configured has it; raises UsageError where it would refuse."""
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
        """For facades of systems; a test has no need of it."""
        self.missing = missing
        self.recovery_bound_ms = recovery_bound_ms
        self.shape = shape
        self._system = system

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, without duplicates and spares."""
        return tuple(Node(slot) for slot in self.runtime.layout.nodes())

    def of(self, role: str) -> tuple[Node, ...]:
        """Every node of a role but duplicates and spares; raises UsageError for no such role."""
        layout = self.runtime.layout
        if role not in layout.roles:
            raise no_such("role", role, layout.roles)
        return tuple(Node(slot) for slot in layout.of(role))

    def node(self, name: str) -> Node:
        """The node of that name, duplicates too; raises UsageError with the nearest."""
        nodes = {s.name: s for s in self.runtime.layout.slots if s.role != CLIENT}
        if name not in nodes:
            raise no_such("node", name, nodes)
        return Node(nodes[name])

    def start(self, node: InSlot) -> None:
        """Starts a spare node for the first time; returns before it is ready.

        Raises UsageError when a process lives there already.
        """
        self.runtime.start(node.slot)

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """What a node of this system would make of these properties: every setting as it has it.

        Raises UsageError where the node would refuse to start, with the sentence it refuses by, and
        Inconclusive where the system does not say.
        """
        if not isinstance(self._system, Configured):
            raise Inconclusive("this system does not say what it makes of a configuration")
        return self._system.effective(properties)

    @property
    def recovered(self) -> Condition:
        """Nothing is missing; see `System.missing`."""
        return Condition("the cluster to recover", lambda view: not self.missing(view))

    def holds(self, condition: Condition) -> bool:
        """Whether the condition holds now, by the events so far."""
        return condition.holds(self.runtime.view)

    def eventually(self, condition: Condition, within_ms: int | None = None) -> Event:
        """Lets time pass until the condition holds; the event that decided it.

        The limit is the cluster's recovery bound unless given. Raises Violation when the condition
        does not come to hold in time, Inconclusive when the machine stood still meanwhile, and
        EnvironmentFailed when a process died that should live.
        """
        limit_ms = self._limit_ms(within_ms)
        event = self._await(condition, limit_ms)
        if event is None:
            raise Violation(_in_vain(condition, limit_ms))
        return event

    def comes_to(self, condition: Condition, within_ms: int | None = None) -> bool:
        """Whether the condition comes to hold in time; raises as `eventually`, but no Violation."""
        return self._await(condition, self._limit_ms(within_ms)) is not None

    def await_recovery(self) -> ClusterRecovered:
        """Lets time pass until the cluster has recovered or its bound is over; what came of it."""
        began_ns = self.runtime.now_ns()
        bound_ms = self.recovery_bound_ms
        lacks: tuple[str, ...] = ()
        if self.runtime.advance(self.recovered, began_ns + bound_ms * MS) is None:
            lacks = tuple(self.missing(self.runtime.view))
        took_ms = (self.runtime.now_ns() - began_ns) // MS
        return ClusterRecovered(not lacks, took_ms, bound_ms, lacks)

    def found(self, what: str, find: Callable[[View], T | None]) -> T:
        """Lets time pass until `find` finds something, and returns it; raises as `eventually`.

        It is found in the view in which it is first there: it may be gone in the next one.
        """
        found: T | None = None

        def holds(view: View) -> bool:
            nonlocal found
            found = find(view)
            return found is not None

        self.eventually(Condition(what, holds))
        assert found is not None
        return found

    def _limit_ms(self, within_ms: int | None) -> int:
        return self.recovery_bound_ms if within_ms is None else within_ms

    def _await(self, condition: Condition, limit_ms: int) -> Event | None:
        began_ns = self.runtime.now_ns()
        event = self.runtime.advance(condition, began_ns + limit_ms * MS)
        if event is None:
            stalled_ms = stalled_since(self.runtime.events(), began_ns) // MS
            if stalled_ms * _STALL_SHARE > limit_ms:
                waited = _in_vain(condition, limit_ms)
                raise Inconclusive(f"{waited}, but processes stood still for {stalled_ms} ms of it")
        return event


def _in_vain(condition: Condition, limit_ms: int) -> str:
    return f"waited {limit_ms} ms for {condition.description}, in vain"


def stalled_since(events: Sequence[Event], from_ns: int) -> int:
    """The longest time that any one process stood still since then, in nanoseconds."""
    stalls: dict[str, int] = {}
    for event in events:
        if isinstance(event.body, Stalled) and event.at_ns >= from_ns:
            stalls[event.process] = stalls.get(event.process, 0) + event.body.stalled_ns
    return max(stalls.values(), default=0)
