"""The cluster as a test sees it: its nodes, what can be awaited of them, and the only way to wait.

Everything here is a value over the run's events: a `Node` holds no connection and a condition asks
no node. Time passes in `Cluster.eventually`, `comes_to` and `await_recovery` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fencepost.events.kinds import ClusterRecovered, Event, Stalled
from fencepost.model.clock import MS
from fencepost.model.errors import Inconclusive, Violation, no_such
from fencepost.model.runtime import Condition, Runtime, describe
from fencepost.model.systems import Configured, Timing
from fencepost.model.topology import Layout, Role, Slot
from fencepost.model.view import View

_DISOWNED = ("DUPLICATE_BROKER_REGISTRATION", "STALE_BROKER_EPOCH")
_STALL_SHARE = 10
"""A wait of which stalls ate more than a tenth proves nothing."""


@final
@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A node by its slot; which of its processes is meant is for the moment to say: the newest.

    `other` is set for the controller that lives in a broker's process.
    """

    slot: Slot
    other: Role | None = None

    @property
    def name(self) -> str:
        """`broker-2`."""
        return self.slot.name

    @property
    def id(self) -> int:
        """2."""
        found = self.slot.id_as(self.role)
        assert found is not None, f"no {self.role} lives in {self}"
        return found

    @property
    def role(self) -> Role:
        """Whether it is meant as a controller or as a broker."""
        return self.other or self.slot.role

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
        """Its newest process has said who it is: the reference's listens by then."""
        return Condition(f"{self} to start", lambda view: self.process(view) in view.node_of)

    @property
    def dead(self) -> Condition:
        return Condition(f"{self} to be dead", lambda view: self.process(view) not in view.alive)

    @property
    def active(self) -> Condition:
        """The broker says of itself that it is ACTIVE."""
        return self._in_state("ACTIVE")

    @property
    def fenced(self) -> Condition:
        """The broker says of itself that it is FENCED."""
        return self._in_state("FENCED")

    @property
    def disowned(self) -> Condition:
        """The last word it got about its lease is that its id or epoch is another's by now."""

        def holds(view: View) -> bool:
            process = self.process(view)
            refusal = view.latest.get((process, "broker.heartbeat_refused"))
            granted = view.latest.get((process, "broker.lease_granted"))
            if refusal is None or getattr(refusal.body, "error", "") not in _DISOWNED:
                return False
            return granted is None or granted.node_seq < refusal.node_seq

        return Condition(f"{self} to be refused as no longer the owner of its id", holds)

    @property
    def refused(self) -> Condition:
        """A controller has refused a heartbeat of the broker, and not for being inactive."""

        def holds(view: View) -> bool:
            refusal = view.latest.get((self.process(view), "broker.heartbeat_refused"))
            error = getattr(refusal.body, "error", "") if refusal is not None else ""
            return error not in ("", "NOT_CONTROLLER")

        return Condition(f"{self} to be refused", holds)

    @property
    def fenced_by_controller(self) -> Condition:
        """The committed metadata says of the broker that it is fenced."""
        return Condition(
            f"{self} to be fenced in the metadata", lambda view: view.fenced.get(self.id, False)
        )

    @property
    def caught_up(self) -> Condition:
        """The node has replayed every metadata record that anybody told is committed."""
        return Condition(
            f"{self} to have replayed all committed metadata",
            lambda view: view.applied.get(self.process(view), -1) >= view.committed,
        )

    @property
    def renewed(self) -> Condition:
        """The broker's newest lease is of the active controller."""

        def holds(view: View) -> bool:
            lease = view.latest.get((self.process(view), "broker.lease_granted"))
            epoch = getattr(lease.body, "controller_epoch", -1) if lease is not None else -1
            return view.active_controller is not None and epoch == view.controller_epoch

        return Condition(f"{self} to hold a lease of the active controller", holds)

    @property
    def elected(self) -> Condition:
        """The controller says of itself that it is the active one, and nobody says so since."""
        return Condition(
            f"{self} to be the active controller",
            lambda view: self.role is Role.CONTROLLER and view.active_controller == self.id,
        )

    @property
    def from_snapshot(self) -> Condition:
        """Its newest process has rebuilt its metadata from a snapshot."""
        return Condition(
            f"{self} to load a snapshot",
            lambda view: (self.process(view), "snapshot.loaded") in view.latest,
        )

    def refused_with(self, error: str) -> Condition:
        """The newest refusal of a heartbeat that it got names this error."""

        def holds(view: View) -> bool:
            refusal = view.latest.get((self.process(view), "broker.heartbeat_refused"))
            return refusal is not None and getattr(refusal.body, "error", "") == error

        return Condition(f"{self} to be refused with {error}", holds)

    def leads(self, topic: str, partition: int) -> Condition:
        """The broker serves as the partition's leader, in its newest epoch."""
        return Condition(
            f"{self} to lead {topic}-{partition}",
            lambda view: _serving(view, topic, partition) == self.id,
        )

    def in_sync(self, topic: str, partition: int) -> Condition:
        """The broker is in the partition's ISR, as committed."""

        def holds(view: View) -> bool:
            known = view.partitions.get((topic, partition))
            return known is not None and self.id in known.isr

        return Condition(f"{self} to be in the ISR of {topic}-{partition}", holds)

    def checkpointed(self, topic: str, partition: int) -> Condition:
        """The broker's process has stored a high watermark above 0 of its replica."""
        return Condition(
            f"{self} to checkpoint {topic}-{partition}",
            lambda view: view.checkpointed.get((self.process(view), topic, partition), 0) > 0,
        )

    def _in_state(self, state: str) -> Condition:
        return Condition(
            f"{self} to be {state}", lambda view: view.state.get(self.process(view)) == state
        )


