"""Topics that are deleted, and may be made again under their name; and partitions whose messages
no promise covers any more (see `forfeits`), which are not judged until they begin anew.

A rule about the messages of a partition forgets them when its topic is deleted. The words for that
are the committed record and the answer that a client got, and not the word of a node that holds the
messages: it may be wrong, or a node may never say it (see `tellers`).

Events of the former topic may come after that. So a node's events count again once it begins to
lead or to follow, and a consumer's once it is positioned. A write counts if it was invoked since
the topic was made again: a leader that has not read of the deletion still acknowledges writes. A
node that starts may still follow the former topic, with the messages on its disk, until it has read
of the deletion. So before the topic is made again, a node counts only if its log is empty as it
begins.

A client's answer alone may be wrong, too: nobody has recorded a deletion, and clients still write
to the topic and read it. Then nothing is known of what came since, and the rules are undecided.

A partition that was forfeited begins anew in the same topic, for the rules of clients, but not
with an empty log. What was left of the former messages is still read. So a write counts if it was
invoked since, and a consumer once it is positioned since. The rules of replicas do not judge it
again until its topic is deleted. A replica that stood aside cuts off more than its own watermark,
and one that joins the ISR does not begin anew, so it would be taken for one that has stored
nothing: over ZooKeeper nine of 66 clean seeds were accused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar, final

from msgspec import Struct

from fencepost import (
    SECOND,
    UNBEGUN,
    Cause,
    Event,
    Excused,
    FaultInjected,
    Held,
    PhaseStarted,
    Reason,
    Rule,
    Shared,
    Undecided,
)
from fencepost_kafka import (
    AdminCompleted,
    ConsumerPositioned,
    FollowingStarted,
    LeadershipStarted,
    PartitionCommitted,
    Polled,
    ProbeCompleted,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
    ReadCompleted,
    SegmentFound,
    TopicCommitted,
    topic_of,
)
from fencepost_kafka.judging.forfeits import FORFEITING, Forfeits
from fencepost_kafka.judging.takeovers import TAKING

S = TypeVar("S")
DELETIONS: Final[frozenset[type[Struct]]] = frozenset({TopicCommitted, AdminCompleted})
"""The independent words about a deletion."""
_DECIDING: Final[frozenset[type[Struct]]] = DELETIONS | FORFEITING
"""The events that decide to which topic, if any, others belong."""
_OF_RUN: Final[frozenset[type[Struct]]] = frozenset({*TAKING, FaultInjected, PhaseStarted})
"""The events that are about no topic."""
SERVES_FORMER_NS: Final = 30 * SECOND
"""How long a broker may serve a topic that was deleted and made again, before it reads of that."""
OF_REPLICAS: frozenset[type[Struct]] = DELETIONS | {LeadershipStarted, FollowingStarted}
"""The events that tell the topics of one name apart, for events of replicas."""
OF_CLIENTS: frozenset[type[Struct]] = DELETIONS | {ProduceInvoked, ConsumerPositioned}
"""The same for events of clients."""


@final
class Generations:
    """The topics of one name, of which there is one at a time, and what is held for each partition
    of the present one."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[Held, ...]] = {}
        self.whole = True
        """Whether there was no deletion and no forfeit so far: each event is of this one topic, and
        counts."""
        self.deleted_at = -1
        """The newest offset of a record of the former topics, as far as is known: that of a
        deletion, or of a partition as a client was answered. A node that lags tells records of the
        former topic after that answer, and before the record of the deletion."""
        self.recorded = -1
        """The newest offset of a partition's record."""
        self.by_record = 0
        self.by_client = 0
        """How many deletions there were by the records, and by the answers to clients."""
        self.made = True
        """Whether the topic was made again since the last deletion, by the records or by an
        answer."""
        self.made_ns = 0
        """When that was told first."""
        self.answered_ns = 0
        """When the first word about the newest deletion came: in doubt, an answer to a client."""
        self.still: Cause | None = None
        """The first event by which a client has used the topic long after that answer."""
        self.judged: set[int] = set()
        """The rules that had judged the topic when it was deleted."""
        self.doubted = False
        """Whether a client asked for a deletion, and does not know what became of it."""
        self.replayed: dict[str, int] = {}
        """process -> the newest record of a topic of this name that it has told, where it does."""
        self.begun: set[tuple[str, int]] = set()
        """The processes, and partitions, whose events are of the present topic."""
        self.invoked: dict[str, int] = {}
        """The writes that were invoked since the topic was made again, or since the partition began
        anew, each with its partition."""
        self.forfeited: set[int] = set()
        """The partitions of the present topic that are not judged now."""
        self.anew: set[int] = set()
        """The partitions that were forfeited and began anew."""

    def deletes(self, body: TopicCommitted | AdminCompleted, at_ns: int) -> bool:
        """Applies a word about the topic. Returns whether it is the first one of a deletion."""
        made = self.made
        anew = self._told(body)
        if self.made and (anew or not made):
            self.made_ns = at_ns
        if anew:
            self.answered_ns, self.still = at_ns, None
        return anew

    def uses(self, event: Event) -> None:
        """A client may use a topic of whose deletion one was answered."""
        match event.body:
            case ProduceCompleted(outcome="ok"):
                used = True
            case Polled(offsets=offsets):
                used = bool(offsets)
            case _:
                used = False
        if used and event.at_ns - self.answered_ns > SERVES_FORMER_NS:
            self.still = self.still or event.ref

    @property
    def doubtful(self) -> Cause | None:
        """The event that casts doubt on a deletion which nobody has recorded, if there is any.
        Where no records are read, an answer is all there is."""
        told = self.by_record >= self.by_client or self.recorded < 0
        return None if self.made or told else self.still

    def _told(self, body: TopicCommitted | AdminCompleted) -> bool:
        # One deletion is told twice: by the record, and by the answer to the client that asked.
        # Each word is counted for itself, and the larger count is the number of deletions: so the
        # second word about one deletion does not begin another topic. Clients may get no answer,
        # and nodes may never report the record, so neither count alone is enough.
        known, remade = max(self.by_record, self.by_client), False
        if isinstance(body, AdminCompleted):
            if body.api == "delete_topic" and body.outcome == "ok":
                # If the topic was made again since the last recorded deletion, this answer is about
                # another one, and that one had no answer.
                self.by_client = max(self.by_client, self.by_record if self.made else 0) + 1
                if self.by_client > known:
                    self.deleted_at = max(self.deleted_at, self.recorded)
            elif body.api == "delete_topic" and body.outcome == "unknown":
                self.doubted = True
            # An answer that is not `ok` says nothing: the topic may exist already, or the request
            # may be lost.
            remade = body.api == "create_topic" and body.outcome == "ok"
            # Only a topic that is gone can be made again. So that also answers the deletion whose
            # outcome is not known: one that a record has told, or else one that it will tell.
            if remade and self.doubted:
                told = self.by_record > self.by_client
                self.by_client = self.by_record if told else self.by_client + 1
                self.doubted = False
            self.made = self.made or remade
        elif body.deleted and body.offset > self.deleted_at:
            self.by_record, self.deleted_at = self.by_record + 1, body.offset
        # The record of a topic that follows the newest deletion is the next topic's.
        elif body.offset > self.deleted_at:
            self.made = True
        if max(self.by_record, self.by_client) == known:
            return False
        self.made, self.doubted, self.whole = remade, False, False
        self.begun.clear()
        self.invoked.clear()
        self.forfeited.clear()
        self.anew.clear()
        return True

    def forfeit(self, partition: int) -> None:
        """A partition is not judged from now on."""
        self.whole = False
        self.forfeited.add(partition)
        self.anew.discard(partition)
        self.begun = {one for one in self.begun if one[1] != partition}
        self.invoked = {write: at for write, at in self.invoked.items() if at != partition}

    def renew(self, partition: int) -> None:
        """A partition that was forfeited begins anew."""
        self.forfeited.discard(partition)
        self.anew.add(partition)

    def judges(self, event: Event) -> bool:
        """Whether an event is of a partition that is judged now, and of this topic."""
        partition: int = getattr(event.body, "partition", -1)
        if partition in self.forfeited:
            return False
        if not self.made:
            self.uses(event)
        deleted = self.by_record or self.by_client
        return (not deleted and partition not in self.anew) or self.counts(event)

    def counts(self, event: Event) -> bool:
        """Whether an event is of what there is now, after a deletion or a forfeit."""
        body = event.body
        match body:
            case PartitionCommitted():
                return body.offset > self.deleted_at
            # A log with messages, before the topic was made again, is the former topic's.
            case LeadershipStarted() | FollowingStarted() if body.log_end > 0 and (
                not self.made or self._lags(event)
            ):
                self.begun.discard((event.process, body.partition))
                return False
            case LeadershipStarted() | FollowingStarted() | ConsumerPositioned():
                self.begun.add((event.process, body.partition))
                return True
            case ProduceInvoked():
                if self.made:
                    self.invoked[body.operation] = body.partition
                return self.made
            # A write that was invoked before is the former topic's, even if its answer comes after
            # the next topic was made: counted, it would be missed in the next topic's log.
            case ProduceCompleted():
                return body.operation in self.invoked
            case ReadCompleted() | ProducerEpochChanged() | SegmentFound() | ProbeCompleted():
                return True
            case Polled(final=True):
                return True
            # A broker that has not read of the deletion still serves the former topic's messages.
            # The consumer goes on behind them, so it counts again once it is positioned.
            case Polled() if body.partition not in self.anew and self._is_former(event, body):
                self.begun.discard((event.process, body.partition))
        return (event.process, getattr(body, "partition", -1)) in self.begun

    def _lags(self, event: Event) -> bool:
        """Whether a process may still mean the former topic, soon after the next one was made: by
        its own records, it has not read of the deletion. One that starts replays them all."""
        soon = event.at_ns - self.made_ns <= SERVES_FORMER_NS
        return soon and self.replayed.get(event.process, self.deleted_at) < self.deleted_at

    def _is_former(self, event: Event, body: Polled) -> bool:
        """Whether a poll may be of the former topic: soon after the topic was made again, and with
        no message that was sent since."""
        soon = self.made and event.at_ns - self.made_ns <= SERVES_FORMER_NS
        return soon and bool(body.operations) and self.invoked.keys().isdisjoint(body.operations)


