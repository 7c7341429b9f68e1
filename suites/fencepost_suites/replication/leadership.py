"""Leadership: the leader of a partition, its epoch, and the handover to another broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from msgspec import Struct

from fencepost import (
    NOTHING,
    READ_WITHIN_NS,
    Cause,
    Event,
    Evidence,
    Excused,
    Exercised,
    Facts,
    Finding,
    Findings,
    ProcessExited,
    ProcessSpawned,
    Reason,
    Rule,
    RunEnd,
    first_of,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeclared,
    FetchServed,
    FollowerFetched,
    FollowingStarted,
    HeartbeatAnswered,
    HeartbeatSent,
    HighWatermarkAdvanced,
    LeadershipEnded,
    LeadershipStarted,
    LeaseExpired,
    LogAppended,
    PartitionCommitted,
    ProbeCompleted,
    RequestRefused,
    TopicCommitted,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import Brokers, Partitions, TopicPartition
from fencepost_kafka.judging.takeovers import Takeovers
from fencepost_kafka.vocabulary import Role
from fencepost_suites.brokers.fencing import FETCH_WAIT_NS
from fencepost_suites.common.keys import by_partition
from fencepost_suites.common.words import named


@dataclass(slots=True)
class _Asked:
    """A broker that asks for SHUTDOWN."""

    ref: Cause
    """Its request."""
    leading: bool = False
    """Whether it led a partition then."""
    held_back: bool = False
    fenced: Cause | None = None
    """The record by which it was fenced since."""
    led: tuple[TopicPartition, ...] = ()
    """The partitions that it led at that record."""


@dataclass(slots=True)
class _Shutdowns:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)
    asked: dict[int, _Asked] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)


@final
class ShutdownAfterHandover(Rule[_Shutdowns]):
    """QC-18. Whether the broker still leads is judged by the committed records at the answer, or at
    the fencing record that came with it. Exercised when SHUTDOWN was requested and at first not
    granted."""

    clause = "QC-18"
    state = _Shutdowns

    @on(
        TopicCommitted,
        PartitionCommitted,
        BrokerCommitted,
        HeartbeatSent,
        HeartbeatAnswered,
        LeaseExpired,
    )
    def step(self, state: _Shutdowns, event: Event, body: Struct) -> Findings:
        match body:
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case BrokerCommitted():
                news, _ = state.brokers.take(body)
                asked = state.asked.get(body.broker_id)
                # The grant fences the broker by this record, and the answer comes only once it is
                # committed: by then the leaderships may have moved. So what it led is looked at
                # here.
                if news and body.fenced and asked and body.broker_id not in state.expired:
                    asked.fenced = event.ref
                    asked.led = tuple(state.partitions.led_by(body.broker_id))
                # A fencing by an expired lease is none of a grant. The mark is for this one record.
                if news:
                    state.expired.discard(body.broker_id)
            case LeaseExpired():
                state.expired.add(body.broker_id)
            case HeartbeatSent(target_state="SHUTDOWN"):
                before = state.asked.get(body.broker_id)
                state.asked[body.broker_id] = _Asked(
                    event.ref,
                    any(state.partitions.led_by(body.broker_id)),
                    before is not None and before.held_back,
                )
            case HeartbeatAnswered(error="NONE", active=True):
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Shutdowns, event: Event, body: HeartbeatAnswered) -> Findings:
        asked = state.asked.get(body.broker_id)
        leads = tuple(state.partitions.led_by(body.broker_id))
        if body.next_state != "SHUTDOWN":
            if asked is not None:
                # The answer waits for the changes that the heartbeat caused, so leadership may have
                # moved already.
                asked.held_back = asked.held_back or asked.leading
            return NOTHING
        if asked is not None:
            del state.asked[body.broker_id]
        if leads or (asked is not None and asked.led):
            still = leads or (asked.led if asked is not None else ())
            because = () if asked is None else (asked.ref,)
            # The controller grants it by the record that fences the broker.
            fenced = asked.fenced if asked is not None and asked.led else None
            at = fenced or event.ref
            broken = violated(
                at,
                Evidence.SELF,
                "{process} granted {client} SHUTDOWN while it led {led}",
                because,
                process=process_scope(event.process),
                client=process_scope(body.client),
                led=named(still),
                broker=broker_of(body.broker_id),
                places=tuple(partition_at(*one) for one in still),
            )
            return (broken,)
        if asked is not None and asked.held_back:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING


class _Deposed(NamedTuple):
    """A process learned that it does not lead: when, by which event, and whose word that is."""

    at_ns: int
    at: Cause
    evidence: Evidence
    follows: int = -1
    """The leader epoch in which it follows another, by its own event; -1: it said no such thing."""


@dataclass(slots=True)
class _Leading:
    """The processes that lead one partition by their own report, and those that know they do
    not."""

    epochs: dict[str, int] = field(default_factory=dict)
    """process -> the epoch it leads in."""
    named: dict[str, tuple[int, int]] = field(default_factory=dict)
    """process -> the broker that the record of its epoch makes the leader, and its offset."""
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """leader epoch -> the leader, by the newest record of that epoch, and its offset."""
    records: dict[int, Cause] = field(default_factory=dict)
    """leader epoch -> the first event of the record that began it."""
    deposed: dict[str, _Deposed] = field(default_factory=dict)
    """process -> how it learned that it does not lead."""
    newest: dict[str, str] = field(default_factory=dict)
    """slot -> its newest process with a replica."""
    refused: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """client -> when it was last refused, and whether the reason was not leading."""

    def because(self, deposed: _Deposed) -> tuple[Cause, ...]:
        """What proves that a process knew: for a follower the record, too, that made another the
        leader, since its own event says nothing of authority."""
        # That record may be told after the follower began.
        record = self.records.get(deposed.follows)
        return (deposed.at,) if record is None else (record, deposed.at)


@final
class OnlyLeaderServes(Rule[_Leading]):
    """RP-18. A broker knows that it does not lead once it reported so, or has replayed a record
    that names another leader. A lease that ended is judged by QC-17."""

    clause = "RP-18"
    keys = staticmethod(by_partition)
    state = _Leading

    @on(LogAppended)
    def _appended(self, state: _Leading, event: Event, body: LogAppended) -> Findings:
        process = event.process
        # The common case, decided first: it is a leader that knows of no other.
        if not body.as_leader or (process in state.epochs and process not in state.deposed):
            return NOTHING
        return self._served(state, event, body, "stored a client's write", 0)

    @on(FetchServed)
    def _fetched(self, state: _Leading, event: Event, body: FetchServed) -> Findings:
        if event.process in state.epochs and event.process not in state.deposed:
            return NOTHING
        # The fetch may have waited at the leader for that long, and was admitted while it led.
        return self._served(state, event, body, "served a fetch", FETCH_WAIT_NS)

    @on(RequestRefused)
    def _refused(self, state: _Leading, event: Event, body: RequestRefused) -> Findings:
        if body.requester >= 0:
            return NOTHING
        state.refused[body.client] = (event.at_ns, body.reason == "not_leader")
        if body.reason == "not_leader" and event.process not in state.epochs:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @on(LeadershipStarted, LeadershipEnded, FollowingStarted, PartitionCommitted)
    def _changed(self, state: _Leading, event: Event, body: Struct) -> Findings:
        """A process leads or follows, or learns that another is to lead."""
        if isinstance(body, PartitionCommitted):
            state.records.setdefault(body.leader_epoch, event.ref)
        match body:
            # In a combined process the controller's replay says nothing of what its broker knows.
            case PartitionCommitted() if body.role != "controller":
                self._committed(state, event, body)
            case LeadershipStarted():
                self._leads(state, event, body)
            case LeadershipEnded():
                if state.epochs.pop(event.process, None) is not None:
                    known = _Deposed(event.at_ns, event.ref, Evidence.SELF)
                    state.deposed.setdefault(event.process, known)
            case FollowingStarted():
                state.newest[slot_of(event.process)] = event.process
                known = _Deposed(event.at_ns, event.ref, Evidence.SELF, body.leader_epoch)
                state.deposed.setdefault(event.process, known)
        return NOTHING

    @staticmethod
    def _leads(state: _Leading, event: Event, body: LeadershipStarted) -> None:
        state.newest[slot_of(event.process)] = event.process
        state.epochs[event.process] = body.leader_epoch
        state.deposed.pop(event.process, None)
        if body.leader_epoch in state.leaders:
            state.named[event.process] = state.leaders[body.leader_epoch]
        else:
            state.named.pop(event.process, None)

    @staticmethod
    def _committed(state: _Leading, event: Event, body: PartitionCommitted) -> None:
        epoch = body.leader_epoch
        if body.leader >= 0:
            known = state.leaders.get(epoch)
            if known is None or body.offset > known[1]:
                state.leaders[epoch] = body.leader, body.offset
            # A leader may begin before any node tells the record of its epoch.
            for process, led in state.epochs.items():
                if led == epoch and process not in state.named:
                    state.named[process] = body.leader, body.offset
        mine, at = state.named.get(event.process, (body.leader, 0))
        # The broker itself has replayed a record that names another leader. Newer is what comes
        # later in the log: the topic that is made again begins with the smallest epoch.
        led = state.epochs.get(event.process, epoch)
        # Without a controller, an epoch lasts until the next election.
        vacant = body.leader < 0 and epoch == led
        if (
            body.leader != mine
            and body.offset > at
            and event.process in state.epochs
            and not vacant
        ):
            learned = _Deposed(event.at_ns, event.ref, Evidence.PEER)
            state.deposed.setdefault(event.process, learned)

    @staticmethod
    def _served(
        state: _Leading, event: Event, body: LogAppended | FetchServed, what: str, waited_ns: int
    ) -> Findings:
        deposed = state.deposed.get(event.process)
        if deposed is None:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} {done} though it never began to lead the partition",
                process=process_scope(event.process),
                done=what,
                partition=partition_of(body),
                led=False,
            )
            return (broken,)
        if event.at_ns - waited_ns < deposed.at_ns:
            return NOTHING
        broken = violated(
            event.ref,
            deposed.evidence,
            "{process} {done} {after_ns} after it had learnt that it does not lead the partition",
            state.because(deposed),
            process=process_scope(event.process),
            done=what,
            after_ns=event.at_ns - deposed.at_ns,
            partition=partition_of(body),
        )
        return (broken,)

    @on(ProbeCompleted)
    def _probed(self, state: _Leading, event: Event, body: ProbeCompleted) -> Findings:
        process = state.newest.get(body.slot, "")
        deposed = state.deposed.get(process)
        # The probe must have been sent after the process knew: an answer to an earlier one may have
        # been under way.
        if deposed is None or body.sent_at_ns <= deposed.at_ns:
            return NOTHING
        if body.outcome == "answered":
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{process} answered a {api} of {client} sent after it had learnt that it does not "
                "lead the partition",
                state.because(deposed),
                process=process_scope(process),
                api=body.api,
                client=process_scope(event.process),
                partition=partition_of(body),
            )
            return (broken,)
        # The refusal must be for the right reason: a fenced broker refuses as well.
        at_ns, for_deposed = state.refused.get(event.process, (-1, True))
        if "NOT_LEADER" in body.error and (for_deposed or at_ns < body.sent_at_ns):
            return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING


@dataclass(slots=True)
class _Epochs:
    """The leaders and epochs of a topic's partitions; a topic that is created again begins anew."""

    made: dict[str, int] = field(default_factory=dict)
    """process -> offset of the topic record it replayed last."""
    begun_at: set[int] = field(default_factory=lambda: {-2})
    """The offsets of the records that begin or end a topic of that name."""
    deleted_at: int = -1
    """The offset of the newest record of a deletion. It tells the topics apart for processes that
    record no topics, such as Kafka's brokers."""
    present: bool = True
    """Whether the topic was made again since."""
    leaders: dict[tuple[int, int, int], tuple[str, Cause]] = field(default_factory=dict)
    """topic record, partition, epoch -> the leader."""
    tops: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)
    """topic record, partition -> the highest epoch, and its leader."""
    records: dict[tuple[int, int], tuple[PartitionCommitted, Cause]] = field(default_factory=dict)
    deletions: set[int] = field(default_factory=lambda: {-1})
    """The offsets of the records of deletions."""
    doubtful: list[tuple[int, int, Finding]] = field(default_factory=list)
    """Leaders that seem to share an epoch: until when, and after which deletion, and the
    finding."""
    named: dict[tuple[int, int], dict[int, set[str]]] = field(default_factory=dict)
    """partition, epoch -> each leader by records, and the slots that tell them."""
    told: dict[int, set[str]] = field(default_factory=dict)
    """partition -> the slots that tell its records."""
    unread: set[int] = field(default_factory=set)
    """The partitions of which an observer has skipped records."""
    led: dict[tuple[str, int, int], Event] = field(default_factory=dict)
    """process, partition, epoch -> the first event by which it leads."""

    def topic_of(self, process: str) -> int:
        """The topic of this name that a process means: the offset of the deletion before it.

        By the topic's record that the process has replayed last. Two records with no deletion
        between them are of one topic: when each process's own record named its topic, a leader that
        named another offset shared no epoch with anybody. A process that has loaded a snapshot has
        replayed none, and Kafka's brokers record none; they mean the topic that there is.
        """
        made = self.made.get(process)
        if made is None:
            return self.deleted_at
        return max(one for one in self.deletions if one < made)


