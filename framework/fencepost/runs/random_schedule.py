"""Random schedules: what no suite was written for. They combine faults, aim at whoever holds
authority just now, and time bounces around the lease.

`next_strike` is pure: chance, the view of the run so far and the cluster's times go in, one strike
comes out. `conduct` lets it strike a run, with probes of whoever was struck in between; `run_one`
is a whole run of that kind. What was done is in the run's schedule.json, as after any run, and
replays from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the schedule's own seeded stream
from typing import final

from fencepost.events.kinds import (
    BrokerStateChanged,
    ClientFailed,
    ControllerElected,
    ControllerFollowed,
    kind_name,
)
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import MS
from fencepost.model.cluster import Node
from fencepost.model.errors import FencepostError, Violation
from fencepost.model.runtime import Powered, let_pass_until
from fencepost.model.systems import Exclusive, Timing
from fencepost.model.topology import Layout, Role, Slot
from fencepost.model.view import View
from fencepost.plugins.manager import Plugins
from fencepost.runs.faults import Active
from fencepost.runs.run import Run, RunResult, RunSpec

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

    `holding`: only while its victims hold their ids for certain, and so keep a newcomer out.

    `ends` are the slots between which it changes links. What shows that it does is that something
    answered before, so nothing of it may be still starting.
    """

    fault: str
    arguments: Mapping[str, object]
    for_ms: int
    victims: frozenset[str]
    alone: bool = False
    ends: frozenset[str] = frozenset()
    holding: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """What a strike is chosen from. `offered` are the faults there are, `struck` the slots that
    suffer already: one that is cut off or down is not struck again meanwhile. `mending` are those
    whose links were healed less than a lease ago: they may not be in touch with anybody yet.
    `holder_keeps_id`: no second process gets an id while controllers hear of the first one."""

    view: View
    layout: Layout
    timing: Timing
    offered: Collection[str]
    struck: frozenset[str] = frozenset()
    mending: frozenset[str] = frozenset()
    holder_keeps_id: bool = False

    def misses(self, planned: Planned) -> bool:
        """Whether a strike would hit who suffers already, or links that nobody may be using."""
        if planned.victims & self.struck or planned.ends & self.starting:
            return True
        if planned.holding and not planned.victims <= self.holding:
            return True
        if planned.ends and planned.victims & self.mending:
            return True
        controllers = {slot.name for slot in self.layout.of(Role.CONTROLLER)}
        if planned.ends & controllers:
            return not self.asked(Role.CONTROLLER)
        return bool(planned.ends) and not planned.ends & self.asked(Role.BROKER)

    def asked(self, role: Role) -> frozenset[str]:
        """Whom others of that role fetch from: the active controller, or whoever leads."""
        if role is Role.CONTROLLER:
            leaders = {self.view.active_controller}
        else:
            shared = (one for one in self.view.partitions.values() if len(one.replicas) > 1)
            leaders = {one.leader for one in shared}
        slots = self.layout.of(role)
        return frozenset(slot.name for slot in slots if slot.id_as(role) in leaders)

    @property
    def holding(self) -> frozenset[str]:
        """The slots of brokers that are active by their own word and by the committed one."""
        held = (s for s in self.layout.of(Role.BROKER) if not self.view.fenced.get(s.node_id, True))
        active = (s.name for s in held if self.view.state.get(self.view.newest[s.name]) == "ACTIVE")
        return frozenset(active) - self.mending

    @property
    def starting(self) -> frozenset[str]:
        """The slots of processes that live and have not begun to do their work."""
        nodes = (slot for slot in self.layout.slots if slot.role is not Role.CLIENT)
        return frozenset(slot.name for slot in nodes if not _has_begun(self.view, slot))

    @property
    def quiet(self) -> bool:
        """Whether nobody suffers, and every ISR is full."""
        full = (set(p.isr) == set(p.replicas) for p in self.view.partitions.values())
        return not self.struck and all(full)


def _has_begun(view: View, slot: Slot) -> bool:
    """Whether a slot's newest process is dead, or was active, or knows who leads the quorum."""
    process = view.newest.get(slot.name, "")
    if process not in view.alive:
        return True
    if slot.role is Role.CONTROLLER:
        return any((process, kind) in view.latest for kind in _IN_QUORUM)
    changed = view.latest.get((process, kind_name(BrokerStateChanged)))
    if changed is None or not isinstance(changed.body, BrokerStateChanged):
        return False
    return "ACTIVE" in (changed.body.old, changed.body.new)