class Renews(Rule[S]):
    """A rule that keeps something of a partition though its topic is deleted, or its messages are
    lost with the disks: what it has found already."""

    def renewed(self, state: S) -> S:
        """The state with which a partition begins anew, made from that of before."""
        raise NotImplementedError


@final
class PresentTopics:
    """Keeps the states of rules about the messages of one partition. They begin anew when the topic
    is deleted, and only events of the present topic count. What tells the topics apart is applied
    once, for all rules: events of clients count by what clients record, those of nodes by what
    nodes record, so a rule gains nothing by the events that only others read."""

    def __init__(self, rules: Sequence[Rule[Any]], run: Shared, *, again: bool = False) -> None:
        self._again = again
        """Whether a forfeited partition may begin anew."""
        self._renewed = [rule.renewed if isinstance(rule, Renews) else None for rule in rules]
        """How a rule makes the state of a partition of the next topic from that of the last one;
        None: a new one begins."""
        self._topics: dict[str, Generations] = {}
        self._forfeits: Forfeits = run[Forfeits]
        self._excused: list[tuple[int, Excused]] = []

    def find(self, event: Event) -> tuple[Held, ...]:
        """What is held for the partition of an event, and for all of them if it is a fault; none if
        it is of a former topic, or a word about the topic, or if the partition is forfeited."""
        body: Any = event.body
        if type(body) in _DECIDING:
            found = self._decides(event, body)
            if found is not None:
                return found
        topic = self._topics.get(body.topic) or self._of(body.topic)
        if not topic.whole and not topic.judges(event):
            return ()
        return topic.parts.get(body.partition) or self._part(topic, body)

    def _decides(self, event: Event, body: Any) -> tuple[Held, ...] | None:
        """Applies an event that decides about others. Returns what it belongs to; None: that is
        decided as for any other."""
        kind = type(body)
        if kind is TopicCommitted:
            told = self._of(body.topic).replayed
            told[event.process] = max(body.offset, told.get(event.process, -1))
            if not self._forfeits.told:
                return ()
        elif kind is AdminCompleted and self._forfeits.tellers.is_node(event.process):
            return ()
        # The forfeit comes first: an event that forfeits a partition is not judged for it any more.
        if kind in FORFEITING:
            for (name, partition), reason in self._forfeits.found:
                self._forfeit(self._of(name), partition, event, reason)
            if kind in _OF_RUN:
                return self._every() if kind is FaultInjected else ()
        if kind in DELETIONS:
            topic = self._of(body.subject if kind is AdminCompleted else body.topic)
            if topic.deletes(body, event.at_ns):
                self._begin_anew(topic)
            return ()
        if kind is PartitionCommitted:
            if self._again:
                self._renew(body)
            topic = self._of(body.topic)
            topic.recorded = max(topic.recorded, body.offset)
        return None

    def _every(self) -> tuple[Held, ...]:
        """What is held for all partitions: a fault may concern each of them."""
        return tuple(part for topic in self._topics.values() for (part,) in topic.parts.values())

    def _of(self, name: str) -> Generations:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Generations()
        return topic

    def _part(self, topic: Generations, body: Any) -> tuple[Held, ...]:
        part = topic.parts[body.partition] = (
            Held((body.topic, body.partition), len(self._renewed)),
        )
        return part

    def _begin_anew(self, topic: Generations) -> None:
        for (part,) in topic.parts.values():
            states = enumerate(part.states)
            topic.judged |= {number for number, state in states if state is not UNBEGUN}
            self._anew(part)

    def _anew(self, part: Held) -> None:
        for number, renewed in enumerate(self._renewed):
            state = part.states[number]
            # A rule that has judged nothing of the partition is not excused: it has nothing that
            # was cut short.
            if state is not UNBEGUN:
                part.states[number] = UNBEGUN if renewed is None else renewed(state)
        part.share_anew()

    def _forfeit(self, topic: Generations, partition: int, event: Event, reason: Reason) -> None:
        topic.forfeit(partition)
        for part in topic.parts.get(partition, ()):
            self._excused += [
                (number, Excused.after(event.ref, reason))
                for number, state in enumerate(part.states)
                if state is not UNBEGUN
            ]
            self._anew(part)

    def _renew(self, body: PartitionCommitted) -> None:
        """Has a forfeited partition begin anew, if it does with this record."""
        topic = self._topics.get(body.topic)
        place = body.topic, body.partition
        if topic and body.partition in topic.forfeited and place in self._forfeits.again:
            topic.renew(body.partition)

    def excused(self) -> Iterable[tuple[int, Excused | Undecided]]:
        """Each rule that judged a partition until that was forfeited, or that stopped to judge it
        by a word that is in doubt."""
        return [*self._excused, *self._doubted()]

    def _doubted(self) -> Iterator[tuple[int, Undecided]]:
        for name, topic in self._topics.items():
            still = topic.doubtful
            if still is None:
                continue
            reason = Reason.of(
                "a client was answered that {topic} is deleted, nobody recorded that, and the "
                "topic was used long after",
                topic=topic_of(name),
            )
            for number in sorted(topic.judged):
                yield number, Undecided.since(reason, still)

    def held(self) -> Iterable[Sequence[Held]]:
        """What is held, for one topic after another."""
        return [[part for (part,) in topic.parts.values()] for topic in self._topics.values()]


def of_replicas(rule: Rule[S]) -> Rule[S]:
    """A rule about what replicas record of one partition, which judges as if no topic were ever
    deleted: its states begin anew with the next topic of the name."""
    return rule.kept(PresentTopics, OF_REPLICAS | FORFEITING, (Forfeits,))


def topics_of_clients(rules: Sequence[Rule[Any]], run: Shared) -> PresentTopics:
    """What keeps the states of rules about what clients record."""
    return PresentTopics(rules, run, again=True)


def of_clients(rule: Rule[S]) -> Rule[S]:
    """The same for a rule about what clients record. A partition whose messages were lost with the
    disks begins anew, too."""
    return rule.kept(topics_of_clients, OF_CLIENTS | FORFEITING, (Forfeits,))
