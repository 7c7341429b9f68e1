"""The cluster is whole again soon after the last fault healed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    HARNESS,
    MS,
    NOTHING,
    Administered,
    Cause,
    ClusterRecovered,
    Deadline,
    Event,
    Evidence,
    Excused,
    Exercised,
    Facts,
    FaultHealed,
    Findings,
    Key,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    Reason,
    Rule,
    RunEnd,
    Scope,
    Shared,
    Violated,
    began_ns,
    is_second,
    judged,
    on,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BoundsStated,
    BrokerCommitted,
    BrokerDeclared,
    BrokerDeleted,
    ControllerElected,
    ControllerResigned,
    HeartbeatRefused,
    PartitionCommitted,
    TopicCommitted,
    TopicMarked,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import Brokers, Partitions, TopicPartition
from fencepost_kafka.judging.forfeits import Forfeits
from fencepost_kafka.view import REMOVE_BROKER
from fencepost_suites.availability.surroundings import SURROUNDINGS, Surroundings


class _Lack(Struct, frozen=True):
    """Something that the cluster lacks by committed metadata, and the event that leaves it so, if
    one is known; empty if the cluster is whole."""

    words: str = ""
    because: tuple[Cause, ...] = ()
    facts: Facts = {}
    what: str = ""
    """`fenced`, `leaderless` or `short`."""
    of: Scope = Scope("", "")
    outside: tuple[Scope, ...] = ()
    """The brokers that the ISR of a short partition lacks."""


@dataclass(slots=True)
class _Healing:
    forfeits: Forfeits
    lost: Mapping[TopicPartition, Reason] = field(default_factory=dict)
    """The partitions that only an unclean election could give a leader, if they have none: each
    disk that may have had all of it was lost. No promise asks for that. Once a member has all of it
    again, the leader is awaited again."""
    around: Surroundings = field(default_factory=Surroundings)
    bounds: BoundsStated | None = None
    brokers: Brokers = field(default_factory=Brokers)
    partitions: Partitions = field(default_factory=Partitions)
    cleared: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """The partitions whose last eligible leaders a record took while the ISR was empty -> its
    offset, and its event."""
    leaderless: dict[tuple[str, int], Cause] = field(default_factory=dict)
    """The partitions without a leader -> the event of the first record that says so."""
    refused: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    """broker -> the error that its process was refused with last, since its newest record."""
    marked: set[str] = field(default_factory=set)
    """The topics that are being deleted."""
    known: set[str] = field(default_factory=set)
    """The slots in which a node has run, without duplicates."""
    removed: set[str] = field(default_factory=set)
    """The slots of brokers that an administrator removes for good, by the harness's word."""
    fallen: dict[str, int] = field(default_factory=dict)
    """The slots of brokers whose process ended by itself -> when one was started there again, or
    -1. That excuses their own places, for the bound after the start, and nothing else: a broker
    that crashed each 15 s excused for ten minutes that another one stayed fenced."""
    quiet_ns: int | None = None
    """Since when no fault has acted, and every node has run; None: that is not so."""
    healed: Cause | None = None
    """The last healing, until the cluster is whole after it, or this was judged."""
    healed_ns: int = 0
    """When that was."""
    broken: bool = False
    """Whether the cluster was not whole since the fault that was healed."""
    suspects: list[Deadline] = field(default_factory=list)
    late: bool = False
    """Whether the recovery from the last healing is among the suspects."""
    over: bool = False
    is_whole: bool | None = None
    """Whether the cluster lacked nothing when that was asked last; None: something that decides it
    has changed since."""

    def quiet(self) -> bool:
        """Whether no fault acts and every node runs, once, but those that were removed for good or
        ended by themselves."""
        # A slot that was removed for good and runs again counts like any other. A duplicate that
        # runs makes the two sets differ, so the cluster is not quiet.
        running = set(self.around.living)
        absent = {*self.removed, *self.fallen} - running
        return not self.around.faults.now and self.known - absent == running

    def gone(self) -> frozenset[int]:
        """The brokers that were removed for good, and run no more."""
        return self._of(self.removed - self.around.living.keys())

    def away(self, at_ns: int) -> frozenset[int]:
        """The brokers that have no place to be awaited in: they were removed for good, or ended by
        themselves and have not had the bound since their start."""
        bound_ns = self.bounds.recovered_ms * MS if self.bounds else 0
        fallen = {
            slot
            for slot, began_ns in self.fallen.items()
            if slot not in self.around.living or at_ns - began_ns <= bound_ns
        }
        return self.gone() | self._of(fallen)

    def _of(self, slots: Set[str]) -> frozenset[int]:
        if not slots:
            return frozenset()
        return frozenset(n for slot, n in self.around.brokers.items() if slot in slots)

    def stored(self, body: PartitionCommitted, ref: Cause) -> None:
        """Applies a partition's record, which an event has."""
        newer, before = self.partitions.take(body)
        if not newer:
            return
        self.is_whole = None
        # A newer record of a topic's partition after its mark: the topic was made again under its
        # name.
        self.marked.discard(body.topic)
        place = body.topic, body.partition
        if body.leader >= 0:
            self.leaderless.pop(place, None)
        elif before is None or before.leader >= 0:
            self.leaderless[place] = ref
        if body.isr or body.eligible:
            self.cleared.pop(place, None)
        # Kafka may elect a replica outside the ISR that is known to be eligible (KIP-966). A record
        # that takes the last of these from a partition with an empty ISR leaves none to elect: the
        # cluster stays without that leader, and the message names the record.
        elif before is not None and not before.isr and before.eligible:
            self.cleared[place] = body.offset, ref

    def excused(self) -> Reason | None:
        """Why the cluster may lack something for good, of the first such place; None if there is
        none: a partition that nobody has any more, or a broker that was removed and is a replica
        still."""
        for place, one in self.partitions.newest.items():
            if self._lost(place, one):
                return self.lost[place]
        gone = self.gone()
        for place, one in self.partitions.newest.items():
            lost = sorted(gone.intersection(one.replicas)) if one.topic not in self.marked else ()
            if lost:
                return Reason.of(
                    "broker {broker} was removed for good, and was a replica of {partition} still",
                    broker=broker_of(lost[0]),
                    partition=partition_at(*place),
                )
        return None

    def whole(self) -> bool:
        """Whether the cluster lacks nothing, but for the places of brokers that were removed."""
        # Asked at each event while that is awaited; most of these are records that were known.
        if self.is_whole is None:
            self.is_whole = not self.lacks(self.gone()).words
        return self.is_whole

    def lacks(self, gone: Set[int]) -> _Lack:
        """The first thing that the cluster lacks, but for the places of some brokers."""
        return next(self.lacking(gone), _Lack())

    def lacking(self, gone: Set[int]) -> Iterator[_Lack]:
        """All that the cluster lacks, but for the places of some brokers."""
        fenced = (b for b, one in self.brokers.newest.items() if one.fenced)
        for broker in fenced:
            # A fenced broker without a process is as it should be.
            if self.around.slots(broker) and broker not in gone:
                yield self._fenced(broker)
        for place, one in self.partitions.newest.items():
            # Only such brokers have its messages: nobody can lead it.
            if one.topic in self.marked or (one.isr and gone >= set(one.isr)):
                continue
            if self._lost(place, one):
                continue
            # A partition that moves needs a leader all the same, so this comes before the question
            # of reassignments.
            if not self.around.slots(one.leader):
                yield self._leaderless(place, one)
                continue
            if one.adding or one.removing:
                continue  # its replicas change, so the ISR need not have all of them
            if set(one.isr) - gone != set(one.replicas) - gone:
                name, isr, all_of = f"{place[0]}-{place[1]}", list(one.isr), list(one.replicas)
                outside = sorted(set(one.replicas) - set(one.isr) - gone)
                words = f"the ISR of {name} is {isr} of {all_of}"
                brokers = tuple(map(broker_of, outside))
                yield _Lack(words, (), _places(one), "short", partition_of(one), outside=brokers)

    def _lost(self, place: TopicPartition, one: PartitionCommitted) -> bool:
        """Whether a partition has no leader, and is lost."""
        return place in self.lost and not self.around.slots(one.leader)

    def all_lacking(self, gone: Set[int]) -> Facts:
        """The live brokers that are fenced, the partitions without a live leader, those whose ISR
        lacks a replica, and the brokers of these replicas."""
        found: dict[str, list[Scope]] = {"fenced": [], "leaderless": [], "short": []}
        outside: dict[Scope, None] = {}
        for one in self.lacking(gone):
            found[one.what].append(one.of)
            outside.update(dict.fromkeys(one.outside))
        return {**{name: tuple(some) for name, some in found.items()}, "outside": tuple(outside)}

    def _fenced(self, broker: int) -> _Lack:
        error, ref = self.refused.get(broker, ("", None))
        of, words = broker_of(broker), f"broker {broker} is fenced"
        if ref is None:
            return _Lack(words, (), {"broker": of}, "fenced", of)
        why = f", and was refused last with {error}" if error else ""
        return _Lack(f"{words}{why}", (ref,), {"broker": of, "error": error}, "fenced", of)

    def _leaderless(self, place: TopicPartition, one: PartitionCommitted) -> _Lack:
        words = f"{place[0]}-{place[1]} has no live leader"
        if place not in self.cleared:
            since = self.leaderless.get(place)
            because = () if since is None else (since,)
            return _Lack(words, because, _places(one), "leaderless", partition_of(one))
        offset, ref = self.cleared[place]
        why = f"offset {offset} left no replica eligible beside an empty ISR"
        facts = {**_places(one), "cleared_at": offset}
        says = f"{words}, and none may be elected: {why}"
        return _Lack(says, (ref,), facts, "leaderless", partition_of(one))


