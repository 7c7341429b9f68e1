"""Rules about what the members of an ISR have stored, by their own logs (RP-04, RP-07, RP-10,
RP-32).

A follower logs what it stores before it fetches on, so before its leader may count it, and all
nodes of a host have one clock. So a leader's word, and what clients see, is compared with the
followers'. A thread takes the time of a line before it waits for its turn to print it, so a line
may come after others that are later.

Of topics that were deleted and made again, only what is of the present one counts. The rules keep
one state for all topics, since they read which process has which id, so they ask `Generations`
themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from msgspec import Struct

from fencepost import (
    NOTHING,
    READ_WITHIN_NS,
    SECOND,
    Cause,
    Event,
    Evidence,
    Exercised,
    Fact,
    Finding,
    Findings,
    NodeStarted,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    is_second,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import KRAFT
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    ConsumerPositioned,
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    TopicCommitted,
    TopicPartition,
    broker_of,
    partition_at,
)
from fencepost_kafka.judging.generations import Generations

SETTLED_NS = SECOND // 5
"""A high watermark that is this old has been compared with every follower that enters the ISR."""
_FETCH_WAITS_NS = 2 * SECOND
"""A leader may act upon a fetch this long after the process that sent it has ended: the fetch waits
for its turn, and a busy machine makes it wait for longer."""
_NO_RECORD = 1 << 62

STORED_KINDS: frozenset[type[Struct]] = frozenset(
    {
        *(NodeStarted, ProcessExited, LogTruncated),
        *(FollowingStarted, LeadershipStarted, PartitionCommitted),
        *(IsrChangeAsked, TopicCommitted, AdminCompleted, BrokerCommitted),
    }
)
"""The kinds that `Stored.learn` reads; `Stored.appended` has the most frequent one."""
OF_TOPIC = (
    *(LogTruncated, FollowingStarted, LeadershipStarted),
    *(PartitionCommitted, IsrChangeAsked),
)
"""Those of them that are about a partition."""


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A violation, unless a record that was committed before shows a smaller ISR, or a line of
    before that the replicas had stored it."""

    violated: Violated
    place: TopicPartition
    end: int
    lacking: frozenset[int]
    offset: int
    """That of the record by which they are members (no record explains it: the highest)."""
    at_ns: int
    epoch: int = -1
    """The leader epoch of that record."""
    untold: frozenset[int] = frozenset()
    """Those of them that go on behind what they have told: some of their lines are missing, and
    when they stored that is not known."""