_IN_QUORUM = (kind_name(ControllerElected), kind_name(ControllerFollowed))


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
        active = self.active()
        if active is not None and self.random.random() < 0.7:
            return active
        return self.one(self.names(Role.CONTROLLER))

    def active(self) -> str | None:
        """The slot of the active controller."""
        return next(iter(self.situation.asked(Role.CONTROLLER)), None)

    def node(self) -> str:
        return self.broker() if self.random.random() < 0.65 else self.controller()

    def another(self, than: str, role: Role) -> str:
        """Whom that node talks to: of the controllers, everybody does to the active one alone, and
        of the brokers, who leads nothing does to leaders alone."""
        names = [name for name in self.names(role) if name != than]
        asked = self.situation.asked(role)
        if than not in asked:
            names = [name for name in names if name in asked] or names
        return self.one(names or [than])

    def names(self, role: Role) -> Sequence[str]:
        return [slot.name for slot in self.situation.layout.of(role)]

    def around_lease(self) -> int:
        """A time well within the lease, just about it, or past it."""
        lease_ms = self.situation.timing.lease_ms
        least, most = ((5, 40), (80, 120), (130, 220))[self.random.randrange(3)]
        return lease_ms * self.between(least, most) // 100


def _cut_from_controllers(d: _Draw) -> Planned:
    broker = d.broker()
    ends = [broker, *d.names(Role.CONTROLLER)]
    return _cut("cut_from_controllers", {"broker": broker}, d.around_lease(), [broker], ends)


def _isolate(d: _Draw) -> Planned:
    node = d.node()
    ends = [*d.names(Role.CONTROLLER), *d.names(Role.BROKER)]
    return _cut("isolate", {"node": node}, d.around_lease(), [node], ends)


def _partition_controllers(d: _Draw) -> Planned:
    node = d.controller()
    others = [name for name in d.names(Role.CONTROLLER) if name != node]
    arguments = {"left": node, "right": others}
    return _cut("partition", arguments, d.around_lease(), [node], [node, *others])


def _partition_brokers(d: _Draw) -> Planned:
    left = d.broker()
    right = d.another(left, Role.BROKER)
    both = [left, right]
    return _cut("partition", {"left": left, "right": right}, d.around_lease(), both, both)


def _cut_one_way(d: _Draw) -> Planned:
    source = d.node()
    role = Role.BROKER if d.random.random() < 0.5 else Role.CONTROLLER
    target = d.another(source, role)
    if role is Role.BROKER and source in d.names(Role.CONTROLLER):
        source = d.active() or source
    if d.random.random() < 0.5:
        source, target = target, source
    arguments = {"sources": source, "targets": target}
    return _cut("cut", arguments, d.around_lease(), [source, target], [source, target])


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
    kept, victims = d.situation.holder_keeps_id, frozenset([broker])
    for_ms = d.around_lease()
    return Planned("duplicate_id", arguments, for_ms, victims, alone=not kept, holding=kept)


def _lose_power(d: _Draw) -> Planned:
    node = d.node()
    return _planned("lose_power", {"node": node}, d.around_lease(), node, alone=True)


def _slow(d: _Draw) -> Planned:
    source = d.node()
    role = Role.BROKER if source in d.names(Role.BROKER) else Role.CONTROLLER
    target = d.another(source, role)
    if target not in d.situation.asked(role):
        source, target = target, source  # logs are pulled: nobody waits for what a leader asks
    latency_ms = d.between(20, 200)
    arguments = {"sources": source, "targets": target, "latency_ms": latency_ms}
    return _cut("slow_link", arguments, d.around_lease(), [source, target], [source, target])


def _planned(
    fault: str, arguments: Mapping[str, object], for_ms: int, *victims: str, alone: bool = False
) -> Planned:
    return Planned(fault, arguments, for_ms, frozenset(victims), alone)


