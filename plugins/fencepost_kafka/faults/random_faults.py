"""Random operations for a Kafka cluster: faults, aimed at the nodes that hold authority, and what
an administrator asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import final

from fencepost import Administration, Cut, Moment, Planned, one_way, second_of, two_way
from fencepost_kafka.faults import administration
from fencepost_kafka.faults.draw import Draw
from fencepost_kafka.faults.situation import Servers, Situation
from fencepost_kafka.vocabulary import Role, Timing

_FETCHED_WITHIN_MS = 2_000
"""A follower fetches several times within it, however little there is to fetch."""


def _cut_from_controllers(d: Draw) -> Planned | None:
    if not d.names(Role.CONTROLLER):
        return None
    broker = d.broker()
    cut = two_way([broker], d.names(Role.CONTROLLER))
    return _cut("cut_from_controllers", {"broker": broker}, d.around_lease(), [broker], cut)


def _isolate(d: Draw) -> Planned:
    node = d.node()
    cut = two_way([node], [*d.names(Role.CONTROLLER), *d.names(Role.BROKER)])
    return _cut("isolate", {"node": node}, d.around_lease(), [node], cut)


def _partition_controllers(d: Draw) -> Planned | None:
    if not d.names(Role.CONTROLLER):
        return None
    node = d.controller()
    others = [name for name in d.names(Role.CONTROLLER) if name != node]
    arguments = {"left": node, "right": others}
    return _cut("partition", arguments, d.around_lease(), [node], two_way([node], others))


def _partition_brokers(d: Draw) -> Planned:
    left = d.broker()
    right = d.another(left, Role.BROKER)
    arguments, cut = {"left": left, "right": right}, two_way([left], [right])
    return _cut("partition", arguments, d.around_lease(), [left, right], cut)


def _cut_one_way(d: Draw) -> Planned:
    source = d.node()
    role = Role.BROKER if d.random.random() < 0.5 else Role.CONTROLLER
    if not d.names(role):
        role = Role.BROKER
    if role is Role.BROKER and source not in d.names(Role.BROKER):
        source = d.active() or source  # only the active controller exchanges requests with brokers
    target = d.another(source, role)
    if d.random.random() < 0.5:
        source, target = target, source
    arguments = {"sources": source, "targets": target}
    return _cut("cut", arguments, d.around_lease(), [source, target], one_way([source], [target]))


def _kill(d: Draw) -> Planned:
    node = d.node()
    return _planned("kill", {"node": node}, d.around_lease(), node)


def _bounce_at_once(d: Draw) -> Planned:
    node = d.node()
    return _planned("kill", {"node": node}, d.between(0, 50), node)


def _keep_down(d: Draw) -> Planned:
    """Down for many leases."""
    node = d.node()
    for_ms = d.situation.timing.lease_ms * d.between(4, 10)
    return _planned("kill", {"node": node}, for_ms, node)


def _bounce_in_rhythm(d: Draw) -> Planned:
    """The process of one node, or of several in turn, ends again and again: while it starts, right
    after its election, or later. Most often controllers."""
    role = Role.CONTROLLER if d.names(Role.CONTROLLER) and d.random.random() < 0.7 else Role.BROKER
    first = d.controller() if role is Role.CONTROLLER else d.broker()
    others = [name for name in d.names(role) if name != first] or [first]
    same = d.random.random() < 0.5
    lease_ms = d.situation.timing.lease_ms
    # The chain is built from its end: each fault carries the one that follows it.
    planned: Planned | None = None
    for _ in range(d.between(1, 4)):
        node = first if same else d.one([first, *others])
        after_ms = d.between(20, lease_ms // (1 if d.random.random() < 0.5 else 6))
        planned = replace(
            _planned("kill", {"node": node}, d.between(0, 100), node),
            then=planned,
            after_ms=after_ms,
        )
    return replace(
        _planned("kill", {"node": first}, d.between(0, 100), first),
        then=planned,
        after_ms=d.between(20, lease_ms),
    )


def _cut_clients(d: Draw) -> Planned | None:
    """Clients lose one broker, in one direction or both; nodes still reach it."""
    broker = d.broker()
    clients = sorted(d.situation.clients)
    if not clients:
        return None
    match d.between(0, 2):
        case 0:
            arguments = {"sources": clients, "targets": broker}
            return _cut("cut", arguments, d.around_lease(), [broker], one_way(clients, [broker]))
        case 1:
            arguments = {"sources": broker, "targets": clients}
            return _cut("cut", arguments, d.around_lease(), [broker], one_way([broker], clients))
    arguments = {"left": broker, "right": clients}
    return _cut("partition", arguments, d.around_lease(), [broker], two_way([broker], clients))


def _wipe_disk(d: Draw) -> Planned:
    broker = d.broker()
    return _planned("wipe_disk", {"node": broker}, d.around_lease(), broker)


def _wipe_voter(d: Draw) -> Planned | None:
    """A controller forgets its votes and its log."""
    if d.situation.servers or not d.names(Role.CONTROLLER):
        return None
    node = d.controller()
    if not d.situation.others_hold(node) and d.random.random() >= _MAY_FORFEIT:
        return None
    return _planned("wipe_disk", {"node": node}, d.around_lease(), node)


def _damage_disk(d: Draw) -> Planned:
    broker, last_bytes = d.broker(), d.between(*_TORN_BYTES)
    arguments = {"node": broker, "files": _PARTITION_LOGS, "last_bytes": last_bytes}
    return _planned("damage_disk", arguments, d.around_lease(), broker)


_MAY_FORFEIT = 0.1
"""How often a voter's disk is emptied though the others may not hold what is committed: from such a
loss on nothing is promised any more, and the rest of the run is wasted."""
_PARTITION_LOGS, _TORN_BYTES = "[!_]*/*.log", (64, 8192)
"""Not the logs of the metadata and of internal topics: their names begin with an underscore."""


def _terminate(d: Draw) -> Planned:
    node = d.node()
    return _planned("terminate", {"node": node}, d.between(0, 1_000), node)


def _pause(d: Draw) -> Planned:
    node = d.node()
    return _planned("pause", {"node": node}, d.around_lease(), node)


def _duplicate(d: Draw) -> Planned | None:
    broker = d.broker()
    # A second process needs a slot of its own, and the layout makes these before the run.
    if not any(slot.name == second_of(broker) for slot in d.situation.layout.slots):
        return None  # a broker that was added has none
    disk = d.one(["empty", "copy"])
    arguments = {"node": broker, "disk": disk}
    return _planned("duplicate_id", arguments, d.around_lease(), broker)


def _lose_power(d: Draw) -> Planned:
    node = d.node()
    return _planned("lose_power", {"node": node}, d.around_lease(), node)


def _dialled(d: Draw) -> tuple[str, str]:
    """A node, and one to which it has a connection. Followers fetch logs: a slow request of a
    leader delays no node."""
    source = d.node()
    role = Role.BROKER if source in d.names(Role.BROKER) else Role.CONTROLLER
    target = d.another(source, role)
    return (source, target) if d.situation.fetches(source, target) else (target, source)


def _slow(d: Draw) -> Planned | None:
    pair = d.fetching() if d.situation.servers else _dialled(d)
    if pair is None:
        return None
    source, target = pair
    latency_ms = d.between(20, 200)
    arguments = {"sources": source, "targets": target, "latency_ms": latency_ms}
    both = [source, target]
    return _cut("slow_link", arguments, d.around_lease(), both, two_way([source], [target]))


def _hold(d: Draw) -> Planned | None:
    pair = d.fetching()
    if pair is None:
        return None
    source, target = pair
    arguments = {
        "sources": source,
        "targets": target,
        "apis": "Fetch",
        "skip": d.between(0, 2),
        "first": d.between(1, 3),
        **d.fate(),
    }
    # A hold is judged by what it chose until its heal. A fetch that waits at the leader is followed
    # by the next one only after that wait, so a shorter hold might choose nothing.
    for_ms = max(_FETCHED_WITHIN_MS, d.around_lease())
    return _cut("hold", arguments, for_ms, pair, one_way([source], [target]))


def _hold_command(d: Draw) -> Planned:
    """Holds commands of the controller to a broker that is restarted. A broker that stops may be
    commanded to stop its replicas; its next process is sent the cluster's state and its roles."""
    controller, broker = d.commanded()
    apis = _COMMANDS[d.between(0, len(_COMMANDS) - 1)]
    restart = "kill" if d.random.random() < 0.5 else "terminate"
    return _hold_at_restart(d, (controller, broker), apis, broker, restart)