@final
@dataclass(slots=True)
class Stored:
    """The end of each replica's log, by the replica's own words, and the members of each ISR."""

    ids: dict[str, int] = field(default_factory=dict)
    """slot -> broker id."""
    ends: defaultdict[TopicPartition, dict[str, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """partition -> slot -> the end of its log."""
    ended: dict[TopicPartition, dict[int, tuple[str, int, int]]] = field(default_factory=dict)
    """partition -> broker id -> the second process with that id that ended last, how far it had
    stored the partition, and when it ended."""
    held: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """partition -> broker id -> how far a second process that ended as the holder of the id had
    stored the partition. It was the broker: what its leader counted on it stays committed, whatever
    the disk of the next process has. So it counts until the ISR is without the broker."""
    started: dict[str, str] = field(default_factory=dict)
    """incarnation -> the process that began with it."""
    holders: dict[int, tuple[int, str]] = field(default_factory=dict)
    """broker id -> the offset of the newest record of its registration, and the incarnation there.
    The metadata says who holds an id, and no process of itself."""
    records: dict[TopicPartition, PartitionCommitted] = field(default_factory=dict)
    topics: dict[str, Generations] = field(default_factory=dict)
    """The names of topics that were ever deleted: events of several topics may have such a name,
    and only those of the present one count."""
    suspects: list[_Suspect] = field(default_factory=list)
    suspected_ns: int = -1
    """When the newest suspect that ever was did what looks wrong."""
    explained: list[tuple[_Suspect, int]] = field(default_factory=list)
    """Those that a record has explained lately, and when it was read. The leader's request for that
    record may be read later."""
    joined: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """partition, broker id -> when a leader asked last to take it into the ISR."""
    telling: set[int] = field(default_factory=set)
    """The brokers that ever logged what they store. One that does not proves nothing."""

    def of_present(self, event: Event) -> bool:
        """Whether an event of a topic is of the one that there is now."""
        body: Any = event.body
        topic = self.topics.get(body.topic)
        return topic is None or topic.counts(event)

    def forget(self, body: TopicCommitted | AdminCompleted, at_ns: int) -> str:
        """Applies a word about a topic. Returns its name, if it was deleted: then nothing of it
        counts any more."""
        if isinstance(body, TopicCommitted):
            name, deletes, newest = body.topic, body.deleted, body.offset
        else:
            name, newest = body.subject, _NO_RECORD
            deletes = body.api == "delete_topic" and body.outcome == "ok"
        if not deletes and name not in self.topics:
            return ""
        anew = self.topics.setdefault(name, Generations()).deletes(body, at_ns)
        # One deletion is told by two words, and a record of the former topic may be read between.
        if anew or (deletes and isinstance(body, TopicCommitted)):
            for place in [one for one in self.records if one[0] == name]:
                if self.records[place].offset <= newest:
                    del self.records[place]
        if anew:
            for place in [one for one in self.ends if one[0] == name]:
                del self.ends[place]
            self.ended = {place: one for place, one in self.ended.items() if place[0] != name}
            self.held = {place: one for place, one in self.held.items() if place[0] != name}
        return name if anew else ""

    def appended(self, event: Event, body: LogAppended) -> bool:
        """Applies an append; returns whether it is of the topic that there is now."""
        # Only an append shows that a broker logs what it stores.
        self.telling.add(self.ids.get(slot_of(event.process), -1))
        if not self.of_present(event):
            return False
        self._reaches(event, body)
        return True

    def learn(self, event: Event) -> None:
        """Applies an event of one of `STORED_KINDS`, but an append."""
        if isinstance(event.body, OF_TOPIC) and not self.of_present(event):
            return
        match event.body:
            case FollowingStarted() | LeadershipStarted() as body:
                self._reaches(event, body)
            case LogTruncated() as body:
                self.ends[body.topic, body.partition][slot_of(event.process)] = body.to_offset
            case PartitionCommitted() as body:
                self._committed(event, body)
            case IsrChangeAsked() as body:
                self._asked(event, body)
            case NodeStarted(role="broker", node_id=node_id, incarnation=incarnation):
                self.ids[slot_of(event.process)] = node_id
                if incarnation:
                    self.started[incarnation] = event.process
            case BrokerCommitted(broker_id=one, offset=offset, incarnation=incarnation):
                if offset > self.holders.get(one, (-1, ""))[0]:
                    self.holders[one] = offset, incarnation
            case ProcessExited(ended=ended) if is_second(ended):
                self._ended(ended, event.at_ns)
            case TopicCommitted() | AdminCompleted() as body:
                self.forget(body, event.at_ns)

    def _ended(self, process: str, at_ns: int) -> None:
        """A second process ended. The next one in its slot may have another disk."""
        slot = slot_of(process)
        replica = self.ids.get(slot, -1)
        _, holder = self.holders.get(replica, (-1, ""))
        for place, ends in self.ends.items():
            end = ends.pop(slot, None)
            if end is None:
                continue
            self.ended.setdefault(place, {})[replica] = process, end, at_ns
            if self.started.get(holder) == process:
                self.held.setdefault(place, {})[replica] = end

    def _reaches(
        self, event: Event, body: LogAppended | FollowingStarted | LeadershipStarted
    ) -> None:
        """A replica names the end of its log."""
        place, slot = (body.topic, body.partition), slot_of(event.process)
        told = self.ends[place].get(slot, -1)
        self.ends[place][slot] = body.log_end
        # A line that was logged before the suspicious event may be read after it, since each
        # process has a log of its own. So a suspect waits for the end of the run. Most lines are of
        # after the newest one, follow what their replica has told, and change none: a run with
        # thousands of suspects must not ask each of them at each line.
        begins = body.base_offset if isinstance(body, LogAppended) else body.log_end
        untold = begins if begins > told else -1
        if event.at_ns <= self.suspected_ns or (untold >= 0 and self.suspects):
            self._stored(event, place, body.log_end, untold)

    def _stored(self, event: Event, place: TopicPartition, end: int, untold: int) -> None:
        """A replica has stored something, maybe before what looked wrong. Up to `untold` it had
        stored something before, and no line of it tells that (-1: all was told)."""
        replica = frozenset({self.ids.get(slot_of(event.process), -1)})
        kept = []
        for one in self.suspects:
            # By the time of the line, and not by the order of events: what is stored later is no
            # excuse.
            had = one.place == place and event.at_ns <= one.at_ns and end >= one.end
            lacking = one.lacking - replica if had else one.lacking
            # One that goes on from less than it needed had less before, too.
            more = one.place == place and untold >= one.end
            if lacking:
                found = one.untold | replica if more else one.untold
                same = (lacking, found) == (one.lacking, one.untold)
                kept.append(one if same else replace(one, lacking=lacking, untold=found))
        self.suspects = kept

    def _committed(self, event: Event, body: PartitionCommitted) -> None:
        place = body.topic, body.partition
        known = self.records.get(place)
        # An older record, which is read again, must not bring back a former ISR.
        if known is None or body.offset > known.offset:
            self.records[place] = body
            held = self.held.get(place, {})
            for out in held.keys() - set(body.isr):
                del held[out]
        explained = [one for one in self.explained if event.at_ns - one[1] <= READ_WITHIN_NS]
        kept = []
        for one in self.suspects:
            # A broker that lacked the data stays suspect unless all of this holds: the record is of
            # its partition, is newer than the ISR that was judged, leaves it out, and was read soon
            # enough to have been committed before.
            explains = (
                one.place == place
                and body.offset > one.offset
                and event.at_ns <= one.at_ns + READ_WITHIN_NS
            )
            left = one.lacking & set(body.isr) if explains else one.lacking
            if left:
                kept.append(one if left == one.lacking else replace(one, lacking=left))
            if left != one.lacking:
                explained.append((replace(one, lacking=one.lacking - left), event.at_ns))
        self.suspects, self.explained = kept, explained

    def _asked(self, event: Event, body: IsrChangeAsked) -> None:
        """A leader asks for another ISR. It has in its own ISR, until then, whom it asks to leave
        out. So no record from before explains that it did not wait for that one:

        - leader 1 commits offset 7 over [1, 2], while [1, 2, 3] is stored and 3 lacks it;
        - four seconds later it asks for [1, 2], and that record is read at once.

        Without the request, the record might have been committed before offset 7, and read late.
        """
        place = body.topic, body.partition
        for one in set(body.new_isr) - set(body.old_isr):
            self.joined[place, one] = event.at_ns
        dropped = set(body.old_isr) - set(body.new_isr)

        def denied(one: _Suspect) -> frozenset[int]:
            """The brokers that the leader had in its ISR when it did without them, as it shows."""
            if (one.place, one.epoch) != (place, body.leader_epoch) or event.at_ns <= one.at_ns:
                return frozenset()
            # One that it took in again meanwhile may have been out of it before.
            again = {who for who in dropped if self.joined.get((place, who), -1) >= one.at_ns}
            return one.lacking & (dropped - again)

        # A record that was read before the request is not what it led to.
        back = [(one, denied(one)) for one, read_ns in self.explained if event.at_ns <= read_ns]
        known = [(one, denied(one)) for one in self.suspects]
        self.suspects = [replace(one, offset=_NO_RECORD) if now else one for one, now in known]
        self.suspects += [replace(one, lacking=now, offset=_NO_RECORD) for one, now in back if now]

    def ends_of(self, place: TopicPartition) -> Mapping[int, int]:
        """How far each broker has stored a partition; of two processes with its id, the one that
        has more of it. A broker that has not said so is not in it."""
        known: dict[int, int] = {}
        for slot, end in self.ends.get(place, {}).items():
            one = self.ids.get(slot, -1)
            known[one] = max(end, known.get(one, end))
        return known

    def _counted(self, place: TopicPartition) -> Mapping[int, int]:
        """How far a leader may have counted each broker, if it has said how far it stored."""
        ends, held = self.ends_of(place), self.held.get(place, {})
        return {**ends, **{one: max(end, ends.get(one, end)) for one, end in held.items()}}

    def short(
        self,
        at: Cause,
        place: TopicPartition,
        needed: int,
        had: Mapping[int, int | None],
        did: str,
        **facts: Fact,
    ) -> Violated:
        """What a leader or a client did, though these brokers had not stored a partition up to that
        end: broker id -> the end of its log (None: it has not said).

        `ended` are second processes with their ids that had, before they ended.
        """
        gone = {one: self.ended.get(place, {}).get(one, ("", -1, 0)) for one in sorted(had)}
        stored = [
            f"broker {one} up to {had[one]}"
            + (f", and {process} up to {end} before it ended" if end >= needed else "")
            for one, (process, end, _) in gone.items()
        ]
        return violated(
            at,
            Evidence.PEER,
            did + " there had stored: {stored}",
            **facts,
            stored=", ".join(stored),
            partition=partition_at(*place),
            lacking=tuple(map(broker_of, gone)),
            ends=tuple(end for _, end in sorted(had.items()) if end is not None),
            ended=tuple(process_scope(name) for name, end, _ in gone.values() if end >= needed),
            ended_ends=tuple(end for _, end, _ in gone.values() if end >= needed),
        )

    def had_since(self, place: TopicPartition, replica: int, since_ns: int) -> int:
        """How far a second process with a broker's id that ended since then had stored a partition;
        -1: there is none."""
        _, had, at_ns = self.ended.get(place, {}).get(replica, ("", -1, 0))
        return had if at_ns >= since_ns else -1

    def judge(
        self, event: Event, place: TopicPartition, end: int, did: str, **facts: Fact
    ) -> Findings:
        """Whether each member of the ISR has stored a partition up to that end. `did` says what
        else the event did, as a template with facts."""
        record = self.records.get(place)
        # With an ISR of one, the leader's own log is all there is, and its word about itself proves
        # nothing.
        if not self.of_present(event) or record is None:
            return NOTHING
        if len(record.isr) < 2 or not self.telling:
            return NOTHING
        ends = self._counted(place)
        short = {one: ends[one] for one in record.isr if ends.get(one, end) < end}
        if short:
            did += ", while of the ISR {isr}"
            isr = tuple(map(broker_of, record.isr))
            self.suspect(
                _Suspect(
                    self.short(event.ref, place, end, short, did, isr=isr, **facts),
                    place,
                    end,
                    lacking=frozenset(short),
                    offset=record.offset,
                    at_ns=event.at_ns,
                    epoch=record.leader_epoch,
                )
            )
            return NOTHING
        # A member that has said nothing may lack it: that is no violation, and no exercise either.
        if not ends.keys() >= {*record.isr}:
            return NOTHING
        return (Exercised(event.ref, Evidence.PEER),)

    def suspect(self, one: _Suspect) -> None:
        """Remembers something that looks wrong."""
        self.suspects.append(one)
        self.suspected_ns = max(self.suspected_ns, one.at_ns)

    def findings(self, end: RunEnd) -> Findings:
        """The suspects that no record has explained."""
        found: list[Finding] = []
        for one in self.suspects:
            why = self._undecided(one)
            # A replica that enters the ISR is not excused by a later record: the leader must have
            # counted it when it asked.
            if why is None and one.offset != _NO_RECORD:
                # If the run ended before the observer must have read the next record, that record
                # may be missing.
                read = end.complete and end.ended_at_ns - one.at_ns > READ_WITHIN_NS
                why = None if read else Reason("a smaller ISR may have been stored")
            found.append(one.violated if why is None else Undecided.of(one.violated, why))
        return found

    def _undecided(self, suspect: _Suspect) -> Reason | None:
        """Why what it lacks may have been stored all the same; None if it was not."""
        silent = suspect.lacking - self.telling
        if silent:
            template = "brokers {silent} never logged what they stored"
        else:
            # One that has told all of its lines is enough.
            silent = suspect.lacking if suspect.lacking <= suspect.untold else silent
            template = "some lines of brokers {silent} are missing, which stored more"
        if not silent:
            return None
        return Reason.of(template, silent=tuple(map(broker_of, sorted(silent))))


@final
class AcknowledgedIsStored(Rule[Stored]):
    """RP-04. Exercised by each acknowledgement of acks=all, where all members of an ISR of two and
    more have said how far they stored."""

    clause = "RP-04"
    planes = KRAFT
    state = Stored

    @on(LogAppended)
    def _appended(self, state: Stored, event: Event, body: LogAppended) -> Findings:
        state.appended(event, body)
        return NOTHING

    @on(*STORED_KINDS)
    def _learn(self, state: Stored, event: Event, body: Struct) -> Findings:
        state.learn(event)
        return NOTHING

    @on(ProduceInvoked)
    def _invoked(self, state: Stored, event: Event, body: ProduceInvoked) -> Findings:
        state.of_present(event)  # its answer is of the topic that there is by now
        return NOTHING

    @on(ProduceCompleted)
    def _completed(self, state: Stored, event: Event, body: ProduceCompleted) -> Findings:
        # Without an offset, the acknowledgement does not say how far the members must have stored.
        if body.outcome != "ok" or body.acks != -1 or body.offset < 0:
            return NOTHING
        return state.judge(
            event,
            (body.topic, body.partition),
            body.offset + 1,
            "{operation} of {client} with acks=all was acknowledged at offset {offset} of "
            "{partition}",
            operation=body.operation,
            client=process_scope(event.process),
            offset=body.offset,
        )

    def end(self, state: Stored, end: RunEnd) -> Findings:
        return state.findings(end)


@dataclass(slots=True)
class _Read:
    stored: Stored = field(default_factory=Stored)
    led: dict[TopicPartition, int] = field(default_factory=dict)
    """How far the leader of each partition had stored it last."""


@final
class ReadIsStored(Rule[_Read]):
    """RP-07. Exercised by a consumer that gets all that is committed, while the leader's log
    reaches further."""

    clause = "RP-07"
    planes = KRAFT
    state = _Read

    @on(LogAppended)
    def _appended(self, state: _Read, event: Event, body: LogAppended) -> Findings:
        if state.stored.appended(event, body) and body.as_leader:
            state.led[body.topic, body.partition] = body.log_end
        return NOTHING

    @on(*STORED_KINDS)
    def _learn(self, state: _Read, event: Event, body: Struct) -> Findings:
        match body:
            case TopicCommitted() | AdminCompleted():
                name = state.stored.forget(body, event.at_ns)
                state.led = {place: end for place, end in state.led.items() if place[0] != name}
            case _:
                state.stored.learn(event)
        return NOTHING

    @on(ProduceInvoked, ConsumerPositioned)
    def _begins(self, state: _Read, event: Event, body: Struct) -> Findings:
        state.stored.of_present(event)  # of the topic that there is by now
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Read, event: Event, body: Polled) -> Findings:
        if not body.offsets or body.final:
            return NOTHING
        place, last = (body.topic, body.partition), body.offsets[-1]
        found = state.stored.judge(
            event,
            place,
            last + 1,
            "{client} read offset {offset} of {partition}",
            client=process_scope(event.process),
            offset=last,
        )
        # If the leader's log ends at what was read, a leader that ignores the high watermark would
        # have shown the same. So that read does not exercise the clause.
        return found if state.led.get(place, 0) > last + 1 else NOTHING

    def end(self, state: _Read, end: RunEnd) -> Findings:
        return state.stored.findings(end)


@final
class CommitsOnStoredIsr(Rule[Stored]):
    """RP-32. The leader's high watermark is its own word, and what the members have stored is
    theirs. Exercised by a commit after the record of a smaller ISR."""

    clause = "RP-32"
    planes = KRAFT
    state = Stored

    @on(LogAppended)
    def _appended(self, state: Stored, event: Event, body: LogAppended) -> Findings:
        state.appended(event, body)
        return NOTHING

    @on(*STORED_KINDS)
    def _learn(self, state: Stored, event: Event, body: Struct) -> Findings:
        state.learn(event)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _commits(self, state: Stored, event: Event, body: HighWatermarkAdvanced) -> Findings:
        if not body.as_leader:
            return NOTHING
        place = body.topic, body.partition
        found = state.judge(
            event,
            place,
            body.high_watermark,
            "{process} committed {partition} up to offset {high_watermark}",
            process=process_scope(event.process),
            high_watermark=body.high_watermark,
        )
        # With a full ISR, a leader that counts every replica commits the same: only a smaller ISR
        # tells the two apart.
        record = state.records.get(place)
        if record is None or record.isr == record.replicas:
            return NOTHING
        return found if set(record.isr) < set(record.replicas) else NOTHING

    def end(self, state: Stored, end: RunEnd) -> Findings:
        return state.findings(end)


@dataclass(slots=True)
class _Entering:
    stored: Stored = field(default_factory=Stored)
    leaders: dict[TopicPartition, tuple[str, int]] = field(default_factory=dict)
    """The process that began to lead each partition last, and its leader epoch."""
    marks: dict[str, dict[TopicPartition, list[tuple[int, int]]]] = field(default_factory=dict)
    """process -> partition -> when it raised its high watermark as leader, and to what; the newest
    ones, and one that is settled."""

    def had(self, place: TopicPartition, replica: int, at_ns: int) -> int | None:
        """How far a broker had stored a partition, or a second process with its id that has ended
        since; None: it has not said."""
        end = self.stored.ends_of(place).get(replica)
        counted = self.stored.had_since(place, replica, at_ns - _FETCH_WAITS_NS)
        return None if end is None else max(end, counted)

    def suspect(
        self,
        event: Event,
        place: TopicPartition,
        needed: int,
        replica: int,
        did: str,
        *,
        by: int,
        **facts: Fact,
    ) -> None:
        """A replica enters, by the record at offset `by`, and lacks something, unless a line of
        before shows that it had it. `did` says who took it in, as a template with facts."""
        had = {replica: self.stored.ends_of(place).get(replica)}
        joining = broker_of(replica)
        self.stored.suspect(
            _Suspect(
                self.stored.short(
                    event.ref, place, needed, had, did + ", while", joining=joining, **facts
                ),
                place,
                needed,
                lacking=frozenset({replica}),
                offset=by,
                at_ns=event.at_ns,
            )
        )

    def refused(self, event: Event, body: IsrChangeAnswered) -> None:
        """A leader says that the controller refused what it asked for. If that is a lie, the record
        of the ISR is judged."""
        place = body.topic, body.partition
        self.stored.suspects = [
            one
            for one in self.stored.suspects
            if one.offset != _NO_RECORD
            or one.place != place
            or one.violated.at.process != event.process
        ]

    def settled(self, process: str, place: TopicPartition, at_ns: int) -> int:
        """The high watermark that a leader had for long enough."""
        marks = self.marks.get(process, {}).get(place, [])
        return max((mark for since, mark in marks if at_ns - since >= SETTLED_NS), default=0)

    def forget(self, topic: str) -> None:
        """A topic is deleted."""
        self.leaders = {place: one for place, one in self.leaders.items() if place[0] != topic}
        for marks in self.marks.values():
            for place in [one for one in marks if one[0] == topic]:
                del marks[place]

    def raised(self, event: Event, body: HighWatermarkAdvanced) -> None:
        """A leader raises its high watermark."""
        place = body.topic, body.partition
        marks = self.marks.setdefault(event.process, {}).setdefault(place, [])
        marks.append((event.at_ns, body.high_watermark))
        # Only the newest settled mark is asked for, so the older ones are dropped.
        while len(marks) > 1 and event.at_ns - marks[1][0] >= SETTLED_NS:
            del marks[0]


@final
class EntersCaughtUp(Rule[_Entering]):
    """RP-10. Judged when the leader asks for the larger ISR, by the log of the replica that enters,
    and again by the record of that ISR: until then the leader must count the replica. The high
    watermark is the one that the leader had a fifth of a second before, since it moves while the
    leader compares. A second process with the replica's id counts, too, and for two seconds after
    its end, since its fetches may come before the leader then. A request that is refused takes in
    nobody: the leader may not have heard of a new process with the id, and the controller has.
    Exercised by each replica that a leader asks for."""

    clause = "RP-10"
    planes = KRAFT
    state = _Entering

    @on(LogAppended)
    def _appended(self, state: _Entering, event: Event, body: LogAppended) -> Findings:
        state.stored.appended(event, body)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _raised(self, state: _Entering, event: Event, body: HighWatermarkAdvanced) -> Findings:
        if body.as_leader and state.stored.of_present(event):
            state.raised(event, body)
        return NOTHING

    @on(*STORED_KINDS, IsrChangeAnswered)
    def step(self, state: _Entering, event: Event, body: Struct) -> Findings:
        if isinstance(body, TopicCommitted | AdminCompleted):
            state.forget(state.stored.forget(body, event.at_ns))
            return NOTHING
        if isinstance(body, (*OF_TOPIC, IsrChangeAnswered)) and not state.stored.of_present(event):
            return NOTHING
        match body:
            case LeadershipStarted():
                # What it had committed as an earlier leader may be lost since.
                place = body.topic, body.partition
                state.marks.get(event.process, {}).pop(place, None)
                state.leaders[place] = event.process, body.leader_epoch
                state.stored.learn(event)
            case IsrChangeAsked():
                return self._asked(state, event, body)
            case IsrChangeAnswered() if body.error != "NONE":
                state.refused(event, body)
            case PartitionCommitted():
                self._recorded(state, event, body)
                state.stored.learn(event)
            case _:
                state.stored.learn(event)
        return NOTHING

    @staticmethod
    def _asked(state: _Entering, event: Event, body: IsrChangeAsked) -> Findings:
        place = body.topic, body.partition
        if not state.stored.telling:
            return NOTHING
        mark = state.settled(event.process, place, event.at_ns)
        # A leader's high watermark may still be below the start of its epoch, since it has just
        # been elected: the replica must have reached that, too.
        needed = max(mark, body.epoch_start)
        found: list[Finding] = []
        for replica in sorted(set(body.new_isr) - set(body.old_isr)):
            had = state.had(place, replica, event.at_ns)
            if had is None:
                continue
            if had >= needed:
                found.append(Exercised(event.ref, Evidence.PEER))
            else:
                state.suspect(
                    event,
                    place,
                    needed,
                    replica,
                    "{process} asked to take broker {joining} into the ISR, with a high watermark "
                    "at offset {high_watermark} of {partition} and an epoch that began at "
                    "{epoch_start}",
                    by=_NO_RECORD,
                    process=process_scope(event.process),
                    high_watermark=mark,
                    epoch_start=body.epoch_start,
                )
        return found

    @staticmethod
    def _recorded(state: _Entering, event: Event, body: PartitionCommitted) -> None:
        """An ISR is stored; the leader may have committed more since it asked for that."""
        place = body.topic, body.partition
        known = state.stored.records.get(place)
        process, epoch = state.leaders.get(place, ("", -1))
        if known is None or not state.stored.telling:
            return
        # In another leader epoch, the record is an election's: nobody asked for the ISR because a
        # replica had caught up.
        if body.offset <= known.offset or not body.leader_epoch == known.leader_epoch == epoch:
            return
        mark = state.settled(process, place, event.at_ns)
        for replica in sorted(set(body.isr) - set(known.isr)):
            had = state.had(place, replica, event.at_ns)
            if had is not None and had < mark:
                state.suspect(
                    event,
                    place,
                    mark,
                    replica,
                    "record {record} took broker {joining} into the ISR of {partition}, when "
                    "{process} had committed up to offset {high_watermark}",
                    by=body.offset,
                    record=body.offset,
                    process=process_scope(process),
                    high_watermark=mark,
                )

    def end(self, state: _Entering, end: RunEnd) -> Findings:
        return state.stored.findings(end)
