"""A consumer goes on reading: none is stuck before messages that were acknowledged."""

from __future__ import annotations

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
    Finding,
    Findings,
    Key,
    PhaseStarted,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Shared,
    Undecided,
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
    ConsumerPositioned,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    TopicCommitted,
    TopicMarked,
    partition_at,
)
from fencepost_kafka.committed import Partitions, TopicPartition
from fencepost_kafka.judging.forfeits import Forfeits
from fencepost_suites.availability.calm import Fit
from fencepost_suites.availability.surroundings import SURROUNDINGS, Disturbance, Surroundings

BEGINNING, END = -2, -1


@dataclass(slots=True)
class _Reading:
    """A consumer of a partition."""

    ref: Cause
    """Its last poll, or the event that positioned it."""
    next: int | None
    """The offset that it reads next; None: not known."""
    behind_ns: int | None = None
    """Since when it has got nothing, with acknowledged messages before it; None: it has read
    all."""
    farthest: int = -1
    """The highest offset that it was ever to read next."""
    waited_ns: int = 0
    """For how long it has waited there before it began anew from there, or from before."""
    new_from: int | None = None
    """The first offset that was not acknowledged yet when the leader died; None: it has not died,
    or the consumer has got such a message since."""
    at_end_ns: int | None = None
    """When it was sent to the end, wherever that is; None: it was sent elsewhere."""
    excuse: Reason | None = None
    reported: bool = False

    @property
    def since_ns(self) -> int | None:
        """Since when it is behind. The time in which it read again what it had read is left out."""
        if self.behind_ns is None or self.next != self.farthest:
            return self.behind_ns
        return self.behind_ns - self.waited_ns


class _Stuck(Struct, frozen=True):
    """A consumer that got nothing for too long, if others found a message there."""

    place: TopicPartition
    next: int
    deadline: Deadline


@dataclass(slots=True)
class _Partition:
    """A partition, as far as clients read it."""

    acked: int = -1
    """The highest offset that was acknowledged with acks=all."""
    shown: int = -1
    """The highest offset that any reader got."""
    invoked: dict[str, int] = field(default_factory=dict)
    """The writes with acks=all that are open: operation -> when it was invoked."""
    fit: Fit = field(default_factory=Fit)
    readers: dict[str, _Reading] = field(default_factory=dict)


@dataclass(slots=True)
class _Consumers:
    forfeits: Forfeits
    around: Surroundings = field(default_factory=Surroundings)
    bounds: BoundsStated | None = None
    partitions: Partitions = field(default_factory=Partitions)
    read: dict[TopicPartition, _Partition] = field(default_factory=dict)
    suspects: list[_Stuck] = field(default_factory=list)
    over: bool = False

    def of(self, place: TopicPartition, at_ns: int) -> _Partition:
        """What is known of a partition."""
        one = self.read.get(place)
        if one is None:
            one = self.read[place] = _Partition()
            self.look(one, place, at_ns)
        return one

    def found_end(self, one: _Partition, reader: _Reading, by_ns: int | None) -> bool:
        """Whether a consumer that was sent to the end has had all that it needed, for the whole
        bound, to learn by this time where that is: what is written from then on is behind it."""
        if by_ns is None or reader.at_end_ns is None or self.bounds is None:
            return False
        return one.fit.calm.now(reader.at_end_ns, by_ns) > self.bounds.writable_ms * MS

    def look(
        self, one: _Partition, place: TopicPartition, at_ns: int, why: Disturbance | None = None
    ) -> None:
        """Looks again whether a partition has its majority, and whether it was disturbed."""
        record = self.partitions.newest.get(place)
        one.fit.look(self.around, record, self.bounds, at_ns, why)