def _places(one: PartitionCommitted) -> Facts:
    """A partition, and the brokers that have a place in it."""
    leader: Facts = {"leader": broker_of(one.leader)} if one.leader >= 0 else {}
    return {
        "partition": partition_of(one),
        "isr": tuple(one.isr),
        "replicas": tuple(one.replicas),
        **leader,
    }


@final
class RecoversInTime(Rule[_Healing]):
    """AVAIL-recovered. Judged by committed metadata: every live broker is unfenced, and every
    partition has a live leader and all its replicas in the ISR, at some time between the last
    healing and the end of the bound. The bound counts anew from each fault and each end or start of
    a node, but not from a broker that ends by itself: that excuses its own places, until the bound
    after its next start. A broker that an administrator removed for good is awaited no more, and
    its places are excused. So is a partition without a leader, if each disk was lost that may have
    had all of it. Exercised if something was lacking after a fault. If the harness reports that the
    cluster has not recovered, that breaks the promise as well."""

    clause = "AVAIL-recovered"
    folds = (Forfeits,)

    def start(self, key: Key, shared: Shared) -> _Healing:
        return _Healing(shared[Forfeits])

    @on(
        *SURROUNDINGS,
        BoundsStated,
        BrokerCommitted,
        BrokerDeclared,
        BrokerDeleted,
        PartitionCommitted,
        TopicCommitted,
        TopicMarked,
        ClusterRecovered,
        PhaseStarted,
        HeartbeatRefused,
    )
    def step(self, state: _Healing, event: Event, body: Struct) -> Findings:
        if state.over:
            return NOTHING
        since_ns = began_ns(event)
        # What is late by now stays so, whatever this event changes.
        self._late(state, min(since_ns, event.at_ns))
        if state.lost is not state.forfeits.lost:
            state.lost, state.is_whole = state.forfeits.lost, None
        match body:
            case BoundsStated():
                state.bounds = body
            case PhaseStarted():
                state.over = body.phase == "end"
            case ClusterRecovered():
                if not body.recovered:
                    return self._reported(state, event, body)
            case PartitionCommitted():
                state.stored(body, event.ref)
            case BrokerCommitted() | BrokerDeclared():
                if state.brokers.take(body)[0]:
                    state.is_whole = None
                state.refused.pop(body.broker_id, None)
            # A second process with the id is refused rightly, and says nothing of the broker.
            case HeartbeatRefused() if not is_second(event.process):
                state.refused[body.broker_id] = body.error, event.ref
            case BrokerDeleted():
                state.brokers.forget(body)
                state.is_whole = None
            case TopicCommitted():
                state.partitions.forget(body)
                state.is_whole = None
            case TopicMarked():
                state.marked.add(body.topic)
                state.is_whole = None
            case _:
                self._changed(state, event)
                state.is_whole = None
        return self._whole(state, event)

    @staticmethod
    def _changed(state: _Healing, event: Event) -> None:
        """A process, a fault or the acting controller changed."""
        around, body = state.around, event.body
        disturbance = around.take(event)
        slot = ""
        if isinstance(body, ProcessSpawned):
            slot = body.slot
            state.removed.discard(slot)
            if slot in state.fallen:
                state.fallen[slot] = event.at_ns
                return
            if slot in around.nodes() and not is_second(slot):
                state.known.add(slot)
        elif isinstance(body, ProcessExited):
            slot = slot_of(body.ended)
            if not body.expected and state.quiet_ns is not None and slot not in around.deciding:
                state.fallen[slot] = -1
                return
            state.fallen.pop(slot, None)
        elif isinstance(body, Administered) and body.operation == REMOVE_BROKER:
            state.removed.update(body.targets)
        # The promise begins anew with each healing: the cluster is to be whole after the last one.
        elif isinstance(body, FaultHealed):
            state.healed, state.healed_ns, state.late = event.ref, event.at_ns, False
        # Elections do not begin the bound anew: controllers that elect each other without end must
        # be found.
        elif disturbance is None or isinstance(body, ControllerElected | ControllerResigned):
            return
        # Clients come and go without an effect on the cluster.
        if not slot or slot in around.nodes():
            state.quiet_ns = event.at_ns if state.quiet() else None

    @staticmethod
    def _whole(state: _Healing, event: Event) -> Findings:
        """Looks whether the cluster is whole, while that is awaited."""
        # Before any fault, and after the cluster was found whole, nothing is awaited.
        if state.healed is None and not state.around.faults.now:
            return NOTHING
        if not state.whole():
            state.broken = True
            return NOTHING
        if state.quiet_ns is None:
            return NOTHING
        was, state.broken = state.broken, False
        # What comes after is judged from the next fault on, but not before the cluster has had the
        # time to notice this one: a cut that was healed before brokers were fenced fenced them
        # later, and nobody looked any more.
        noticed_ns = (state.bounds.fenced_ms if state.bounds else 0) * MS
        if state.healed is None or event.at_ns - state.healed_ns >= noticed_ns:
            state.healed, state.late = None, False
        if not (was and state.bounds):
            return NOTHING
        why = state.excused()
        if why is not None:
            return (Excused(event.ref, why.words, why=why.facts),)
        return (Exercised(event.ref, Evidence.PEER),)

    def _late(self, state: _Healing, at_ns: int) -> None:
        """Takes note of what the cluster still lacks when the bound is over."""
        if state.healed is None or state.quiet_ns is None or state.bounds is None:
            return
        bound_ns, took_ns = state.bounds.recovered_ms * MS, at_ns - state.quiet_ns
        if took_ns <= bound_ns:
            return
        away = state.away(at_ns)
        lack = state.lacks(away)
        if not lack.words:
            # It was whole when the bound ended. What breaks later, this healing does not answer
            # for.
            if not state.lacks(state.gone()).words:
                state.healed = None
            return
        broken = violated(
            state.healed,
            Evidence.PEER,
            "{after_ns} after the last healing {lack}",
            lack.because,
            after_ns=took_ns,
            lack=lack.words,
            **{**lack.facts, **state.all_lacking(away)},
        )
        self._suspect(state, broken, state.quiet_ns, at_ns, bound_ns)

    def _reported(self, state: _Healing, event: Event, body: ClusterRecovered) -> Findings:
        if state.late:
            return NOTHING  # committed metadata has shown it
        if state.bounds is None:
            return NOTHING  # without stated bounds, there are no brokers that this is about
        away = state.away(event.at_ns)
        lack = state.lacks(away)
        missing = [*body.missing, lack.words] if lack.because else body.missing
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{bound_ms} ms after everything healed: {missing}",
            lack.because if state.healed is None else (state.healed, *lack.because),
            bound_ms=body.bound_ms,
            missing="; ".join(missing),
            **{**lack.facts, **state.all_lacking(away)},
        )
        why = None if lack.words else state.excused()
        if why is not None:
            return (Excused.of(broken, why),)
        bound_ns = body.bound_ms * MS
        self._suspect(state, broken, event.at_ns - bound_ns, event.at_ns, bound_ns)
        return NOTHING

    @staticmethod
    def _suspect(
        state: _Healing, broken: Violated, from_ns: int, to_ns: int, bound_ns: int
    ) -> None:
        state.suspects.append(Deadline(broken, (HARNESS, *state.known), from_ns, to_ns, bound_ns))
        state.healed, state.broken, state.late = None, False, True

    def end(self, state: _Healing, end: RunEnd) -> Findings:
        if not state.over:
            self._late(state, end.ended_at_ns)
        return judged(state.suspects, end)