@dataclass(slots=True)
class _Topics:
    """The epochs of each topic, and who may share an id."""

    of: defaultdict[str, _Epochs] = field(default_factory=lambda: defaultdict(_Epochs))
    takeovers: Takeovers = field(default_factory=Takeovers)
    """Over ZooKeeper only: the registrations there."""
    ids: dict[str, int] = field(default_factory=dict)
    """process -> its id, by the harness."""
    controllers: bool = False
    """Whether there are nodes that only control: then a leader is not the only one to know of the
    record of its epoch."""


@final
class OneLeaderAnEpoch(Rule[_Topics]):
    """RP-24. Exercised when leadership goes to another process, in a later epoch. A leader's own
    word makes it no leader: a record must have begun its epoch, and have named it. So must one for
    whoever counts followers or moves the high watermark as a leader, though it says nothing of
    leading. That is judged at the end, since records may be told later.

    Over ZooKeeper an id is of whoever has the session, and a controller that is elected as it goes
    to a second process finds the broker alive, and begins no epoch. The first process may not know
    that its session has ended. So there the two may lead in one epoch. With a quorum of controllers
    each registration has an epoch of its own, and excuses nothing.
    """

    clause = "RP-24"
    state = _Topics

    @on(ProcessSpawned, ProcessExited, BrokerDeclared)
    def _claimed(self, topics: _Topics, event: Event, body: Struct) -> Findings:
        if isinstance(body, ProcessSpawned):
            topics.ids[body.started] = body.node_id
            topics.controllers = topics.controllers or body.role == Role.CONTROLLER
        topics.takeovers.take(body, event.process)
        return NOTHING

    @on(TopicCommitted, PartitionCommitted, LeadershipStarted)
    def step(self, topics: _Topics, event: Event, body: Any) -> Findings:
        state = topics.of[body.topic]
        match body:
            case TopicCommitted():
                state.begun_at.add(body.offset)
                if body.offset > state.deleted_at:
                    state.present = not body.deleted
                if not body.deleted:
                    state.made[event.process] = body.offset
                elif body.offset not in state.deletions:
                    self._deleted(state, event, body)
            case PartitionCommitted():
                self._told(state, event, body)
                return self._committed(state, event, body)
            case LeadershipStarted():
                state.led.setdefault((event.process, body.partition, body.leader_epoch), event)
                return self._led(state, event, body, topics)
        return NOTHING

    @on(FollowerFetched, HighWatermarkAdvanced)
    def _acts(
        self, topics: _Topics, event: Event, body: FollowerFetched | HighWatermarkAdvanced
    ) -> Findings:
        """A process does what only a leader does, whether it said that it began to lead or not."""
        if isinstance(body, FollowerFetched) or body.as_leader:
            place = event.process, body.partition, body.leader_epoch
            topics.of[body.topic].led.setdefault(place, event)
        return NOTHING

    @staticmethod
    def _deleted(state: _Epochs, event: Event, body: TopicCommitted) -> None:
        state.deletions.add(body.offset)
        state.deleted_at = max(state.deleted_at, body.offset)
        # What seemed a second leader of the former topic may have been the first one of the next.
        state.doubtful = [
            one for one in state.doubtful if one[0] < event.at_ns or one[1] >= body.offset
        ]

    @staticmethod
    def _told(state: _Epochs, event: Event, body: PartitionCommitted) -> None:
        slot = slot_of(event.process)
        leaders = state.named.setdefault((body.partition, body.leader_epoch), {})
        leaders.setdefault(body.leader, set()).add(slot)
        state.told.setdefault(body.partition, set()).add(slot)
        # Only observers skip records: a node that names its role replays each.
        if body.skipped and not body.role:
            state.unread.add(body.partition)

    def end(self, state: _Topics, end: RunEnd) -> Findings:
        return tuple(self._at_end(state, end))

    def _at_end(self, state: _Topics, end: RunEnd) -> Iterator[Finding]:
        for topic in state.of.values():
            yield from (finding for _, _, finding in topic.doubtful)
            for (process, partition, epoch), began in topic.led.items():
                until_ns = began.at_ns + READ_WITHIN_NS
                if until_ns <= end.ended_at_ns and end.whole_until(began.at_ns):
                    yield from self._unnamed(state, topic, (process, partition, epoch), began)

    @staticmethod
    def _unnamed(
        topics: _Topics, state: _Epochs, led: tuple[str, int, int], began: Event
    ) -> Iterator[Finding]:
        """A leadership that no record began, by the word of others."""
        process, partition, epoch = led
        own = {slot_of(process)} if topics.controllers else set[str]()
        leaders = {
            leader
            for leader, tellers in state.named.get((partition, epoch), {}).items()
            if leader >= 0 and tellers - own
        }
        node = topics.ids.get(process)
        # Where nobody else tells the records, or not all, a record may be there that is not known.
        told = state.told.get(partition, own) - own and partition not in state.unread
        if (node is None or node in leaders) if leaders else not told:
            return
        body: Any = began.body
        others: Facts = {"named": tuple(map(broker_of, sorted(leaders)))} if leaders else {}
        yield violated(
            began.ref,
            Evidence.PEER,
            "{process} leads {partition} in epoch {epoch}, which "
            + ("a record gave to {named}" if leaders else "no record began"),
            process=process_scope(process),
            partition=partition_of(body),
            epoch=epoch,
            **others,
        )

    @staticmethod
    def _led(state: _Epochs, event: Event, body: LeadershipStarted, topics: _Topics) -> Findings:
        made = state.topic_of(event.process)
        if event.process not in state.made and not state.present and body.log_end > 0:
            return NOTHING  # it has not read of the deletion yet
        place = (made, body.partition, body.leader_epoch)
        known = state.leaders.setdefault(place, (event.process, event.ref))
        if known[0] != event.process:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} and {other} both lead {partition} in epoch {epoch}",
                (known[1],),
                process=process_scope(event.process),
                other=process_scope(known[0]),
                partition=partition_of(body),
                epoch=body.leader_epoch,
            )
            node = topics.ids.get(event.process, -1)
            one_id = first_of(event.process) == first_of(known[0])
            if one_id and topics.takeovers.is_taken(node):
                taken = Reason.of("both have the id {node}", node=node)
                return (Excused.of(broken, taken),)
            # An observer may tell a deletion up to seconds after the next topic is led.
            if not {event.process, known[0]} <= state.made.keys():
                doubt = (event.at_ns + READ_WITHIN_NS, state.deleted_at, broken)
                state.doubtful.append(doubt)
                return NOTHING
            return (broken,)
        top, leader = state.tops.get((made, body.partition), (-1, event.process))
        # Of another process that is late news: a record that it replays behind the others. Of the
        # leader of the highest epoch itself it is a step back.
        if body.leader_epoch < top:
            back = leader == event.process
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} leads {partition} in epoch {epoch}, after {other_epoch}",
                process=process_scope(event.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
                other_epoch=top,
            )
            return (broken,) if back else NOTHING
        state.tops[made, body.partition] = (body.leader_epoch, event.process)
        return (Exercised(event.ref, Evidence.PEER),) if leader != event.process else NOTHING

    @staticmethod
    def _committed(state: _Epochs, event: Event, body: PartitionCommitted) -> Findings:
        # A process that has loaded a snapshot replays only the records after it.
        place = (max(one for one in state.begun_at if one < body.offset), body.partition)
        known, ref = state.records.get(place, (None, None))
        if known is not None and body.offset <= known.offset:
            return NOTHING
        state.records[place] = (body, event.ref)
        if known is None or ref is None or body.leader_epoch > known.leader_epoch:
            return NOTHING
        if body.leader_epoch == known.leader_epoch and body.leader in (known.leader, -1):
            return NOTHING  # without a controller, an epoch lasts until the next election
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{partition} went from broker {former} in leader epoch {other_epoch} to broker "
            "{leader} in {epoch}",
            (ref,),
            partition=partition_of(body),
            former=broker_of(known.leader),
            other_epoch=known.leader_epoch,
            leader=broker_of(body.leader),
            epoch=body.leader_epoch,
        )
        return (broken,)