@final
class ReadableAgain(Rule[_Consumers]):
    """AVAIL-readable. A consumer is stuck if it has got nothing of a partition for longer than the
    bound, with messages before it that were acknowledged with acks=all and that another reader got,
    all of which time the partition had an undisturbed majority. What is lost with the disks of the
    ISR is excused. Judged for each consumer by itself. Exercised by a poll after the death of the
    leader."""

    clause = "AVAIL-readable"
    folds = (Forfeits,)

    def start(self, key: Key, shared: Shared) -> _Consumers:
        return _Consumers(shared[Forfeits])

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
    def _around(self, state: _Consumers, event: Event, body: Struct) -> Findings:
        """A consumer ends, or what surrounds the consumers changed."""
        if isinstance(body, TopicCommitted | TopicMarked):
            if isinstance(body, TopicMarked) or state.partitions.forget(body):
                state.read = {p: one for p, one in state.read.items() if p[0] != body.topic}
        elif isinstance(body, BoundsStated):
            state.bounds = body
            state.around.take(event)
        elif isinstance(body, ClientFailed):
            if body.fatal:
                self._left(state, event.process)
        elif isinstance(body, PhaseStarted):
            # From the drain on, consumers end when they have read enough.
            if body.phase in ("drain", "end") and not state.over:
                found = self._late(state, event.at_ns)
                state.over = True
                return found
        # After the drain no consumer is judged any more, whatever happens to the cluster.
        elif not state.over and type(body) in SURROUNDINGS:
            return self._changed(state, event)
        return NOTHING

    @on(PartitionCommitted)
    def _committed(self, state: _Consumers, event: Event, body: PartitionCommitted) -> Findings:
        # Most records come again and again: each node that replays the log reports them.
        if state.partitions.take(body)[0]:
            place = (body.topic, body.partition)
            state.look(state.of(place, event.at_ns), place, event.at_ns)
        return NOTHING

    # ------------------------------------------------------------------------------------- clients

    @on(ConsumerPositioned)
    def _sought(self, state: _Consumers, event: Event, body: ConsumerPositioned) -> Findings:
        # Positions below 0 stand for places in the log. Of "the end" it is not known where that
        # was: only before what was written long after.
        at = body.offset if body.offset >= 0 else 0 if body.offset == BEGINNING else None
        place = (body.topic, body.partition)
        self._positioned(state, event, place, at)
        if body.offset == END:
            state.read[place].readers[event.process].at_end_ns = event.at_ns
        return NOTHING

    @on(ProduceInvoked)
    def _invoked(self, state: _Consumers, event: Event, body: ProduceInvoked) -> Findings:
        if body.acks == -1:
            one = state.of((body.topic, body.partition), event.at_ns)
            one.invoked[body.operation] = event.at_ns
        return NOTHING

    @on(ProduceCompleted)
    def _acknowledged(self, state: _Consumers, event: Event, body: ProduceCompleted) -> Findings:
        one = state.of((body.topic, body.partition), event.at_ns)
        invoked_ns = one.invoked.pop(body.operation, None)
        if body.acks != -1 or body.outcome != "ok":
            return NOTHING
        # The acknowledgement is recorded at the producer's time. A consumer may have polled the
        # message before that, and is not behind then.
        one.acked = max(one.acked, body.offset)
        for reader in one.readers.values():
            if reader.next is None and state.found_end(one, reader, invoked_ns):
                reader.next = reader.farthest = body.offset
            if reader.behind_ns is None and reader.next is not None and reader.next <= one.acked:
                reader.behind_ns = event.at_ns
        return NOTHING

    @staticmethod
    def _positioned(
        state: _Consumers, event: Event, place: TopicPartition, offset: int | None
    ) -> None:
        one = state.of(place, event.at_ns)
        known = one.readers.get(event.process)
        behind = offset is not None and offset <= one.acked
        now = _Reading(event.ref, offset, event.at_ns if behind else None)
        now.farthest = -1 if offset is None else offset
        if known is not None:
            # A consumer that positions itself anew has still to show that it reads what came after
            # the death.
            now.new_from = known.new_from
            # One that begins anew is stuck where it was: each 15 s that started the bound again.
            if known.farthest >= now.farthest:
                now.farthest, now.waited_ns = known.farthest, known.waited_ns
                now.excuse, now.reported = known.excuse, known.reported
                if known.behind_ns is not None and known.next == known.farthest:
                    now.waited_ns += event.at_ns - known.behind_ns
        one.readers[event.process] = now

    @on(Polled)
    def _polled(self, state: _Consumers, event: Event, body: Polled) -> Findings:
        if not body.offsets:
            return NOTHING
        place = (body.topic, body.partition)
        one = state.of(place, event.at_ns)
        # Also by readers after the end, and by the harness's final reader: what nobody ever got is
        # lost, which is another promise, and no consumer is stuck before it.
        one.shown = max(one.shown, body.offsets[-1])
        if body.final or state.over:
            return NOTHING
        # Before the poll is applied: a consumer that gets something after ten minutes was stuck.
        found = list(self._late(state, event.at_ns, place))
        known = one.readers.get(event.process)
        self._positioned(state, event, place, body.offsets[-1] + 1)
        if known is None or known.new_from is None or body.offsets[-1] < known.new_from:
            return found
        one.readers[event.process].new_from = None
        if state.bounds is not None and not known.reported and not known.excuse:
            found.append(Exercised(event.ref, Evidence.CLIENT))
        return found

    @staticmethod
    def _left(state: _Consumers, process: str) -> None:
        for one in state.read.values():
            one.readers.pop(process, None)

    # ------------------------------------------------------------------------------------- cluster

    def _changed(self, state: _Consumers, event: Event) -> Findings:
        """A process, a fault or the acting controller changed."""
        body = event.body
        since_ns = began_ns(event)
        found = self._late(state, min(since_ns, event.at_ns))
        disturbance = state.around.take(event)
        if isinstance(body, ProcessExited):
            self._left(state, body.ended)
            self._died(state, event, body)
        for place, one in state.read.items():
            state.look(one, place, event.at_ns, disturbance)
        return found

    @staticmethod
    def _died(state: _Consumers, event: Event, body: ProcessExited) -> None:
        broker = state.around.brokers.get(slot_of(body.ended))
        if broker is None or state.around.slots(broker):
            return
        for place in state.partitions.led_by(broker):
            one = state.of(place, event.at_ns)
            for reader in one.readers.values():
                reader.new_from = one.acked + 1

    # ----------------------------------------------------------------------------------- judgement

    def _late(self, state: _Consumers, at_ns: int, place: TopicPartition | None = None) -> Findings:
        """Takes note of the consumers that have been stuck for too long by now, of one partition or
        of all. Returns what is excused."""
        if state.bounds is None or state.over:
            return NOTHING
        bound_ns = state.bounds.writable_ms * MS
        found: list[Finding] = []
        for where, one in state.read.items() if place is None else ((place, state.read[place]),):
            for name, reader in one.readers.items():
                since_ns = reader.since_ns
                if since_ns is None or at_ns - since_ns <= bound_ns or reader.reported:
                    continue
                found += self._stuck(state, where, name, at_ns)
        return found

    @staticmethod
    def _stuck(state: _Consumers, place: TopicPartition, name: str, at_ns: int) -> Findings:
        assert state.bounds is not None
        bound_ns = state.bounds.writable_ms * MS
        one = state.read[place]
        reader = one.readers[name]
        since_ns, offset = reader.since_ns or 0, reader.next or 0
        broken = violated(
            reader.ref,
            Evidence.CLIENT,
            "{client} got nothing of {partition} from offset {offset} on for {since_ns}, though "
            "{acknowledged} was acknowledged",
            client=process_scope(name),
            partition=partition_at(*place),
            offset=offset,
            since_ns=at_ns - since_ns,
            acknowledged=one.acked,
        )
        why = state.forfeits.gone.get(place)
        calm_ns = one.fit.calm.over(since_ns, at_ns, bound_ns)
        if why is not None or not calm_ns:
            was, reader.excuse = reader.excuse, why or one.fit.why_not
            if reader.excuse is None or was == reader.excuse:
                return NOTHING
            return (Excused.of(broken, reader.excuse),)
        slots = state.around.needed(state.partitions.newest[place].replicas)
        from_ns = at_ns - calm_ns
        late = Deadline(broken, (HARNESS, *slots), from_ns, at_ns, bound_ns, witnesses=(name,))
        state.suspects.append(_Stuck(place, offset, late))
        reader.reported = True
        return NOTHING

    def end(self, state: _Consumers, end: RunEnd) -> Findings:
        found = self._late(state, end.ended_at_ns)
        shown = {place: one.shown for place, one in state.read.items()}
        # Only at the end is it known whether anyone got a message there.
        suspects = [one.deadline for one in state.suspects if shown.get(one.place, -1) >= one.next]
        lost = [one.deadline for one in state.suspects if shown.get(one.place, -1) < one.next]
        unread = Reason("nobody got a message there: it is stuck, or they are lost")
        undecided = [Undecided.of(one.violated, unread, "; but ") for one in lost]
        return (*found, *judged(suspects, end), *undecided)