def _cut(
    fault: str,
    arguments: Mapping[str, object],
    for_ms: int,
    victims: Sequence[str],
    ends: Sequence[str],
) -> Planned:
    return Planned(fault, arguments, for_ms, frozenset(victims), ends=frozenset(ends))


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
    """The next strike; None when the one that was drawn would hit who suffers already, or miss."""
    menu = [row for row in _MENU if row[1] in situation.offered]
    if not menu:
        return None
    ticket = random.randrange(sum(weight for weight, _, _ in menu))
    for weight, _, make in menu:
        ticket -= weight
        if ticket < 0:
            planned = make(_Draw(random, situation))
            alone = not planned.alone or situation.quiet
            return planned if alone and not situation.misses(planned) else None
    raise AssertionError("the weights were drawn from")


@final
@dataclass(frozen=True, slots=True)
class Conducted:
    """A run under a random schedule; without a `result` the cluster never got ready. `trouble` is
    what went wrong but for broken promises, in one sentence; `lost`, each client that failed."""

    folder: RunFolder
    result: RunResult | None
    trouble: str
    lost: tuple[str, ...] = ()


def run_one(
    spec: RunSpec, plugins: Plugins, folder: RunFolder, span_ms: int, offered: Collection[str]
) -> Conducted:
    """One run of `spec` under load, struck for `span_ms` by what is offered (nothing: at peace)."""
    try:
        with Run.start(spec, plugins, folder) as run:
            trouble = ""
            try:
                load(run)
                conduct(run, spec.seed, span_ms, offered)
            except (FencepostError, Violation) as went_wrong:
                trouble = str(went_wrong)
            result = run.finish()
            if result.recovered is not None and not result.recovered.recovered:
                trouble = f"not recovered: {'; '.join(result.recovered.missing)}"
            failed = (e.body for e in run.runtime.events() if isinstance(e.body, ClientFailed))
            lost = tuple(body.error for body in failed if body.fatal)
            return Conducted(folder, result, trouble or str(result.trouble or ""), lost)
    except FencepostError as not_started:
        return Conducted(folder, None, str(not_started))


def load(run: Run, rate: float = 20.0) -> None:
    """Two topics of three partitions, producers of two kinds of acknowledgement, a consumer.

    librdkafka crashes now and then when a leader is lost; what the others see counts all the same.
    """
    for topic in TOPICS:
        run.clients.create_topic(topic)
    run.clients.produce(*TOPICS, acks="all", rate=rate, may_die=True)
    run.clients.produce(TOPICS[1], acks="1", rate=rate, may_die=True)
    run.clients.consume(*TOPICS, may_die=True)


def conduct(run: Run, seed: int, span_ms: int, offered: Collection[str]) -> None:
    """Strikes, heals and probes for `span_ms`; what still lasts then is for the run to heal."""
    random = Random(f"{seed}/schedule")
    if not isinstance(run.runtime, Powered):
        offered = frozenset(offered) - {"lose_power"}
    runtime, timing = run.runtime, run.cluster.timing
    system = run.spec.system
    kept = isinstance(system, Exclusive) and system.holder_keeps_id
    end_ns = runtime.now_ns() + span_ms * MS
    lasting: list[_Lasting] = []
    mending: dict[str, int] = {}
    while runtime.now_ns() < end_ns:
        quiet_ms = random.randint(*QUIET_MS)
        let_pass_until(run.runtime, run.runtime.now_ns() + quiet_ms * MS)
        due = [one for one in lasting if one.until_ns <= runtime.now_ns()]
        for one in due:
            lasting.remove(one)
            one.active.heal()
            healed = one.planned.victims if one.planned.ends else ()
            mending.update(dict.fromkeys(healed, runtime.now_ns() + timing.lease_ms * MS))
        struck = frozenset(name for one in lasting for name in one.planned.victims)
        full = len(lasting) >= MOST_AT_ONCE or any(one.planned.alone for one in lasting)
        if not full and random.random() < 0.5:
            still = frozenset(n for n, until in mending.items() if until > runtime.now_ns())
            situation = Situation(
                runtime.view, runtime.layout, timing, offered, struck, still, kept
            )
            planned = next_strike(random, situation)
            if planned is not None:
                active = run.faults.strike_named(planned.fault, planned.arguments)
                until_ns = runtime.now_ns() + planned.for_ms * MS
                lasting.append(_Lasting(until_ns, active, planned))
        else:
            _probe(run, random, sorted(struck))


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
