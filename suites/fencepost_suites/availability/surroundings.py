"""Which nodes run and vote, and which of them faults affect, by the words of the harness and of
clients.

What a promise of availability needs: brokers, the servers that decide about them (controllers,
ZooKeeper's servers), and the clients' links to all of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Administered,
    Event,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    ProcessSpawned,
)
from fencepost_kafka import ControllerBegan, PartitionCommitted, ProbeCompleted
from fencepost_kafka.active_faults import ActiveFault, ActiveFaults, slot_of
from fencepost_kafka.vocabulary import CLIENTS

SURROUNDINGS: frozenset[type[Struct]] = frozenset(
    {
        *(ProcessSpawned, ProcessExited, FaultInjected, FaultHealed, NodeStarted, ControllerBegan),
        *(Administered, ProbeCompleted),
    }
)
"""The events that `Surroundings.take` applies."""
BROKER = "broker"
_CONTROLLER = "controller"
_DECIDING = (_CONTROLLER, "zookeeper")


class Disturbance(Struct, frozen=True):
    """What an event changed: the slots, or the pairs of slots whose links it affects; in words."""

    words: str
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
    """The slots of controllers and of ZooKeeper's servers."""
    ids: dict[int, str] = field(default_factory=dict)
    """Their ids -> their slots."""
    removed: set[str] = field(default_factory=set)
    """Those that are no voters, as a client was answered."""
    doubted: set[str] = field(default_factory=set)
    """Those that may be voters or not: a change was asked for, and no client knows that it was
    made. Its record may be in a log all the same, and counts from there on (KIP-853)."""
    living: dict[str, str] = field(default_factory=dict)
    """slot -> its live process."""
    acting: str = ""
    """The slot of the broker that began to act as the controller last; only over ZooKeeper."""
    faults: ActiveFaults = field(default_factory=ActiveFaults)
    """Those that act upon something; a fault that ended a process is over with it."""

    # ------------------------------------------------------------------------------------- events

    def take(self, event: Event) -> Disturbance | None:
        """Applies an event. Returns what it disturbed; None if it disturbed nothing."""
        match event.body:
            case ProcessSpawned() as body:
                return self._spawned(event, body)
            case ProcessExited() as body:
                slot = slot_of(body.ended)
                if self.living.get(slot) == body.ended:
                    del self.living[slot]
                return Disturbance(f"{body.ended} ended", frozenset({slot}))
            case NodeStarted(role="controller"):
                return self._started(event)
            case ControllerBegan():
                self.acting = slot_of(event.process)
            case Administered(operation="add_voter" | "remove_voter") as body:
                self.doubted.update(body.targets)
                return self._other_voters(f"a client asked to {body.operation.replace('_', ' ')}")
            case ProbeCompleted(api="AddRaftVoter" | "RemoveRaftVoter", outcome="answered") as body:
                return self._accepted(self.ids.get(body.voter, ""), body.api)
            case FaultInjected() as body:
                if not body.directions and all(map(self._ended, body.targets)):
                    return None
                self.faults.take(event)
                fault = self.faults.now[body.fault_id]
                return _by(fault, f"{body.fault_id} began")
            case FaultHealed() as body:
                healed = self.faults.take(event)
                if healed is not None:
                    return _by(healed, f"{body.fault_id} was healed")
        return None

    def _ended(self, target: str) -> bool:
        """Whether a fault's target is a process that has ended. Its end is what the fault did."""
        return "#" in target and self.living.get(slot_of(target)) != target

    def _spawned(self, event: Event, body: ProcessSpawned) -> Disturbance | None:
        if body.role == BROKER:
            self.brokers[body.slot] = body.node_id
        elif body.role in _DECIDING:
            self.deciding.add(body.slot)
            self.ids[body.node_id] = body.slot
        else:
            return None
        self.living[body.slot] = body.started
        if body.slot not in self.deciders():
            return None
        return Disturbance(f"{body.started} began", frozenset({body.slot}))

    def _started(self, event: Event) -> Disturbance | None:
        """A controller has started, by its own word. That disturbs only where the others were no
        majority without it: until then nothing could be decided."""
        slot = slot_of(event.process)
        self.deciding.add(slot)
        servers = [one for one in self._voting() if one.partition("-")[0] == _CONTROLLER]
        others = [one for one in servers if one in self.living and one != slot]
        if self.living.get(slot) != event.process or 2 * len(others) > len(servers):
            return None
        return Disturbance(f"{event.process} had started", frozenset({slot}))

    def _voting(self) -> frozenset[str]:
        """The slots that vote. Of those in doubt, the ones that run may not, and the others may."""
        return frozenset(self.deciding - self.removed - (self.doubted & self.living.keys()))

    def _accepted(self, slot: str, api: str) -> Disturbance | None:
        """A client was answered that a controller is a voter now, or none any more."""
        if not slot:
            return None
        self.doubted.discard(slot)
        if api == "AddRaftVoter":
            self.removed.discard(slot)
        else:
            self.removed.add(slot)
        return self._other_voters(f"{slot} became {'a' if api == 'AddRaftVoter' else 'no'} voter")

    def _other_voters(self, words: str) -> Disturbance:
        """Other voters may elect another leader, so this disturbs all that decide."""
        return Disturbance(words, self.deciders())

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
        wanted = frozenset(brokers)
        slots = (slot for slot, one in self.brokers.items() if one in wanted)
        return frozenset({*self.deciders(), CLIENTS, *slots})

    def undecided(self) -> str:
        """Why no server may be able to decide about brokers, in words; empty if one can.

        A majority of the servers must run, whether those in doubt vote or not. No fault may affect
        one that runs, or a link between them, or the links by which clients observe them. Where
        brokers decide, one of them must be able to: the controller or a successor, and where there
        is none any that reads of a death.
        """
        for role in {one.partition("-")[0] for one in self.deciding}:
            servers = [one for one in self._voting() if one.partition("-")[0] == role]
            running = [one for one in servers if one in self.living]
            if 2 * len(running) <= len(servers):
                return f"{len(running)} of {len(servers)} servers {role} ran{self._in_doubt()}"
        running = [one for one in self.deciders() if one in self.living]
        reason = self._affected(running) or self._between({*running, CLIENTS})
        if reason or self.acting in self.living or self._has(_CONTROLLER):
            return reason
        brokers = [slot for slot in self.brokers if slot in self.living]
        if all(self._affected([slot]) or self._cut(slot, running) for slot in brokers):
            return "no broker ran unaffected that could decide"
        return ""

    def _in_doubt(self) -> str:
        if not self.doubted:
            return ""
        return f", and it is not known whether {' and '.join(sorted(self.doubted))} voted"

    def _has(self, role: str) -> bool:
        return any(one.partition("-")[0] == role for one in self.deciding)

    def unfit(self, record: PartitionCommitted, least: int) -> str:
        """Why the partition may have no live, connected majority in its ISR, in words; empty if it
        has one, of at least that size.

        Its leader must be dead or a part of that majority, since a leader that lives and is
        affected may go on leading.
        """
        reason = self.undecided()
        if reason:
            return reason
        members = self._connected(record)
        wanted = max(least, len(record.replicas) // 2 + 1)
        if len(members) < wanted:
            place = f"{record.topic}-{record.partition}"
            return f"the ISR {list(record.isr)} of {place} had {len(members)} unaffected members"
        if record.leader not in members and self.slots(record.leader):
            return f"broker {record.leader}, which led, was affected by a fault"
        return ""

    def _connected(self, record: PartitionCommitted) -> Sequence[int]:
        """The members of the ISR that run, once each, and reach each other and the others."""
        others = {*self.deciders(), CLIENTS}
        at: dict[str, int] = {}
        for broker in record.isr:
            slots = self.slots(broker)
            if len(slots) == 1 and not self._affected(slots):
                at[slots[0]] = broker
        for slot in list(at):
            if self._cut(slot, others):
                del at[slot]
        while at:
            # A member that the leader does not reach goes first, then the one with most cuts.
            cuts = {slot: len(self._cut(slot, at)) for slot in at}
            worst = max(at, key=cuts.__getitem__)
            if not cuts[worst]:
                break
            leader = next((slot for slot, one in at.items() if one == record.leader), "")
            away = self._cut(leader, at) if leader else ()
            del at[away[0] if away else worst]
        return [*at.values()]

    def _affected(self, slots: Iterable[str]) -> str:
        for fault in self.faults.now.values():
            for slot in slots:
                if fault.hits(slot):
                    return f"{fault.fault_id} acted upon {slot}"
        return ""

    def _cut(self, slot: str, others: Iterable[str]) -> Sequence[str]:
        """The slots among the others whose link to this one a fault affects."""
        return [
            other
            for other in others
            if other != slot
            and any(
                fault.directions and fault.between(slot, other)
                for fault in self.faults.now.values()
            )
        ]

    def _between(self, slots: Collection[str]) -> str:
        for fault in self.faults.now.values():
            for one, other in sorted(fault.directions):
                if one in slots and other in slots:
                    return f"{fault.fault_id} acted upon the link of {one} and {other}"
        return ""


def _by(fault: ActiveFault, words: str) -> Disturbance:
    if fault.directions:
        return Disturbance(words, pairs=fault.directions)
    return Disturbance(words, slots=fault.slots)


@final
@dataclass(slots=True)
class Fit:
    """Since when a partition has had a live, connected majority in its ISR, undisturbed."""

    since_ns: int | None = None
    """None: it has none."""
    why_not: str = ""
    """What disturbed it last, or why it had none."""

    def look(
        self,
        around: Surroundings,
        record: PartitionCommitted | None,
        least: int,
        at_ns: int,
        disturbance: Disturbance | None,
    ) -> None:
        """Looks again whether it has a majority, of at least that size, and whether it was
        disturbed just now."""
        if record is None:
            self.since_ns, self.why_not = None, "nothing is committed about it"
            return
        reason = around.unfit(record, least)
        if reason:
            self.since_ns, self.why_not = None, reason
        elif self.since_ns is None:
            self.since_ns = at_ns
        elif disturbance is not None and disturbance.touches(around.needed(record.replicas)):
            self.since_ns, self.why_not = at_ns, disturbance.words

    def excuses(self, from_ns: int, at_ns: int, bound_ns: int) -> bool:
        """Whether it had its majority for no longer than the bound in this time."""
        return self.since_ns is None or at_ns - max(from_ns, self.since_ns) <= bound_ns
