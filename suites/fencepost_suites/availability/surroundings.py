"""Which nodes run and vote, and which of them faults affect: what a promise of availability needs.

The problem. A cluster promises to be available only while something is left: brokers, a majority of
the servers that decide about them (controllers, ZooKeeper's servers), and the clients' links to
these. If the excuse is too wide, it hides a broken cluster: when any fault upon any controller was
an excuse, a cut between two standbys excused ten minutes without a write. If it is too narrow, it
accuses a healthy one: a broker stayed unfenced while the one other broker, which had to read of the
death from ZooKeeper, stood still.

Two questions are kept apart. `undecided`, and `unfit` for a partition: is what the promise needs
there now? While it is not, no time counts. A `Disturbance`: did something needed change just now?
Then the bound begins anew, since the next leader grants whole leases.

The rules:

* Only a majority of the voters counts that runs, that no fault acts upon, and whose links with the
  controller that acts no fault affects. The links of standbys with each other do not matter.
* But a standby that does not hear the controller may depose it. So an election is a disturbance if
  a fault upon a voter, or a disturbance shortly before, explains it; else it is none. A chain of
  controllers that elect each other for no reason must not excuse itself.
* If no controller is known to act, some majority must reach each other and the clients.
* A voter may be in doubt: a client asked to remove it, and no client knows whether it was. The
  record may be in a log all the same. So a majority must be one whether it votes or not.
* A controller that starts does not serve yet. If the others are no majority without it, the bound
  begins anew once it has started, and again once it has learned the voters: one of Kafka 4.3.1 did
  so four seconds after it had begun, and nothing could be decided before.
* A controller may say that it started before the harness reports its process. Otherwise each one
  counted as starting for its first 20 s, and a bounced standby was an excuse.
* Which server of ZooKeeper leads is never known, nor which one a broker is connected to. There a
  fault upon any server is a reason, though the others are a majority.
* Where brokers decide, over ZooKeeper, one of them must be able to: the controller or a successor;
  without a controller, any that can read of a death.

Whose word counts: the harness's for processes and faults, the clients' for changes of voters, and
committed records. The word of a controller about itself counts only for when it acts, starts, and
has learned the voters.

What is not done. Nothing is said of how long an election or a fencing takes: the bounds of the run
have room for one. Where faults come more often than a dead broker is fenced, nothing is promised.
For writing and reading, what is left of longer times adds up (`Calm`, in calm.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import final

from msgspec import Struct, structs

from fencepost import (
    Administered,
    Event,
    Excuse,
    Excuses,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    ProcessSpawned,
    Reason,
    process_scope,
    slot_of,
    slot_scope,
)
from fencepost_kafka import (
    BoundsStated,
    ControllerBegan,
    ControllerElected,
    ControllerResigned,
    PartitionCommitted,
    ProbeCompleted,
    QuorumLearned,
    broker_of,
    partition_of,
)
from fencepost_kafka.vocabulary import CLIENTS

SURROUNDINGS: frozenset[type[Struct]] = frozenset(
    {
        *(ProcessSpawned, ProcessExited, FaultInjected, FaultHealed, NodeStarted, ControllerBegan),
        *(Administered, ProbeCompleted, ControllerElected, ControllerResigned, QuorumLearned),
    }
)
"""The events that `Surroundings.take` applies, beside the bounds."""
BROKER = "broker"
_CONTROLLER = "controller"
_ZOOKEEPER = "zookeeper"
_DECIDING = (_CONTROLLER, _ZOOKEEPER)
_OF_VOTERS = frozenset({"AddRaftVoter", "RemoveRaftVoter"})
"""The probes that change the voters."""
_REFUSED = frozenset({"INVALID_REQUEST", "UNSUPPORTED_VERSION", "CLUSTER_AUTHORIZATION_FAILED"})
"""The errors of a change of voters that was certainly not made."""
_START_NS = 20_000_000_000
"""A process that was started again serves by then, even if it does not say so. Without a limit, one
that never says so would excuse everything for the rest of the run."""


class Disturbance(Struct, frozen=True):
    """What an event changed: the slots, or the pairs of slots whose links it affects; and why that
    may be an excuse."""

    why: Reason
    slots: frozenset[str] = frozenset()
    pairs: frozenset[tuple[str, str]] = frozenset()

    def touches(self, needed: Collection[str]) -> bool:
        """Whether it affects one of these slots, or a link between two of them."""
        return not self.slots.isdisjoint(needed) or any(
            one in needed and other in needed for one, other in self.pairs
        )


@final
@dataclass(slots=True)
class Surroundings:
    """The processes and faults of a run."""

    brokers: dict[str, int] = field(default_factory=dict)
    """slot -> broker id; a duplicate's slot has the id of its original."""
    deciding: set[str] = field(default_factory=set)
    """The slots of controllers and of ZooKeeper's servers. One that is dead stays in it: a majority
    is counted of all."""
    ids: dict[int, str] = field(default_factory=dict)
    """Their ids -> their slots."""
    removed: set[str] = field(default_factory=set)
    """Those that are no voters, as a client was answered. No majority is counted with them."""
    doubted: set[str] = field(default_factory=set)
    """Those that may be voters or not: a change was asked for, and no client knows that it was
    made. Its record may be in a log all the same, and counts from there on (KIP-853)."""
    living: dict[str, str] = field(default_factory=dict)
    """slot -> its live process. The end of an earlier process of the slot removes nothing."""
    acting: str = ""
    """The slot of the broker that began to act as the controller last; only over ZooKeeper."""
    faults: Excuses = field(default_factory=Excuses)
    """Those that act upon something; a fault that ended a process is over with it."""
    leading: str = ""
    """The process of the voter that acts as the controller, by its own word; empty if none is known
    to. It is empty from the end or the resignation of one until the election of the next: then all
    that decide are relied upon."""
    led: str = ""
    """The process of the voter that acted last. It stays when `leading` is empty: an election after
    that is explained by what happened to this one."""
    epoch: int = -1
    """The epoch in which it did. An election of an earlier epoch that is written later is none."""
    starting: dict[str, int] = field(default_factory=dict)
    """The slots whose processes were started again and do not serve yet -> since when. The first
    processes of a run are not in it: before they serve, nothing is promised anyway."""
    started: set[str] = field(default_factory=set)
    """The processes of controllers that have said that they started. The harness may report the
    process later, and then it is not `starting`."""
    joining: set[str] = field(default_factory=set)
    """Those of them without which the others were no majority when they started, until they learn
    the voters. Each is in it once, so a controller that learns the voters again excuses nothing."""
    unrest: tuple[int, Reason] | None = None
    """When the servers that decide were disturbed last, and by what; None: by nothing yet."""
    shortly_ns: int = 0
    """For how long that explains an election: the bound within which a dead broker is fenced. 0
    until the run has stated its bounds: then only a fault that still acts explains one."""
    changes: int = 0
    """How many events have been applied that may have changed anything above. As long as it is the
    same, so is what is answered about the same record."""
    parted: frozenset[tuple[str, str]] = frozenset()
    """The pairs of slots whose link a fault affects that acts, in both orders."""
    decided: tuple[int, Reason | None] = (-1, None)
    """The last answer of `undecided`, and how many changes there were before it."""

    # ------------------------------------------------------------------------------------- events

    def take(self, event: Event) -> Disturbance | None:
        """Applies an event. Returns what it disturbed; None if it disturbed nothing.

        What disturbs servers that decide, and leaves no majority with the controller that acts,
        disturbs that controller, too: it may be deposed or resign.
        """
        # Most probes ask for other things than voters, and change nothing here.
        if isinstance(event.body, ProbeCompleted) and event.body.api not in _OF_VOTERS:
            return None
        self.changes += 1
        match event.body:
            case BoundsStated(fenced_ms=fenced_ms):
                self.shortly_ns = fenced_ms * 1_000_000
                return None
            case ControllerElected(epoch=epoch):
                return self._elected(event, epoch)
            case ControllerResigned():
                return self._resigned(event)
            case ControllerBegan():
                self.acting = slot_of(event.process)
                return None
        # Elections are judged above by themselves. What follows is about everything else that
        # happens to processes, faults and voters.
        disturbance = self._changed(event)
        if disturbance is None or not disturbance.touches(self.deciding):
            return disturbance
        # Remembered for an election that comes shortly after: a voter that was cut off and is
        # healed may depose the controller only then.
        self.unrest = event.at_ns, disturbance.why
        # A disturbance of standbys alone touches nothing that brokers rely upon. It does where the
        # controller has lost its majority by it: that one may resign, and then its leases end.
        if self.leading and not self._goes_on(event.at_ns):
            return structs.replace(disturbance, slots=disturbance.slots | self.relied())
        return disturbance

    def _changed(self, event: Event) -> Disturbance | None:
        """Applies an event of a process, a fault or the voters."""
        match event.body:
            case ProcessSpawned() as body:
                return self._spawned(event, body)
            case ProcessExited() as body:
                return self._exited(body.ended)
            case NodeStarted(role="controller"):
                return self._started(event)
            case QuorumLearned() if event.process in self.joining:
                return self._joined(event)
            # From the request on: the record may be in a log although no client is answered. It
            # may bring an election about; by itself it disturbs nothing.
            case Administered(operation="add_voter" | "remove_voter") as body:
                self.doubted.update(body.targets)
                operation = body.operation.replace("_", " ")
                asked = Reason.of("a client asked to {operation}", operation=operation)
                self.unrest = event.at_ns, asked
            case ProbeCompleted(outcome="answered") as body:
                return self._accepted(self.ids.get(body.voter, ""), body.api)
            case ProbeCompleted() as body:
                if body.error in _REFUSED:
                    self.doubted.discard(self.ids.get(body.voter, ""))
            case FaultInjected() as body:
                # A kill is reported after the end of its process. It acts upon nothing any more,
                # and its healing must not disturb either.
                if not body.directions and all(map(self._ended, body.targets)):
                    return None
                self._acts(event)
                fault = self.faults.now[body.fault_id]
                return _by(fault, Reason.of("{fault} began", fault=body.fault_id))
            case FaultHealed() as body:
                healed = self._acts(event)
                if healed is not None:
                    return _by(healed, Reason.of("{fault} was healed", fault=body.fault_id))
        return None

    def _acts(self, event: Event) -> Excuse | None:
        """A fault begins, or is healed. Returns the one that is healed."""
        healed = self.faults.take(event)
        pairs = [pair for fault in self.faults.now.values() for pair in fault.directions]
        self.parted = frozenset((*pairs, *((other, one) for one, other in pairs)))
        return healed

    def _exited(self, ended: str) -> Disturbance:
        slot = slot_of(ended)
        # By the process: a slot may have a new process before the end of the former one is
        # reported.
        if self.living.get(slot) == ended:
            del self.living[slot]
            self.starting.pop(slot, None)
        if self.leading != ended:
            why = Reason.of("{process} ended", process=process_scope(ended))
            return Disturbance(why, frozenset({slot}))
        # What was relied upon until now: afterwards `relied` names all that decide.
        relied, self.leading = self.relied(), ""
        why = Reason.of(
            "{process} ended, which acted as the controller: its successor grants whole leases",
            process=process_scope(ended),
        )
        return Disturbance(why, relied)

    def _elected(self, event: Event, epoch: int) -> Disturbance | None:
        # An observer of a foreign system may report an election late, when a later one is known.
        if slot_of(event.process) not in self.deciding or epoch <= self.epoch:
            return None
        why = self._explained(event.at_ns)  # by what happened to the one before, so it comes first
        self.leading, self.led, self.epoch = event.process, event.process, epoch
        return self._election("{controller} was elected", event.process, why)

    def _resigned(self, event: Event) -> Disturbance | None:
        if event.process != self.leading:
            return None
        why = self._explained(event.at_ns)
        self.leading = ""
        return self._election("{controller} resigned", event.process, why)

    def _election(self, did: str, controller: str, why: Reason | None) -> Disturbance | None:
        """Another controller acts, which gives each broker a whole lease: a disturbance only where
        something explains it."""
        if why is None:
            return None
        template = did + " as {why}: a new controller grants whole leases"
        elected = why.within(template, controller=process_scope(controller))
        return Disturbance(elected, self.relied())

    def _explained(self, at_ns: int) -> Reason | None:
        """What may have made the voters elect; None if nothing that is known."""
        voters = self.deciding - self.removed
        slot = slot_of(self.led)
        # A live controller is deposed by what stops it, or by a voter that does not hear it, so its
        # links count. A standby that is stopped cannot stand: one that was paused long ago excused
        # controllers that replaced each other each 7 s. Once it has ended, any fault upon voters
        # may have hindered the election.
        near = {slot} if self.living.get(slot) == self.led else voters
        for fault in self.faults.now.values():
            for voter in sorted(near):
                if fault.hits(voter):
                    return fault.upon(voter)
            for one, other in sorted(fault.directions):
                if {one, other} <= voters and not near.isdisjoint((one, other)):
                    return fault.upon_link(one, other)
        if self.unrest is None or at_ns - self.unrest[0] > self.shortly_ns:
            return None
        return self.unrest[1].within("{why} shortly before")

    def _ended(self, target: str) -> bool:
        """Whether a fault's target is a process that has ended. Its end is what the fault did."""
        return "#" in target and self.living.get(slot_of(target)) != target

    def _spawned(self, event: Event, body: ProcessSpawned) -> Disturbance | None:
        if body.role == BROKER:
            self.brokers[body.slot] = body.node_id
        elif body.role in _DECIDING:
            # A slot that has run before. Its process was started again, and does not serve yet.
            again = body.slot in self.ids.values()
            if again and body.started not in self.started:
                self.starting[body.slot] = event.at_ns
            self.deciding.add(body.slot)
            self.ids[body.node_id] = body.slot
        else:
            return None
        self.living[body.slot] = body.started
        if body.slot not in self.deciders():
            return None
        why = Reason.of("{process} began", process=process_scope(body.started))
        return Disturbance(why, frozenset({body.slot}))

    def _started(self, event: Event) -> Disturbance | None:
        """A controller has started, by its own word. That disturbs only where the others were no
        majority without it: until then nothing could be decided."""
        slot = slot_of(event.process)
        self.deciding.add(slot)
        self.started.add(event.process)
        # Asked before it counts as serving: whether the others decided without it until now.
        needed = not self._goes_on(event.at_ns, without=slot)
        if self.living.get(slot) != event.process or self.leading == event.process:
            return None
        self.starting.pop(slot, None)
        came = self._came(event, "{process} had started")
        if needed:
            self.joining.add(event.process)
        return came if needed else None

    def _joined(self, event: Event) -> Disturbance | None:
        """A controller that the others need has read the voters, once. It votes only then: on a
        busy machine, Kafka's does so seconds after it has begun."""
        self.joining.discard(event.process)
        lives = self.living.get(slot_of(event.process)) == event.process
        return self._came(event, "{process} had learned the voters") if lives else None

    def _came(self, event: Event, did: str) -> Disturbance:
        why = Reason.of(did, process=process_scope(event.process))
        self.unrest = event.at_ns, why
        return Disturbance(why, self.relied() | {slot_of(event.process)})

    def _voting(self, servers: frozenset[str]) -> frozenset[str]:
        """Those that vote. Of those in doubt, the ones that run may not, and the others may."""
        # The count of votes that is hardest to reach: one in doubt that runs is not counted upon,
        # and one that is dead still raises the majority.
        return servers - (self.doubted & self.living.keys())

    def _ensembles(self) -> Iterator[tuple[str, frozenset[str]]]:
        """The servers that vote together, with their role."""
        servers = frozenset(self.deciding - self.removed)
        kept = frozenset(one for one in servers if one.startswith(_ZOOKEEPER))
        yield from ((_ZOOKEEPER, kept),) if kept else ()
        yield from ((_CONTROLLER, servers - kept),) if servers - kept else ()

    def _accepted(self, slot: str, api: str) -> Disturbance | None:
        """A client was answered that a controller is a voter now, or none any more."""
        if not slot:
            return None
        self.doubted.discard(slot)
        if api == "AddRaftVoter":
            self.removed.discard(slot)
        else:
            self.removed.add(slot)
        template = "{slot} became a voter" if api == "AddRaftVoter" else "{slot} became no voter"
        # Other voters may elect another leader, so this disturbs all that decide.
        return Disturbance(Reason.of(template, slot=slot_scope(slot)), self.deciders())

    # ------------------------------------------------------------------------------------- answers

    def deciders(self) -> frozenset[str]:
        """The slots of the servers that decide about brokers now."""
        voters = self.deciding - self.removed
        return frozenset({*voters, *([self.acting] if self.acting else [])})

    def nodes(self) -> frozenset[str]:
        """The slots of nodes that have run."""
        return frozenset({*self.brokers, *self.deciding})

    def slots(self, broker: int) -> Sequence[str]:
        """The slots in which a process with that id runs."""
        return [slot for slot, one in self.brokers.items() if one == broker and slot in self.living]

    def needed(self, brokers: Iterable[int] = ()) -> frozenset[str]:
        """The slots of the deciding servers, of these brokers, and of the clients."""
        return frozenset({*self.deciders(), CLIENTS, *self._of(brokers)})

    def disturbs(self, disturbance: Disturbance | None, brokers: Iterable[int] = ()) -> bool:
        """Whether it affects what these brokers rely upon: each other, the clients, and the
        controller that acts. Where none is known to, they rely upon all the servers."""
        relied = {*self.relied(), CLIENTS, *self._of(brokers)}
        return disturbance is not None and disturbance.touches(relied)

    def hinders(self, disturbance: Disturbance, record: PartitionCommitted) -> bool:
        """Whether it affects what writing to a partition needs, and reading from it.

        While its leader lives, no client needs a follower, and no follower another one: a link of
        the two that was slow for 3 ms each few seconds excused three minutes without a write.
        """
        if not self.disturbs(disturbance, {*record.isr, record.leader}):
            return False
        leader, relied = frozenset(self.slots(record.leader)), self.relied()
        members = {*self._of(record.isr), *leader, *relied}
        if not leader or not disturbance.slots.isdisjoint({*members, CLIENTS}):
            return True
        served = {*members, CLIENTS}
        needed = leader | relied
        return any({*pair} <= served and not needed.isdisjoint(pair) for pair in disturbance.pairs)

    def _of(self, brokers: Iterable[int]) -> Iterator[str]:
        wanted = frozenset(brokers)
        return (slot for slot, one in self.brokers.items() if one in wanted)

    def relied(self) -> frozenset[str]:
        """The slots of those that brokers turn to: the controller that acts, or all if none is
        known to."""
        return frozenset({slot_of(self.leading)}) if self.leading else self.deciders()

    def undecided(self) -> Reason | None:
        """Why no server may be able to decide about brokers; None if one can.

        A majority of the servers must run, whether those in doubt vote or not, that no fault
        affects: neither its members, nor their links with the one that acts, nor the links by which
        clients observe that one. If none is known to act, all their links count. Which server of
        ZooKeeper leads is never known, nor which one a broker is connected to: there a fault upon
        any server may be the reason. Where brokers decide, one of them must be able to: the
        controller or a successor, and where there is none any that reads of a death.
        """
        # Asked for each partition after a change.
        if self.decided[0] != self.changes:
            self.decided = self.changes, self._undecided()
        return self.decided[1]

    def _undecided(self) -> Reason | None:
        # Three steps: too few run; enough run, but a fault is upon them or between them; and, where
        # brokers decide, none of them is able to.
        for role, servers in self._ensembles():
            running = frozenset(one for one in servers if one in self.living)
            if not self._sure(running, servers):
                voting = self._voting(servers)
                return self._in_doubt(
                    Reason.of(
                        "{running} of {voting} servers {role} ran",
                        running=len(running & voting),
                        voting=len(voting),
                        role=role,
                    )
                )
            harm = self._harm(running)
            # For ZooKeeper any harm is a reason; see the module. Controllers have to lose every
            # majority by it.
            if harm and (role == _ZOOKEEPER or not self._able(running, servers)):
                return harm
        # Controllers decide themselves. Over ZooKeeper its servers only store, and a broker has to
        # decide.
        if self._has_controllers():
            return None
        running = frozenset(self.deciding & self.living.keys())
        if self.acting in self.living:
            return self._affected([self.acting]) or self._harmed(self.acting, running)
        brokers = [slot for slot in self.brokers if slot in self.living]
        if all(self._affected([slot]) or self._cut(slot, running) for slot in brokers):
            return Reason("no broker ran unaffected that could decide")
        return None

    def _goes_on(self, at_ns: int, without: str = "") -> bool:
        """Whether a majority of the controllers decides without one, and without those that do not
        serve yet."""
        for role, servers in self._ensembles():
            if role == _CONTROLLER:
                new = {s for s, since_ns in self.starting.items() if at_ns - since_ns <= _START_NS}
                return self._able(servers & self.living.keys() - new - {without}, servers)
        return False

    def _sure(self, some: Collection[str], servers: Collection[str]) -> bool:
        """Whether some of the servers are a majority, whichever of those in doubt vote."""
        # Both extremes at once: those in doubt that run do not vote, those that do not run do.
        certain = {*some} - self.doubted
        voting = {*servers} - (self.doubted & {*some})
        return 2 * len(certain) > len(voting)

    def _able(self, running: Collection[str], servers: Collection[str]) -> bool:
        """Whether those that run have a majority that no fault affects."""
        good = [one for one in sorted(running) if not self._affected((one,))]
        first = slot_of(self.leading)
        if first and first in servers:
            # A star round the controller that acts is enough: followers fetch from it, and not from
            # each other.
            with_it = [one for one in good if not self._cut(one, (first,))]
            return (
                first in good and not self._cut(first, (CLIENTS,)) and self._sure(with_it, servers)
            )
        seen = [one for one in good if not self._cut(one, (CLIENTS,))]
        return any(
            # No controller is known: any of them may become it, so a majority must be connected
            # with each other. There are at most a few servers, so all sets are tried, the largest
            # first.
            self._sure(some, servers) and not self._between(some)
            for size in range(len(seen), 0, -1)
            for some in combinations(seen, size)
        )

    def _harm(self, running: Collection[str]) -> Reason | None:
        """What affects the servers that run; first what affects the one that acts."""
        slots, first = sorted(running), slot_of(self.leading)
        own = self._affected((first,)) or self._harmed(first, (CLIENTS,)) if first else None
        upon = own or self._affected(slots) or (self._harmed(first, slots) if first else None)
        return upon or self._between({*slots, CLIENTS})

    def _harmed(self, slot: str, others: Iterable[str]) -> Reason | None:
        """What affects a slot's links with others."""
        return next(filter(None, (self._between((slot, one)) for one in others)), None)

    def _in_doubt(self, why: Reason) -> Reason:
        """The same reason, with the servers of which it is not known whether they vote."""
        if not self.doubted:
            return why
        return why.within(
            "{why}, and it is not known whether {names} voted",
            names=" and ".join(sorted(self.doubted)),
            doubted=tuple(map(slot_scope, sorted(self.doubted))),
        )

    def _has_controllers(self) -> bool:
        """Whether servers decide that are no brokers over ZooKeeper; they may be brokers, too."""
        return any(not one.startswith(_ZOOKEEPER) for one in self.deciding)

    def unfit(self, record: PartitionCommitted, least: int) -> Reason | None:
        """Why the partition may have no live, connected majority in its ISR; None if it has one, of
        at least that size.

        Its leader must be dead or a part of that majority, since a leader that lives and is
        affected may go on leading.
        """
        reason = self.undecided()
        if reason is not None:
            return reason
        members = self._connected(record.isr, record.leader)
        wanted = _wanted(record, least)
        if len(members) < wanted:
            return Reason.of(
                "the ISR {isr} of {partition} had {unaffected} unaffected members",
                isr=tuple(map(broker_of, record.isr)),
                partition=partition_of(record),
                unaffected=len(members),
            )
        # A dead leader is replaced, and the bound has room for that. A live one behind a fault
        # keeps the leadership for as long as its lease, or its session, can be renewed.
        if record.leader not in members and self.slots(record.leader):
            return Reason.of(
                "broker {leader}, which led, was affected by a fault",
                leader=broker_of(record.leader),
            )
        return None

    def may_be_whole(self, record: PartitionCommitted, least: int) -> bool:
        """Whether nothing keeps the partition's ISR from having such a majority.

        Its leader lives, is in the ISR, and reaches enough other replicas. If it has none, or lost
        it, then all replicas live and reach each other: of a few, the one that must lead may be
        missing.
        """
        if self.undecided() is not None:
            return False
        there = self._connected(record.replicas, record.leader)
        if record.leader in there and record.leader in record.isr:
            return len(there) >= _wanted(record, least)
        return {*there} == {*record.replicas} and (record.leader < 0 or record.leader in there)

    def _connected(self, brokers: Iterable[int], leads: int) -> Sequence[int]:
        """Those of a partition's brokers that run, once each, and reach each other and the
        others."""
        others = {*self.relied(), CLIENTS}
        at: dict[str, int] = {}
        for broker in brokers:
            slots = self.slots(broker)
            # A broker with two processes under its id is no member that can be counted: either may
            # be the one in the ISR.
            if len(slots) == 1 and not self._affected(slots):
                at[slots[0]] = broker
        for slot in list(at):
            # The link with the controller, or with the clients.
            if self._cut(slot, others):
                del at[slot]
        while at:
            # A member that the leader does not reach goes first, then the one with most cuts.
            cuts = {slot: len(self._cut(slot, at)) for slot in at}
            worst = max(at, key=cuts.__getitem__)
            if not cuts[worst]:
                break
            leader = next((slot for slot, one in at.items() if one == leads), "")
            away = self._cut(leader, at) if leader else ()
            del at[away[0] if away else worst]
        return [*at.values()]

    def _affected(self, slots: Iterable[str]) -> Reason | None:
        for fault in self.faults.now.values():
            for slot in slots:
                if fault.hits(slot):
                    return fault.upon(slot)
        return None

    def _cut(self, slot: str, others: Iterable[str]) -> Sequence[str]:
        """The slots among the others whose link to this one a fault affects."""
        return [one for one in others if (slot, one) in self.parted] if self.parted else []

    def _between(self, slots: Collection[str]) -> Reason | None:
        for fault in self.faults.now.values():
            for one, other in sorted(fault.directions):
                if one in slots and other in slots:
                    return fault.upon_link(one, other)
        return None


def _wanted(record: PartitionCommitted, least: int) -> int:
    """How many members are a majority, and take writes."""
    return max(least, len(record.replicas) // 2 + 1)


def _by(fault: Excuse, why: Reason) -> Disturbance:
    if fault.directions:
        return Disturbance(why, pairs=fault.directions)
    return Disturbance(why, slots=fault.slots)
