"""What a random fault is chosen from: the state of a Kafka cluster, and what must be left alone.

See docs/decisions/21-second-faults.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fencepost import Administration, Layout, Moment, Planned, Slot, View, kind_name, second_of
from fencepost_kafka.events import BrokerStateChanged
from fencepost_kafka.faults.administration import TOPIC_PREFIX
from fencepost_kafka.faults.overlaps import OF_LINKS, shows
from fencepost_kafka.recovery import in_quorum, voters
from fencepost_kafka.view import REMOVE_BROKER, KafkaView, is_internal
from fencepost_kafka.vocabulary import Role, Timing

LOSES_DATA: frozenset[str] = frozenset({"wipe_disk", "damage_disk", "lose_power"})
"""The faults after which a disk may have less than what was written to it. What a fault did once it
was injected is on its event (`FaultInjected.acts`)."""
AGAIN: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(OF_LINKS, OF_LINKS | {"duplicate_id"}),
    "duplicate_id": OF_LINKS | LOSES_DATA | {"pause", "kill", "terminate"},
    "kill": OF_LINKS | LOSES_DATA | {"pause", "duplicate_id", "kill", "terminate"},
    "pause": OF_LINKS | LOSES_DATA | {"duplicate_id", "kill", "terminate"},
    "terminate": frozenset({"slow_link", "duplicate_id", "kill", "terminate"}),
}
"""Which faults may strike a node again, and under which others. Whether a second fault of links
shows is for `overlaps`. A fault that ended a process is listed since the next one may run
already."""


@final
@dataclass(frozen=True, slots=True)
class Servers:
    """Other software that keeps the metadata: the role of its slots, and the names of those that
    serve."""

    role: str
    serving: Callable[[View, Layout], Collection[str]]


@final
@dataclass(frozen=True, slots=True)
class Situation:
    """A moment with the state of Kafka's view.

    `stops_by_leave`: a broker that is asked to end does so once the active controller lets it.
    `servers` are the slots of other software that keeps the metadata; `serving` are those of them
    that serve and that no fault affects.
    """

    moment: Moment
    timing: Timing
    stops_by_leave: bool = False
    servers: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset()

    @property
    def view(self) -> View:
        return self.moment.view

    @property
    def kafka(self) -> KafkaView:
        return self.moment.view.of(KafkaView)

    @property
    def layout(self) -> Layout:
        return self.moment.layout

    def misses(self, planned: Planned) -> bool:
        """Whether a fault would hit an affected slot, or links that may not be in use."""
        # A second fault on a slot that is down, paused or cut off already would act on nothing, and
        # two heals would undo each other.
        if planned.victims & self.moment.affected and not self.strikes_again(planned):
            return True
        # Otherwise the broker waits for leave, does not end before the heal, and the fault has no
        # receipt.
        if planned.fault == "terminate" and self.stops_by_leave:
            brokers = {slot.name for slot in self.layout.of(Role.BROKER)}
            if planned.victims & brokers and not self.gives_leave:
                return True
        # There is nothing to damage in an empty log, and such a fault has no receipt.
        if planned.fault == "damage_disk" and not planned.victims <= self.storing:
            return True
        # A process that starts may not have dialled yet: the cut would be on a link without a
        # connection.
        if planned.ends & self.starting:
            return True
        # Just after a heal, a client of the link may wait for its next attempt, and so not use it.
        if planned.ends and planned.victims & self.moment.mending:
            return True
        if planned.ends & self.servers:
            running = {name for name in planned.ends & self.servers if self.runs(name)}
            # A link to a server that another fault is upon may not be in use: the broker may have
            # gone to another server.
            again = not planned.directions.isdisjoint(self.moment.upon)
            return again or not running or not running <= self.serving
        controllers = {slot.name for slot in self.layout.of(Role.CONTROLLER)}
        # Without an active controller, no node certainly fetches from any controller.
        if planned.ends & controllers and not self.asked(Role.CONTROLLER):
            return True
        if planned.fault == "hold" and not self.servers <= self.serving:
            return True  # sessions end, and leaders with them: the requests may never come
        upon = self.moment.upon
        # One connection that is certainly in use is enough: it gives the fault its receipt.
        return bool(planned.ends) and not any(shows(planned, one, upon) for one in self.dialled)

    def strikes_again(self, planned: Planned) -> bool:
        """Whether a fault finds what it acts on at victims that other faults affect: processes that
        run, under faults that leave it to this one."""
        bearable = AGAIN.get(planned.fault, frozenset())
        under = self.moment.under
        return all(
            self.runs(name) and name in under and bearable.issuperset(under[name])
            for name in planned.victims & self.moment.affected
        )

    def stays(self, asked: Administration) -> bool:
        """Whether a broker that is to be removed would not end as it is asked to, or would be
        started again by the heal of a fault."""
        if asked.operation != REMOVE_BROKER:
            return False
        return bool(asked.victims & (self.moment.affected | self.starting)) or not self.gives_leave

    def forgets(self, planned: Planned) -> bool:
        """Whether a fault takes from a controller of a quorum what it has voted and stored."""
        if self.servers:
            return False
        controllers = {slot.name for slot in self.layout.of(Role.CONTROLLER)}
        return planned.fault == "wipe_disk" and bool(planned.victims & controllers)

    # A majority is not enough: a voter that was behind may be in the majority that elects the next
    # leader once this one has forgotten, and so may lack what was committed.
    def others_hold(self, node: str) -> bool:
        """Whether all other controllers run, and no fault affects them or did so just now: then
        they hold what is committed, and this one may forget it without a loss for good."""
        disturbed = self.moment.affected | self.moment.mending | self.starting
        others = {slot.name for slot in self.layout.of(Role.CONTROLLER)} - {node}
        return disturbed.isdisjoint(others) and all(map(self.runs, others))

    @property
    def gives_leave(self) -> bool:
        """Whether the active controller decides now: it and a majority of the voters run, and no
        fault affects them."""
        running = {
            slot.id_as(Role.CONTROLLER)
            for slot in self.layout.of(Role.CONTROLLER)
            if self.runs(slot.name) and slot.name not in self.moment.affected | self.starting
        }
        every = {slot.id_as(Role.CONTROLLER) for slot in self.layout.of(Role.CONTROLLER)}
        quorum = {*voters(self.view)} or every
        # A controller that has lost its majority says so only after a timeout. Until then it is
        # still the active one, but commits no leave.
        return self.active in running and 2 * len(running & quorum) > len(quorum)

    @property
    def active(self) -> int | None:
        """The active controller, unless its process has ended: the next one in its slot may not
        lead."""
        process = self.kafka.controller_process
        return None if process and process not in self.view.alive else self.kafka.active_controller

    @property
    def storing(self) -> frozenset[str]:
        """The slots of brokers whose disk has messages: they are in the ISR of a partition that
        clients have seen messages of, and have reported some since their disk was harmed."""
        members = {
            replica
            for place, one in self.kafka.partitions.items()
            if self.kafka.shown.get(place) and not is_internal(place[0])
            for replica in one.isr
        }
        found = (s.name for s in self.layout.of(Role.BROKER) if s.node_id in members)
        # A member of the ISR may have an empty log for a while after its disk was emptied, over
        # ZooKeeper.
        return frozenset(found) - self.kafka.emptied

    @property
    def clients(self) -> frozenset[str]:
        """The slots of clients."""
        return frozenset(slot.name for slot in self.layout.of(Role.CLIENT))

    def lacks_session(self, planned: Planned) -> bool:
        """Whether a process would lose its session while it starts, or be asked to end without one,
        or be followed by one that starts before its session is over; or whether a link to a server
        changes that a process without a session may never dial again."""
        # A broker without a running process has no session to lose, but its next process could not
        # begin one. So all brokers must run.
        if planned.victims & self.servers:
            brokers = (slot.name for slot in self.layout.of(Role.BROKER))
            return bool(self.starting) or not all(map(self.runs, brokers))
        match planned.fault:
            case "pause":
                return bool(planned.victims & self.starting)
            case "terminate":
                return bool(planned.victims & self.expired) or not self.servers <= self.serving
            case fault if fault == "kill" or fault in LOSES_DATA:
                return not self.servers <= self.serving
            case _:
                return bool(planned.ends & self.servers and planned.ends & self.expired)

    @property
    def dialled(self) -> Sequence[tuple[str, str]]:
        """Each pair of a slot, and one that it certainly has a connection to: a follower's to its
        leader, a client's to a leader, and any node's to the active controller. Where servers keep
        the metadata it is the active controller that dials brokers. A broker that was added may
        share no partition with another one, and one whose id was taken over has no connection."""
        controllers, taken = self.asked(Role.CONTROLLER), self.taken
        if self.servers:
            metadata = [(c, b) for c in controllers for b in self.holding - controllers]
        else:
            metadata = [(one, c) for c in controllers for one in self.members if one != c]
        return [
            *self.following,
            *((client, broker) for client in self.clients for broker in self.used - taken),
            *(pair for pair in metadata if taken.isdisjoint(pair)),
        ]

    @property
    def taken(self) -> frozenset[str]:
        """The slots of brokers whose id a second process may have taken over, by the reports of
        both."""
        state, newest = self.kafka.state, self.view.newest
        doubled = (
            (slot.name, state.get(newest.get(second_of(slot.name), "")))
            for slot in self.layout.of(Role.BROKER)
            if self.runs(second_of(slot.name))
        )
        return frozenset(
            name
            for name, second in doubled
            if second == "ACTIVE" or state.get(newest.get(name, "")) != "ACTIVE"
        )

    @property
    def following(self) -> Sequence[tuple[str, str]]:
        """Each pair of a follower in an ISR, and the leader that it fetches from, in order. Both
        run, and have their ids: an ISR may still name brokers that have ended."""
        slots = (slot for slot in self.layout.of(Role.BROKER) if self.runs(slot.name))
        brokers = {slot.node_id: slot.name for slot in slots if slot.name not in self.taken}
        return sorted(
            (brokers[replica], brokers[one.leader])
            for one in self.kafka.partitions.values()
            for replica in one.isr
            if replica != one.leader and {replica, one.leader} <= brokers.keys()
        )

    @property
    def members(self) -> Sequence[str]:
        """The slots of brokers, and of controllers that vote: one that was removed while it was cut
        off may stand for election in vain, and fetches from none."""
        quorum = voters(self.view)
        controllers = self.layout.of(Role.CONTROLLER)
        voting = [s.name for s in controllers if not quorum or s.id_as(Role.CONTROLLER) in quorum]
        return [*(slot.name for slot in self.layout.of(Role.BROKER)), *voting]

    def fetches(self, name: str, other: str) -> bool:
        """Whether a node certainly fetches from another one: a follower in an ISR from its leader,
        or any node from the active controller."""
        return (name, other) in self.following or other in self.asked(Role.CONTROLLER)

    @property
    def used(self) -> frozenset[str]:
        """The slots of brokers to which clients certainly have a connection: the leaders of
        partitions, without those of internal topics and of topics that a schedule makes."""
        leaders = {
            one.leader
            for (topic, _), one in self.kafka.partitions.items()
            if not topic.startswith(TOPIC_PREFIX) and not is_internal(topic)
        }
        return frozenset(s.name for s in self.layout.of(Role.BROKER) if s.node_id in leaders)

    def runs(self, name: str) -> bool:
        """Whether a process runs in that slot."""
        return self.view.newest.get(name, "") in self.view.alive

    def asked(self, role: Role) -> frozenset[str]:
        """The slots that other slots of that role fetch from: the active controller's, or
        leaders'."""
        if role is Role.CONTROLLER:
            leaders = {self.active}
        else:
            # Nobody fetches from the leader of a partition with one replica, except clients.
            shared = (one for one in self.kafka.partitions.values() if len(one.replicas) > 1)
            leaders = {one.leader for one in shared}
        slots = self.layout.of(role)
        return frozenset(slot.name for slot in slots if slot.id_as(role) in leaders)

    @property
    def holding(self) -> frozenset[str]:
        """The slots of brokers that are active by their own report and in the committed
        metadata."""
        held = (
            s for s in self.layout.of(Role.BROKER) if not self.kafka.fenced.get(s.node_id, True)
        )
        active = (
            s.name for s in held if self.kafka.state.get(self.view.newest[s.name]) == "ACTIVE"
        )
        return frozenset(active) - self.moment.mending

    @property
    def expired(self) -> frozenset[str]:
        """The slots of brokers that have lost their lease, by their own report."""
        process = self.view.newest
        fenced = {one for one, state in self.kafka.state.items() if state == "FENCED"}
        brokers = (slot.name for slot in self.layout.of(Role.BROKER))
        return frozenset(name for name in brokers if process.get(name) in fenced)

    @property
    def starting(self) -> frozenset[str]:
        return starting(self.view, self.layout)

    @property
    def quiet(self) -> bool:
        """Whether no slot is affected, no process is starting, and every ISR is full.

        Before a process has begun its work, an ISR may still count the former process of its slot.
        """
        full = (set(p.isr) == set(p.replicas) for p in self.kafka.partitions.values())
        return not self.moment.affected and not self.starting and all(full)


def starting(view: View, layout: Layout) -> frozenset[str]:
    """The slots of live processes that have not begun to do their work."""
    nodes = (slot for slot in layout.slots if slot.role != Role.CLIENT)
    return frozenset(slot.name for slot in nodes if not _has_begun(view, slot))


def _has_begun(view: View, slot: Slot) -> bool:
    """Whether a slot's newest process is dead, or was active, or knows the leader of the quorum.
    Servers of other software begin as they start."""
    process = view.newest.get(slot.name, "")
    if process not in view.alive or slot.role not in (Role.BROKER, Role.CONTROLLER):
        return True
    if slot.role is Role.CONTROLLER:
        return in_quorum(view, process)
    changed = view.latest.get((process, kind_name(BrokerStateChanged)))
    if changed is None or not isinstance(changed.body, BrokerStateChanged):
        return False
    # A broker that is no longer active was it before: it has begun, and now stops or has lost its
    # lease.
    return "ACTIVE" in (changed.body.old, changed.body.new)