@final
class Cluster:
    """The cluster under test."""

    def __init__(self, runtime: Runtime, timing: Timing, system: object = None) -> None:
        self._runtime = runtime
        self._system = system
        self.timing = timing
        """The bounds of this cluster's configuration, in milliseconds."""

    @property
    def brokers(self) -> tuple[Node, ...]:
        """Every broker, without twins and spares."""
        return self._of(Role.BROKER)

    @property
    def controllers(self) -> tuple[Node, ...]:
        """Every controller, without twins and spares."""
        return self._of(Role.CONTROLLER)

    def node(self, name: str) -> Node:
        """The node of that name (`broker-2-twin` too); raises UsageError with the nearest one."""
        nodes = {s.name: s for s in self._runtime.layout.slots if s.role is not Role.CLIENT}
        if name not in nodes:
            raise no_such("node", name, nodes)
        return Node(nodes[name])

    def start(self, node: Node) -> None:
        """Starts a spare node for the first time; returns before it is ready.

        Raises UsageError when a process lives there already.
        """
        self._runtime.start(node.slot)

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """What a node of this system would make of these properties: every setting as it has it.

        Raises UsageError where the node would refuse to start, with the sentence it refuses by.
        """
        if not isinstance(self._system, Configured):
            raise Inconclusive("this system does not say what it makes of a configuration")
        return self._system.effective(properties)

    @property
    def active_controller(self) -> Node:
        """The active controller, once there is one."""
        found = self._found("an active controller", lambda view: view.active_controller)
        return self._by_id(Role.CONTROLLER, found)

    @property
    def led_by_controllers(self) -> Condition:
        """Some living controller is the active one."""

        def holds(view: View) -> bool:
            slots = self._runtime.layout.of(Role.CONTROLLER, spares=True)
            return any(
                slot.id_as(Role.CONTROLLER) == view.active_controller
                and view.newest.get(slot.name, "") in view.alive
                for slot in slots
            )

        return Condition("a living controller to be active", holds)

    def another_controller(self, old: Node) -> Condition:
        """Some other controller says of itself that it is the active one."""
        return Condition(
            f"a controller other than {old} to be active",
            lambda view: view.active_controller not in (None, old.id),
        )

    def leader(self, topic: str, partition: int) -> Node:
        """The broker that serves as the partition's leader, once there is one."""
        wanted = self.led(topic, partition).description
        found = self._found(wanted, lambda view: _serving(view, topic, partition))
        return self._by_id(Role.BROKER, found)

    def followers(self, topic: str, partition: int) -> tuple[Node, ...]:
        """The other replicas of the partition, in its order."""
        leader = self.leader(topic, partition)
        replicas = self._runtime.view.partitions[topic, partition].replicas
        return tuple(self._by_id(Role.BROKER, r) for r in replicas if r != leader.id)

    def led(self, topic: str, partition: int) -> Condition:
        """Some broker serves as the partition's leader, in its newest epoch."""
        return Condition(
            f"{topic}-{partition} to have a leader",
            lambda view: _serving(view, topic, partition) is not None,
        )

    def another_leader(self, topic: str, partition: int, old: Node) -> Condition:
        """Some other broker serves as the partition's leader, in its newest epoch."""
        return Condition(
            f"a broker other than {old} to lead {topic}-{partition}",
            lambda view: _serving(view, topic, partition) not in (None, old.id),
        )

    def leaderless(self, topic: str, partition: int) -> Condition:
        """The partition has no leader, as committed."""

        def holds(view: View) -> bool:
            known = view.partitions.get((topic, partition))
            return known is not None and known.leader < 0

        return Condition(f"{topic}-{partition} to have no leader", holds)

    def next_flush(self, node: Node, topic: str, partition: int) -> Condition:
        """The broker says that more of the partition's log is synced than it said before."""
        key = (node.process(self._runtime.view), topic, partition)
        before = self._runtime.view.flushed.get(key, 0)
        return Condition(
            f"{node} to flush more of {topic}-{partition}",
            lambda view: view.flushed.get(key, 0) > before,
        )

    @property
    def recovered(self) -> Condition:
        """Every broker is active, every partition led, every ISR full, and no twin lives."""
        layout = self._runtime.layout
        return Condition("the cluster to recover", lambda view: not missing(view, layout))

    @property
    def all_committed(self) -> Condition:
        """Every leader has told that all it stored is below its high watermark.

        Of a system whose nodes tell no watermarks this is never waited for.
        """

        def holds(view: View) -> bool:
            if not view.kinds["replica.high_watermark"]:
                return True
            return all(p.high_watermark >= p.log_end for p in view.partitions.values())

        return Condition("all that is stored to be committed", holds)

    def assigned(self, topic: str, partition: int, replicas: Sequence[Node | int]) -> Condition:
        """The partition has these replicas, in this order, and no reassignment is under way."""
        wanted = tuple(r.id if isinstance(r, Node) else r for r in replicas)

        def holds(view: View) -> bool:
            known = view.partitions.get((topic, partition))
            moving = known is not None and (known.adding or known.removing)
            return known is not None and not moving and known.replicas == wanted

        return Condition(f"{topic}-{partition} to be on brokers {list(wanted)}", holds)

    def holds(self, condition: Condition) -> bool:
        """Whether the condition holds now, by the events so far."""
        return condition.holds(self._runtime.view)

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
        """As `eventually`, for a test that says itself what it means when it does not hold."""
        return self._await(condition, self._limit_ms(within_ms)) is not None

    def await_recovery(self) -> ClusterRecovered:
        """Lets time pass until the cluster has recovered or its bound is over; what came of it."""
        began_ns = self._runtime.now_ns()
        bound_ms = self.timing.recovery_bound_ms
        lacks: tuple[str, ...] = ()
        if self._runtime.advance(self.recovered, began_ns + bound_ms * MS) is None:
            lacks = missing(self._runtime.view, self._runtime.layout)
        took_ms = (self._runtime.now_ns() - began_ns) // MS
        return ClusterRecovered(not lacks, took_ms, bound_ms, lacks)

    def _found(self, what: str, find: Callable[[View], int | None]) -> int:
        """What is found in the very view in which it was there first: it may be gone in the next.

        Raises as `eventually`.
        """
        found: int | None = None

        def holds(view: View) -> bool:
            nonlocal found
            found = find(view)
            return found is not None

        self.eventually(Condition(what, holds))
        assert found is not None
        return found

    def _limit_ms(self, within_ms: int | None) -> int:
        return self.timing.recovery_bound_ms if within_ms is None else within_ms

    def _await(self, condition: Condition, limit_ms: int) -> Event | None:
        began_ns = self._runtime.now_ns()
        event = self._runtime.advance(condition, began_ns + limit_ms * MS)
        if event is None:
            stalled_ms = stalled_since(self._runtime.events(), began_ns) // MS
            if stalled_ms * _STALL_SHARE > limit_ms:
                waited = _in_vain(condition, limit_ms)
                raise Inconclusive(f"{waited}, but processes stood still for {stalled_ms} ms of it")
        return event

    def _of(self, role: Role) -> tuple[Node, ...]:
        return tuple(_node(slot, role) for slot in self._runtime.layout.of(role))

    def _by_id(self, role: Role, node_id: int) -> Node:
        slots = self._runtime.layout.of(role, spares=True)
        (found,) = (slot for slot in slots if slot.id_as(role) == node_id)
        return _node(found, role)