def _hold_shutdown(d: Draw) -> Planned:
    """Holds the ControlledShutdown of a broker that is terminated."""
    controller, broker = d.commanded()
    return _hold_at_restart(d, (broker, controller), _SHUTDOWN, broker, "terminate")


_COMMANDS = (
    ("LeaderAndIsr",),
    ("UpdateMetadata",),
    ("LeaderAndIsr", "StopReplica", "UpdateMetadata"),
)
"""StopReplica alone may never come, since the broker may have ended before."""
_SHUTDOWN = ("ControlledShutdown",)
_RESTARTED_WITHIN_MS = 2_000
"""The next process has been started by then."""


def _hold_at_restart(
    d: Draw, ends: tuple[str, str], apis: Sequence[str], broker: str, restart: str
) -> Planned:
    """Holds requests of the first end to the second one, and restarts the broker, which brings
    them about."""
    source, target = ends
    arguments = {
        "sources": source,
        "targets": target,
        "apis": list(apis),
        # Requests are skipped only if several kinds are held: of one kind, a restart brings about
        # few, and a hold that skips them all chooses nothing.
        "skip": d.between(0, len(apis) // 2),
        "first": d.between(1, 3),
        **d.fate(),
    }
    for_ms = max(_RESTARTED_WITHIN_MS, d.around_lease())
    # Alone: if another fault changed the controller meanwhile, the commands would come from a node
    # whose links hold nothing.
    held = _cut("hold", arguments, for_ms, ends, one_way([source], [target]))
    restarted = _planned(restart, {"node": broker}, d.between(0, 1_000), broker)
    return replace(held, alone=True, then=restarted)


def _cut_from_servers(d: Draw) -> Planned:
    broker, servers = d.broker(), sorted(d.situation.servers)
    arguments = {"left": broker, "right": servers}
    return _cut("partition", arguments, d.around_lease(), [broker], two_way([broker], servers))


def _kill_server(d: Draw) -> Planned:
    server = d.one(sorted(d.situation.servers))
    return _planned("kill", {"node": server}, d.around_lease(), server)


def _pause_server(d: Draw) -> Planned:
    server = d.one(sorted(d.situation.servers))
    return _planned("pause", {"node": server}, d.around_lease(), server)


def _slow_server(d: Draw) -> Planned:
    broker, server = d.broker(), d.one(sorted(d.situation.servers))
    arguments = {"sources": broker, "targets": server, "latency_ms": d.between(20, 200)}
    return _cut("slow_link", arguments, d.around_lease(), [broker], two_way([broker], [server]))


def _planned(fault: str, arguments: Mapping[str, object], for_ms: int, *victims: str) -> Planned:
    return Planned(fault, arguments, for_ms, frozenset(victims))


def _cut(
    fault: str,
    arguments: Mapping[str, object],
    for_ms: int,
    victims: Sequence[str],
    directions: Cut,
) -> Planned:
    ends = frozenset(name for pair in directions for name in pair)
    return Planned(fault, arguments, for_ms, frozenset(victims), ends=ends, directions=directions)


Row = tuple[int, str, Callable[[Draw], Planned | None]]
"""How often a fault is drawn, its name, and how its targets and its time are drawn."""
_MENU: Sequence[Row] = (
    (4, "cut_from_controllers", _cut_from_controllers),
    (4, "isolate", _isolate),
    (3, "partition", _partition_controllers),
    (3, "partition", _partition_brokers),
    (3, "cut", _cut_one_way),
    (4, "kill", _kill),
    (3, "kill", _bounce_at_once),
    (1, "kill", _keep_down),
    (1, "kill", _bounce_in_rhythm),
    (2, "cut", _cut_clients),
    (1, "wipe_disk", _wipe_disk),
    (1, "wipe_disk", _wipe_voter),
    (1, "damage_disk", _damage_disk),
    (2, "terminate", _terminate),
    (2, "pause", _pause),
    (3, "duplicate_id", _duplicate),
    (1, "lose_power", _lose_power),
    (1, "slow_link", _slow),
    (2, "hold", _hold),
)
"""The faults of every cluster."""
_OF_SERVERS: Sequence[Row] = (
    (4, "partition", _cut_from_servers),
    (2, "kill", _kill_server),
    (2, "pause", _pause_server),
    (1, "slow_link", _slow_server),
)
"""The same where servers of other software keep the metadata."""
_OF_CONTROL_REQUESTS: Sequence[Row] = (
    (3, "hold", _hold_command),
    (1, "hold", _hold_shutdown),
)
"""The same where the controller commands brokers by requests."""


@final
@dataclass(frozen=True, slots=True)
class KafkaFaultChooser:
    """Combines faults, aims at the nodes that hold authority, and times bounces around the lease.

    `stops_by_leave`: a broker is asked to end only while the active controller would let it.
    `without` is never drawn. `servers` is other software that keeps the metadata, and is struck,
    too. `needs_session`: no fault affects a server while a process is starting or dead, none ends
    while a server does not serve, and one that lost its session is not asked to end, nor cut off
    from a server. `control_requests`: the controller commands brokers by requests, which are held,
    too. `administration` is what the cluster can be asked for. `voters_forget`: the disk of a
    controller is emptied, too.
    """

    timing: Timing
    stops_by_leave: bool = False
    needs_session: bool = False
    without: frozenset[str] = frozenset()
    servers: Servers | None = None
    control_requests: bool = False
    administration: frozenset[str] = administration.EVERYWHERE
    voters_forget: bool = False

    @property
    def mending_ms(self) -> int:
        """One lease."""
        return self.timing.lease_ms

    @property
    def draws(self) -> Collection[str]:
        """See `NamesDraws`."""
        return {name for _, name, _ in self._rows} - self.without | self.administration

    @property
    def _rows(self) -> Sequence[Row]:
        """The faults of this cluster."""
        return (
            *_MENU,
            *(_OF_SERVERS if self.servers else ()),
            *(_OF_CONTROL_REQUESTS if self.control_requests else ()),
        )

    def draw(self, random: Random, moment: Moment) -> Planned | Administration | None:
        """See `FaultChooser.draw`."""
        # Slots that an administrator has removed or not yet added have no process that a fault
        # could strike.
        layout = administration.present(moment.view, moment.layout)
        moment = replace(moment, layout=layout)
        # Nobody can choose messages that are sealed.
        sealed = {"hold"} if layout.sealed else set()
        offered = {*moment.offered} - self.without - sealed
        faults = [row for row in self._rows if row[1] in offered]
        asked = [row for row in administration.MENU if offered & self.administration & {*row[1]}]
        weights = sum(weight for weight, _, _ in faults), sum(weight for weight, _, _ in asked)
        if not any(weights):
            return None
        # One ticket decides among faults and administration, so the weights of both menus compare.
        ticket = random.randrange(sum(weights))
        for weight, _, make in faults:
            ticket -= weight
            if ticket < 0:
                return self._checked(make(Draw(random, self._situation(moment))), moment, offered)
        for weight, _, ask in asked:
            ticket -= weight
            if ticket < 0:
                # A row of the menu may stand for several requests; which of them it asks for is
                # known only here, so it is checked once more against what is offered.
                found = ask(random, moment.view, moment.layout)
                if found is None or found[0] not in offered & self.administration:
                    return None
                asks = administration.asks(*found, moment.view, moment.layout)
                return None if self._situation(moment).stays(asks) else asks
        raise AssertionError("the weights were drawn from")

    def _checked(
        self, planned: Planned | None, moment: Moment, offered: Collection[str]
    ) -> Planned | None:
        """The fault, unless it would miss, or harm what must be left alone."""
        # A fault that is not offered must not come in as the second of a pair, either.
        if planned is None or (planned.then is not None and planned.then.fault not in offered):
            return None
        situation = self._situation(moment)
        if situation.forgets(planned) and not self.voters_forget:
            return None
        if planned.alone and (moment.mending or not situation.quiet):
            return None  # authority may still change hands where links were healed just now
        if self.needs_session:  # without one a process exits, does not start, or does not end
            again = planned.victims & moment.affected or planned.after_ms
            if again or situation.lacks_session(planned):
                return None
        return None if situation.misses(planned) else planned

    def _situation(self, moment: Moment) -> Situation:
        situation = Situation(moment, self.timing, self.stops_by_leave)
        if self.servers is None:
            return situation
        return replace(
            situation,
            servers=frozenset(slot.name for slot in moment.layout.of(self.servers.role)),
            # A server that a fault affects may say that it serves until it notices; it is not
            # counted.
            serving=frozenset(self.servers.serving(moment.view, moment.layout)) - moment.affected,
        )
