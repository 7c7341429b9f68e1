"""A partition can be written to while a majority of it lives, and again soon after its leader
died."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    HARNESS,
    MS,
    NOTHING,
    Cause,
    ClientFailed,
    Deadline,
    Event,
    Evidence,
    Excused,
    Exercised,
    Facts,
    Finding,
    Findings,
    Key,
    PhaseStarted,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Shared,
    Violated,
    began_ns,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BoundsStated,
    BrokerCommitted,
    BrokerDeclared,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
    TopicCommitted,
    TopicMarked,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import Partitions, TopicPartition
from fencepost_kafka.judging.forfeits import Forfeits
from fencepost_suites.availability.calm import Fit
from fencepost_suites.availability.surroundings import SURROUNDINGS, Disturbance, Surroundings

PAUSE_NS = 1_000 * MS
"""A longer time without an open write is a pause of the clients' own making."""
SHORT_NS = 5_000 * MS
"""No longer pause is one between attempts."""
LONG_AGO_NS = -(1 << 62)
"""A partition that clients do not want to write to is tried anew by the next write."""
OWN_ERRORS = frozenset({"MSG_SIZE_TOO_LARGE", "_QUEUE_FULL"})
"""Errors of a write that the client refused itself."""
REFUSED_FOR_GOOD = frozenset(
    {
        *("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD"),
        *("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
    }
)
"""Errors of a write that no cluster would accept, by the word of a broker. It is believed of a
client none of whose writes was ever accepted there."""
ATTEMPTS = 5
"""So many failed attempts, over more than twice the bound, are late whatever the pauses between
them."""


class Death(Struct, frozen=True):
    """The death of a partition's leader."""

    at_ns: int
    ref: Cause
    broker: int


@dataclass(slots=True)
class Wanted:
    """The writes that clients want of one partition."""

    open: dict[str, tuple[int, str]] = field(default_factory=dict)
    """operation -> when it was invoked, and by which process."""
    unread: dict[str, int] = field(default_factory=dict)
    """Writes without acks=all that no consumer has got: operation -> when it was invoked."""
    held_back: dict[str, int] = field(default_factory=dict)
    """process -> when its idempotent producer raised its epoch last. It sends little meanwhile."""
    since_ns: int = 0
    """Since when clients have wanted to write, and none could."""
    asked: Event | None = None
    """The newest of them."""
    idle_ns: int | None = LONG_AGO_NS
    """When the last open write ended, while none is open."""
    pauses: list[tuple[int, int]] = field(default_factory=list)
    """The begin and the end of each pause since clients could write last."""
    failures: list[tuple[int, int]] = field(default_factory=list)
    """The begin and the end of each attempt that failed since clients could write last."""
    accepted: set[str] = field(default_factory=set)
    """The processes of which the partition has accepted a write."""
    fit: Fit = field(default_factory=Fit)
    death: Death | None = None
    """The death of its leader, until a write that was invoked after it is acknowledged."""
    reported: bool = False
    excuse: Reason | None = None
    """The excuse that was printed since clients could write last."""

    def begin(self, at_ns: int) -> None:
        """Clients could write at this time, or begin to want it."""
        self.since_ns, self.reported, self.excuse = at_ns, False, None
        self.pauses = [one for one in self.pauses if one[1] > at_ns]
        self.failures = [one for one in self.failures if one[0] > at_ns]

    def read(self, operations: Iterable[str]) -> None:
        """A consumer got messages, so they are committed. If all clients with open writes hold them
        back, this shows that the partition could be written to when these were invoked."""
        invoked_ns = max((self.unread.pop(one, 0) for one in operations), default=0)
        held_back = all(
            self.held_back.get(client, 0) > self.since_ns for _, client in self.open.values()
        )
        if held_back and invoked_ns > self.since_ns:
            self.begin(invoked_ns)

    def resume(self, at_ns: int) -> None:
        """A client writes."""
        idle_ns, self.idle_ns = self.idle_ns, None
        if idle_ns == LONG_AGO_NS:
            self.begin(at_ns)
        elif idle_ns is not None and at_ns - idle_ns > PAUSE_NS:
            self.pauses.append((idle_ns, at_ns))

    def idle(self, at_ns: int) -> int:
        """How long no client wanted to write since one could last."""
        return sum(min(end, at_ns) - max(begin, self.since_ns) for begin, end in self.pauses)

    def late(self, from_ns: int, at_ns: int, bound_ns: int) -> bool:
        """Whether clients have tried to write for longer than the bound.

        Pauses do not count. But where clients try again and again, with short pauses, for twice the
        bound, the partition is not writable, though each attempt may fail at once. Of the last
        pause that is not known: the attempt after it may succeed.
        """
        pauses = [(end - max(begin, from_ns), end - begin) for begin, end in self.pauses]
        pauses = [one for one in pauses if one[0] > 0]
        failed = [begin for begin, _ in self.failures if begin >= from_ns]
        if len(failed) >= ATTEMPTS and self.failures[-1][1] - failed[0] > 2 * bound_ns:
            return True
        whole_ns, last_ns = at_ns - from_ns, pauses[-1][0] if pauses else 0
        long_ns = sum(within for within, length in pauses[:-1] if length > SHORT_NS)
        tried_ns = whole_ns - sum(within for within, _ in pauses)
        return tried_ns > bound_ns or whole_ns - long_ns - last_ns > 2 * bound_ns


@dataclass(slots=True)
class _Writing:
    forfeits: Forfeits
    around: Surroundings = field(default_factory=Surroundings)
    bounds: BoundsStated | None = None
    partitions: Partitions = field(default_factory=Partitions)
    wanted: dict[TopicPartition, Wanted] = field(default_factory=dict)
    suspects: list[Deadline] = field(default_factory=list)
    over: bool = False
    """Whether the run has begun to end its processes."""


@final
class WritableAgain(Rule[_Writing]):
    """AVAIL-writable. Judged by writes with acks=all: clients have wanted to write to a partition,
    and none could, for longer than the bound, all of which time the partition had an undisturbed
    majority. An idempotent producer that raises its epoch, once for each message that timed out,
    holds its other messages back: then another client's write that was read counts too. A pause of
    all clients is left out, but ends no want. A disturbance of something that it needs starts the
    bound anew, and is the excuse. An ISR without replicas that nothing keeps away is none, once
    they had time to come back. One that has lost its messages with the disks of its ISR need not
    take the next ones of a producer that wrote those. Exercised by an acknowledged write that was
    invoked after the death of the leader."""

    clause = "AVAIL-writable"
    folds = (Forfeits,)

    def start(self, key: Key, shared: Shared) -> _Writing:
        return _Writing(shared[Forfeits])

    @on(
        *SURROUNDINGS,
        BoundsStated,
        BrokerCommitted,
        BrokerDeclared,
        TopicCommitted,
        TopicMarked,
        ClientFailed,
        PhaseStarted,
    )
    def _around(self, state: _Writing, event: Event, body: Struct) -> Findings:
        """What surrounds the writes of clients changed."""
        # The harness ends the processes: nothing that fails from here on is the cluster's.
        if state.over:
            return NOTHING
        if isinstance(body, TopicCommitted | TopicMarked):
            self._gone(state, body)
        elif isinstance(body, BoundsStated):
            state.bounds = body
            state.around.take(event)
        elif isinstance(body, ClientFailed):
            if body.fatal:
                found = self._late(state, state.wanted, event.at_ns, event)
                self._left(state, event.process, event.at_ns)
                return found
        elif isinstance(body, PhaseStarted):
            if body.phase == "end":
                found = self._late(state, state.wanted, event.at_ns, event)
                state.over = True
                return found
        elif type(body) in SURROUNDINGS:
            return self._changed(state, event)
        return NOTHING

    @on(PartitionCommitted)
    def _committed(self, state: _Writing, event: Event, body: PartitionCommitted) -> Findings:
        # Most records come again and again: each node that replays the log reports them.
        if not state.over and state.partitions.take(body)[0]:
            self._look(state, event.at_ns, ((body.topic, body.partition),))
        return NOTHING

    # ------------------------------------------------------------------------------------- clients

    @on(ProduceInvoked)
    def _invoked(self, state: _Writing, event: Event, body: ProduceInvoked) -> Findings:
        place = (body.topic, body.partition)
        wanted = state.wanted.get(place)
        if state.over:
            return NOTHING
        # Such a write may be acknowledged by a leader alone, so it shows nothing of the majority,
        # until a consumer has got it.
        if body.acks != -1:
            if wanted is not None:
                wanted.unread[body.operation] = event.at_ns
            return NOTHING
        if wanted is None:
            wanted = state.wanted[place] = Wanted()
            WritableAgain._look(state, event.at_ns, (place,))
        wanted.resume(event.at_ns)
        wanted.asked = event
        wanted.open[body.operation] = (event.at_ns, event.process)
        return NOTHING

    @on(ProduceCompleted)
    def _completed(self, state: _Writing, event: Event, body: ProduceCompleted) -> Findings:
        if state.over or body.acks != -1:
            return NOTHING
        place = (body.topic, body.partition)
        wanted = state.wanted.get(place)
        if wanted is None or body.operation not in wanted.open:
            return NOTHING
        # Before the outcome is applied. A write that is acknowledged after ten minutes does not
        # undo that the partition was late.
        found = self._late(state, (place,), event.at_ns, event)
        invoked_ns, client = wanted.open.pop(body.operation)
        if not wanted.open:
            wanted.idle_ns = event.at_ns
        if body.outcome == "ok":
            wanted.accepted.add(client)
            death, late = wanted.death, wanted.reported
            wanted.begin(event.at_ns)
            # A write from before the death may have been acknowledged by the dead leader, and shows
            # nothing of the next one.
            if death is not None and invoked_ns > death.at_ns:
                wanted.death = None
                if not late and not found and state.bounds is not None:
                    return (Exercised(event.ref, Evidence.CLIENT),)
        # The client's own fault. It does not count as a want that the cluster left open.
        elif body.error in OWN_ERRORS or (
            body.error in REFUSED_FOR_GOOD and client not in wanted.accepted
        ):
            if not wanted.open:
                wanted.idle_ns = LONG_AGO_NS
        else:
            wanted.failures.append((invoked_ns, event.at_ns))
        return found

    @on(ProducerEpochChanged)
    def _held_back(self, state: _Writing, event: Event, body: ProducerEpochChanged) -> Findings:
        wanted = state.wanted.get((body.topic, body.partition))
        if wanted is not None:
            wanted.held_back[event.process] = event.at_ns
        return NOTHING

    @on(Polled)
    def _read(self, state: _Writing, event: Event, body: Polled) -> Findings:
        wanted = state.wanted.get((body.topic, body.partition))
        if wanted is not None and wanted.unread:
            wanted.read(body.operations)
        return NOTHING

    @staticmethod
    def _left(state: _Writing, process: str, failed_ns: int | None = None) -> None:
        """A client ended: its open writes are no longer wanted. If it gave up, that the partition
        took none stays known: when each of many gave up after 15 s, no time was long enough."""
        for wanted in state.wanted.values():
            for operation, (_, client) in list(wanted.open.items()):
                if client == process:
                    del wanted.open[operation]
                    if not wanted.open:
                        wanted.idle_ns = LONG_AGO_NS if failed_ns is None else failed_ns

    # ------------------------------------------------------------------------------------- cluster

    @staticmethod
    def _gone(state: _Writing, body: TopicCommitted | TopicMarked) -> None:
        if isinstance(body, TopicMarked) or state.partitions.forget(body):
            for place in [one for one in state.wanted if one[0] == body.topic]:
                del state.wanted[place]

    def _changed(self, state: _Writing, event: Event) -> Findings:
        """A process, a fault or the acting controller changed."""
        # What a fault did began before the event that reports it. The time up to that beginning is
        # judged by the surroundings as they were; the rest by what the fault leaves.
        found = self._late(state, state.wanted, min(began_ns(event), event.at_ns), event)
        disturbance = state.around.take(event)
        if isinstance(event.body, ProcessExited):
            self._left(state, event.body.ended)
            self._died(state, event, event.body)
        self._look(state, event.at_ns, state.wanted, disturbance)
        return found

    @staticmethod
    def _died(state: _Writing, event: Event, body: ProcessExited) -> None:
        broker = state.around.brokers.get(slot_of(body.ended))
        # Another process with the id still runs, so it is not known that the leader is dead.
        if broker is None or state.around.slots(broker):
            return
        for place, wanted in state.wanted.items():
            record = state.partitions.newest.get(place)
            if record is not None and record.leader == broker:
                wanted.death = Death(event.at_ns, event.ref, broker)

    @staticmethod
    def _look(
        state: _Writing,
        at_ns: int,
        places: Iterable[TopicPartition],
        disturbance: Disturbance | None = None,
    ) -> None:
        """Looks again whether partitions have a majority, and whether it was disturbed."""
        for place in places:
            wanted, record = state.wanted.get(place), state.partitions.newest.get(place)
            if wanted is not None:
                wanted.fit.look(state.around, record, state.bounds, at_ns, disturbance)

    # ------------------------------------------------------------------------------------ judgement

    @staticmethod
    def _late(state: _Writing, places: Iterable[TopicPartition], at_ns: int, at: Event) -> Findings:
        """Takes note of the partitions that clients could not write to for too long by now.
        Returns those that are excused."""
        if state.bounds is None:
            return NOTHING
        bound_ns = state.bounds.writable_ms * MS
        found: list[Finding] = []
        for place in places:
            wanted = state.wanted[place]
            waited_ns = at_ns - wanted.since_ns
            # Cheap checks first: this is asked at each event for each partition.
            if not wanted.open or waited_ns <= bound_ns or wanted.reported:
                continue
            if not wanted.late(wanted.since_ns, at_ns, bound_ns):
                continue
            calm = wanted.fit.calm
            # The bound runs from the later of two: clients want to write, and the partition has its
            # majority undisturbed. It has run, too, once it would have twice in all such times.
            calm_ns = calm.now(wanted.since_ns, at_ns)
            if not wanted.late(at_ns - calm_ns, at_ns, bound_ns):
                calm_ns = calm.within(wanted.since_ns, at_ns) - wanted.idle(at_ns)
                calm_ns = calm_ns if calm_ns > 2 * bound_ns else 0
            lost = state.forfeits.gone.get(place)
            if lost is not None or not calm_ns:
                why = lost or wanted.fit.why_not
                # Each excuse is printed once, and again only when it is another one.
                if why is not None and wanted.excuse != why:
                    found.append(Excused.of(_unwritten(at.ref, place, waited_ns), why))
                wanted.excuse = why
                continue
            record = state.partitions.newest[place]
            clients = frozenset(client for _, client in wanted.open.values())
            broken = _unwritable(at, at_ns, wanted, record, calm_ns=calm_ns, clients=clients)
            # All whose stalls on a busy machine could explain the delay. The clients are witnesses:
            # one that stood still itself saw nothing.
            slots = state.around.needed(record.replicas)
            state.suspects.append(
                Deadline(
                    broken,
                    (HARNESS, *slots),
                    at_ns - calm_ns,
                    at_ns,
                    bound_ns,
                    witnesses=tuple(sorted(clients)),
                )
            )
            wanted.reported = True
        return found

    def end(self, state: _Writing, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for place, wanted in state.wanted.items():
            if wanted.asked is not None and not state.over:
                found += self._late(state, (place,), end.ended_at_ns, wanted.asked)
        return (*found, *judged(state.suspects, end))


def _unwritten(at: Cause, place: TopicPartition, waited_ns: int) -> Violated:
    return violated(
        at,
        Evidence.CLIENT,
        "no write to {partition} was acknowledged for {since_ns}, though clients wanted to write",
        partition=partition_at(*place),
        since_ns=waited_ns,
    )


def _unwritable(
    at: Event,
    at_ns: int,
    wanted: Wanted,
    record: PartitionCommitted,
    *,
    calm_ns: int,
    clients: Collection[str],
) -> Violated:
    """A violation: these clients could not write for too long, though nothing disturbed the
    partition for `calm_ns` of that."""
    death, leader = wanted.death, record.leader
    dead: Facts = {} if death is None else {"former": broker_of(death.broker)}
    leads: Facts = {} if leader < 0 else {"leader": broker_of(leader)}
    since = (
        "no write to {partition} was acknowledged for {since_ns}, though clients wanted to write"
    )
    died = "" if death is None else " and broker {former} had died"
    fit = (
        "its replicas were a live, connected majority, and the ISR was {isr}"
        if wanted.fit.small
        else "its ISR {isr} had a live, connected majority"
    )
    return violated(
        at.ref,
        Evidence.CLIENT,
        f"{since}{died}; {{fit_ns}} of that {fit}",
        () if death is None else (death.ref,),
        partition=partition_of(record),
        since_ns=at_ns - wanted.since_ns,
        fit_ns=calm_ns,
        isr=tuple(map(broker_of, record.isr)),
        clients=tuple(map(process_scope, sorted(clients))),
        **dead,
        **leads,
    )
