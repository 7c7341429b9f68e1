"""Random schedules: what no suite was written for. They combine faults, aim at whoever holds
authority just now, and time bounces around the lease.

`next_strike` is pure: chance, the view of the run so far and the cluster's times go in, one strike
comes out. `conduct` lets it strike a run, with probes of whoever was struck in between; what it did
is in the run's schedule.json, as after any run, and replays from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the schedule's own seeded stream
from typing import final

from fencepost.clock import MS
from fencepost.cluster import Node
from fencepost.errors import Violation
from fencepost.run import Run
from fencepost.runtime import Powered, let_pass_until
from fencepost.strikes import Active
from fencepost.systems import Timing
from fencepost.topology import Layout, Role, Slot
from fencepost.view import View

TOPICS = ("orders", "audit")
MOST_AT_ONCE = 2
QUIET_MS = (100, 900)
"""The shortest and the longest pause between two things that the schedule does."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault by name with its arguments, to be healed after `for_ms`; `victims` are slot names.

    `alone`: only while nothing else suffers, and nothing else is struck before it heals. While
    others are out, a disk that is copied, or forgets, may be the only one that holds what was
    committed; what is lost then was promised to nobody.
    """

    fault: str
    arguments: Mapping[str, object]
    for_ms: int
    victims: frozenset[str]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """What a strike is chosen from. `offered` are the faults there are, `struck` the slots that
    suffer already: one that is cut off or down is not struck again meanwhile."""

    view: View
    layout: Layout
    timing: Timing
    offered: Collection[str]
    struck: frozenset[str] = frozenset()

    @property
    def quiet(self) -> bool:
        """Whether nobody suffers, and every ISR is full."""
        full = (set(p.isr) == set(p.replicas) for p in self.view.partitions.values())
        return not self.struck and all(full)


@dataclass(frozen=True, slots=True)
class _Lasting:
    """A strike that was not healed yet."""

    until_ns: int
    active: Active
    planned: Planned


@final
@dataclass(slots=True)
class _Draw:
    """Chance with the choices a strike is made of."""

    random: Random
    situation: Situation

    def one(self, several: Sequence[str]) -> str:
        return several[self.random.randrange(len(several))]

    def between(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def broker(self) -> str:
        """A leader, the newest incarnation, or any broker."""
        view, layout = self.situation.view, self.situation.layout
        names = {slot.node_id: slot.name for slot in layout.of(Role.BROKER)}
        leaders = [p.leader for p in view.partitions.values() if p.leader in names]
        newest = max(view.broker_offset, key=lambda b: view.broker_offset[b], default=-1)
        draw = self.random.random()
        if leaders and draw < 0.6:
            return names[leaders[self.random.randrange(len(leaders))]]
        if newest in names and draw < 0.75:
            return names[newest]
        return self.one(sorted(names.values()))

    def controller(self) -> str:
        """The active controller, most often."""
        layout, active = self.situation.layout, self.situation.view.active_controller
        controllers = layout.of(Role.CONTROLLER)
        found = [slot.name for slot in controllers if slot.node_id == active]
        if found and self.random.random() < 0.7:
            return found[0]
        return self.one([slot.name for slot in controllers])

    def node(self) -> str:
        return self.broker() if self.random.random() < 0.65 else self.controller()

    def another(self, than: str, role: Role) -> str:
        names = [slot.name for slot in self.situation.layout.of(role) if slot.name != than]
        return self.one(names or [than])

    def around_lease(self) -> int:
        """A time well within the lease, just about it, or past it."""
        lease_ms = self.situation.timing.lease_ms
        least, most = ((5, 40), (80, 120), (130, 220))[self.random.randrange(3)]
        return lease_ms * self.between(least, most) // 100


def _cut_from_controllers(d: _Draw) -> Planned:
    broker = d.broker()
    return _planned("cut_from_controllers", {"broker": broker}, d.around_lease(), broker)


def _isolate(d: _Draw) -> Planned:
    node = d.node()
    return _planned("isolate", {"node": node}, d.around_lease(), node)


def _partition_controllers(d: _Draw) -> Planned:
    node = d.controller()
    others = [s.name for s in d.situation.layout.of(Role.CONTROLLER) if s.name != node]
    return _planned("partition", {"left": node, "right": others}, d.around_lease(), node)


def _partition_brokers(d: _Draw) -> Planned:
    left = d.broker()
    right = d.another(left, Role.BROKER)
    return _planned("partition", {"left": left, "right": right}, d.around_lease(), left, right)


def _cut_one_way(d: _Draw) -> Planned:
    source = d.node()
    role = Role.BROKER if d.random.random() < 0.5 else Role.CONTROLLER
    target = d.another(source, role)
    if d.random.random() < 0.5:
        source, target = target, source
    arguments = {"sources": source, "targets": target}
    return _planned("cut", arguments, d.around_lease(), source, target)


def _kill(d: _Draw) -> Planned:
    node = d.node()
    return _planned("kill", {"node": node}, d.around_lease(), node)


def _bounce_at_once(d: _Draw) -> Planned:
    node = d.node()
    return _planned("kill", {"node": node}, d.between(0, 50), node)


def _terminate(d: _Draw) -> Planned:
    node = d.node()
    return _planned("terminate", {"node": node}, d.between(0, 1_000), node)


def _pause(d: _Draw) -> Planned:
    node = d.node()
    return _planned("pause", {"node": node}, d.around_lease(), node)


def _duplicate(d: _Draw) -> Planned:
    broker = d.broker()
    disk = d.one(["empty", "copy"])
    arguments = {"node": broker, "disk": disk}
    return _planned("duplicate_id", arguments, d.around_lease(), broker, alone=True)


def _lose_power(d: _Draw) -> Planned:
    node = d.node()
    return _planned("lose_power", {"node": node}, d.around_lease(), node, alone=True)


def _slow(d: _Draw) -> Planned:
    source = d.node()
    target = d.another(source, Role.BROKER if source.startswith("broker") else Role.CONTROLLER)
    latency_ms = d.between(20, 200)
    arguments = {"sources": source, "targets": target, "latency_ms": latency_ms}
    return _planned("slow_link", arguments, d.around_lease(), source, target)


def _planned(
    fault: str, arguments: Mapping[str, object], for_ms: int, *victims: str, alone: bool = False
) -> Planned:
    return Planned(fault, arguments, for_ms, frozenset(victims), alone)


_MENU: Sequence[tuple[int, str, Callable[[_Draw], Planned]]] = (
    (4, "cut_from_controllers", _cut_from_controllers),
    (4, "isolate", _isolate),
    (3, "partition", _partition_controllers),
    (3, "partition", _partition_brokers),
    (3, "cut", _cut_one_way),
    (4, "kill", _kill),
    (3, "kill", _bounce_at_once),
    (2, "terminate", _terminate),
    (2, "pause", _pause),
    (3, "duplicate_id", _duplicate),
    (1, "lose_power", _lose_power),
    (1, "slow_link", _slow),
)
"""How often, which fault it takes, and how its targets and its time are drawn."""


def next_strike(random: Random, situation: Situation) -> Planned | None:
    """The next strike; None when the one that was drawn would hit who suffers already."""
    menu = [row for row in _MENU if row[1] in situation.offered]
    if not menu:
        return None
    ticket = random.randrange(sum(weight for weight, _, _ in menu))
    for weight, _, make in menu:
        ticket -= weight
        if ticket < 0:
            planned = make(_Draw(random, situation))
            if planned.victims & situation.struck or (planned.alone and not situation.quiet):
                return None
            return planned
    raise AssertionError("the weights were drawn from")


def load(run: Run, rate: float = 20.0) -> None:
    """Two topics of three partitions, producers of two kinds of acknowledgement, a consumer."""
    for topic in TOPICS:
        run.clients.create_topic(topic)
    run.clients.produce(*TOPICS, acks="all", rate=rate)
    run.clients.produce(TOPICS[1], acks="1", rate=rate)
    run.clients.consume(*TOPICS)


def conduct(run: Run, seed: int, span_ms: int, offered: Collection[str]) -> None:
    """Strikes, heals and probes for `span_ms`; what still lasts then is for the run to heal."""
    random = Random(f"{seed}/schedule")
    if not isinstance(run.runtime, Powered):
        offered = frozenset(offered) - {"lose_power"}
    runtime, timing = run.runtime, run.cluster.timing
    end_ns = runtime.now_ns() + span_ms * MS
    lasting: list[_Lasting] = []
    while runtime.now_ns() < end_ns:
        quiet_ms = random.randint(*QUIET_MS)
        let_pass_until(run.runtime, run.runtime.now_ns() + quiet_ms * MS)
        lasting = _heal_due(run, lasting)
        struck = frozenset(name for one in lasting for name in one.planned.victims)
        full = len(lasting) >= MOST_AT_ONCE or any(one.planned.alone for one in lasting)
        if not full and random.random() < 0.5:
            out_of_reach = struck | _starting(runtime.view, runtime.layout, timing)
            situation = Situation(runtime.view, runtime.layout, timing, offered, out_of_reach)
            planned = next_strike(random, situation)
            if planned is not None:
                active = run.faults.strike_named(planned.fault, planned.arguments)
                until_ns = runtime.now_ns() + planned.for_ms * MS
                lasting.append(_Lasting(until_ns, active, planned))
        else:
            _probe(run, random, sorted(struck))


def _starting(view: View, layout: Layout, timing: Timing) -> frozenset[str]:
    """The slots whose nodes cannot be reached yet, where nodes take their time to start."""
    if not timing.start_ms:
        return frozenset()

    def up(slot: Slot) -> bool:
        process = view.newest.get(slot.name, "")
        if process not in view.alive:
            return True  # it does not start
        if slot.role is Role.BROKER:
            return view.state.get(process) == "ACTIVE"
        return process in view.applied

    slots = (*layout.of(Role.CONTROLLER), *layout.of(Role.BROKER))
    return frozenset(slot.name for slot in slots if not up(slot))


def _heal_due(run: Run, lasting: Sequence[_Lasting]) -> list[_Lasting]:
    """Heals whose time is over; those that last on."""
    now_ns = run.runtime.now_ns()
    for one in lasting:
        if one.until_ns <= now_ns:
            one.active.heal()
    return [one for one in lasting if one.until_ns > now_ns]


def _probe(run: Run, random: Random, struck: Sequence[str]) -> None:
    """Asks a broker something directly, whoever leads: one that suffers, if there is one."""
    brokers = [node for node in run.cluster.brokers if not struck or node.name in struck]
    if not brokers:
        brokers = list(run.cluster.brokers)
    node: Node = brokers[random.randrange(len(brokers))]
    topic = TOPICS[random.randrange(len(TOPICS))]
    partition = random.randrange(3)
    kind = random.randrange(4)
    try:
        if kind == 0:
            run.clients.ask_metadata(node, topic)
        elif kind == 1:
            run.clients.produce_directly(node, topic, partition, acks=1)
        else:
            run.clients.fetch_directly(node, topic, partition)
    except Violation:
        return  # a probe that is never answered is in the history; what it means is for rules