def _in_vain(condition: Condition, limit_ms: int) -> str:
    return f"waited {limit_ms} ms for {condition.description}, in vain"


def _node(slot: Slot, role: Role) -> Node:
    return Node(slot, None if role is slot.role else role)


def stalled_since(events: Sequence[Event], from_ns: int) -> int:
    """The longest time that any one process stood still since then, in nanoseconds."""
    stalls: dict[str, int] = {}
    for event in events:
        if isinstance(event.body, Stalled) and event.at_ns >= from_ns:
            stalls[event.process] = stalls.get(event.process, 0) + event.body.stalled_ns
    return max(stalls.values(), default=0)


def missing(view: View, layout: Layout) -> tuple[str, ...]:
    """What a recovered cluster would have and this one lacks, in words; empty when nothing."""
    lacks = []
    if view.active_controller is None and layout.of(Role.CONTROLLER):
        lacks.append("no controller is active")
    for slot in layout.of(Role.BROKER, spares=True):
        process = view.newest.get(slot.name, "")
        if slot.spare and process not in view.state:
            continue  # not wanted, or never admitted
        state = view.state.get(process, "not started") if process in view.alive else "dead"
        if state != "ACTIVE":
            lacks.append(f"{slot.name} is {state}")
        elif view.fenced.get(slot.node_id, False):
            lacks.append(f"{slot.name} is fenced in the metadata")
    for slot in layout.slots:
        if slot.twin and view.newest.get(slot.name, "") in view.alive:
            lacks.append(f"{slot.name} lives")
    for (topic, partition), known in sorted(view.partitions.items()):
        if known.leader < 0:
            lacks.append(f"{topic}-{partition} has no leader (its ISR: {list(known.isr)})")
        elif _serving(view, topic, partition) is None:
            lacks.append(
                f"broker {known.leader} has not begun to lead {topic}-{partition} in epoch "
                f"{known.leader_epoch}"
            )
        elif set(known.isr) != set(known.replicas):
            out = [f"broker {r}" for r in known.replicas if r not in known.isr]
            lacks.append(f"{describe(out)} not in the ISR of {topic}-{partition}")
    return tuple(lacks)


def _serving(view: View, topic: str, partition: int) -> int | None:
    """The broker that leads by the committed metadata and has begun to serve in that epoch."""
    known = view.partitions.get((topic, partition))
    if known is None or known.serving != known.leader or known.serving_epoch < known.leader_epoch:
        return None
    return known.leader
