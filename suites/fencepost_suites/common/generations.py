"""Topics that are deleted, and may be made again under their name.

A rule about the messages of a partition forgets them when its topic is deleted. The words for that
are the committed record and the answer that a client got, and not the word of a node that holds the
messages: it may be wrong, or a node may never say it.

Events of the former topic may come after that. So a node's events count again once it begins to
lead or to follow, and a consumer's once it is positioned. A write counts if it was invoked since
the topic was made again: a leader that has not read of the deletion still acknowledges writes. A
node that starts may still follow the former topic, with the messages on its disk, until it has read
of the deletion. So before the topic is made again, a node counts only if its log is empty as it
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, final

from msgspec import Struct

from fencepost import Event, Finding, Key, Rule, RunEnd
from fencepost_kafka import (
    AdminCompleted,
    ConsumerPositioned,
    FollowingStarted,
    LeadershipStarted,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
    ReadCompleted,
    SegmentFound,
    TopicCommitted,
)
from fencepost_suites.common.keys import NOTHING, Keys

S = TypeVar("S")

DELETIONS: frozenset[type[Struct]] = frozenset({TopicCommitted, AdminCompleted})
"""The independent words about a deletion."""
OF_REPLICAS: frozenset[type[Struct]] = DELETIONS | {LeadershipStarted, FollowingStarted}
"""The events that tell the topics of one name apart, for events of replicas."""
OF_CLIENTS: frozenset[type[Struct]] = DELETIONS | {ProduceInvoked, ConsumerPositioned}
"""The same for events of clients."""


@final
class Generations(Generic[S]):
    """A rule's state for each partition of a topic, begun anew when the topic is deleted."""

    def __init__(self) -> None:
        self.parts: dict[int, S] = {}
        self.deleted_at = -1
        """The offset of the newest record of a deletion."""
        self.by_record = 0
        self.by_client = 0
        """How many deletions there were by the records, and by the answers to clients."""
        self.made = True
        """Whether the topic was made again since the last deletion, by the records or by an
        answer."""
        self.begun: set[tuple[str, int]] = set()
        """The processes, and partitions, whose events are of the present topic."""
        self.invoked: set[str] = set()
        """The writes that were invoked since the topic was made again."""

    def deletes(self, body: TopicCommitted | AdminCompleted) -> bool:
        """Applies a word about the topic. Returns whether it is the first one of a deletion."""
        known = max(self.by_record, self.by_client)
        if isinstance(body, AdminCompleted):
            self.by_client += body.api == "delete_topic" and body.outcome == "ok"
            self.made = self.made or (body.api == "create_topic" and body.outcome == "ok")
        elif body.deleted and body.offset > self.deleted_at:
            self.by_record, self.deleted_at = self.by_record + 1, body.offset
        elif body.offset > self.deleted_at:
            self.made = True
        if max(self.by_record, self.by_client) == known:
            return False
        self.made = False
        self.begun.clear()
        self.invoked.clear()
        return True

    def counts(self, event: Event) -> bool:
        """Whether an event is of the topic that there is now, after a deletion."""
        body = event.body
        match body:
            case PartitionCommitted():
                return body.offset > self.deleted_at
            case LeadershipStarted() | FollowingStarted() if body.log_end > 0 and not self.made:
                self.begun.discard((event.process, body.partition))
                return False
            case LeadershipStarted() | FollowingStarted() | ConsumerPositioned():
                self.begun.add((event.process, body.partition))
                return True
            case ProduceInvoked():
                if self.made:
                    self.invoked.add(body.operation)
                return self.made
            case ProduceCompleted():
                return body.operation in self.invoked
            case ReadCompleted() | ProducerEpochChanged() | SegmentFound():
                return True
            case Polled(final=True):
                return True
        return (event.process, getattr(body, "partition", -1)) in self.begun


@final
class OfPresentTopic(Generic[S]):
    """A rule about the messages of one partition, applied to each topic that has its name."""

    def __init__(
        self,
        rule: Rule[S],
        begins: frozenset[type[Struct]],
        renewed: Callable[[S], S] | None = None,
    ) -> None:
        """`rule` judges as if no topic were ever deleted; its keys are not asked for. `begins` are
        the events that tell the topics apart. `renewed` makes the state of a partition of the next
        topic from that of the last one; without it, a new one begins."""
        self.rule = rule
        self._begins = begins
        self._renewed = renewed

    @property
    def clause(self) -> str:
        """The clause of the rule."""
        return self.rule.clause

    @property
    def kinds(self) -> frozenset[type[Struct]]:
        """What the rule reads, and what tells the topics apart."""
        return self.rule.kinds | self._begins

    @staticmethod
    def keys(event: Event) -> Keys:
        """The topic."""
        body: Any = event.body
        return ((body.subject if type(body) is AdminCompleted else body.topic,),)

    def start(self, key: Key) -> Generations[S]:
        return Generations()

    def step(self, state: Generations[S], event: Event) -> tuple[Generations[S], Sequence[Finding]]:
        body: Any = event.body
        kind = type(body)
        if kind in DELETIONS:
            if state.deletes(body):
                renewed, parts = self._renewed, state.parts
                state.parts = {at: renewed(s) for at, s in parts.items()} if renewed else {}
            return state, NOTHING
        if (state.by_record or state.by_client) and not state.counts(event):
            return state, NOTHING
        rule = self.rule
        if kind not in rule.kinds:
            return state, NOTHING
        index = body.partition
        before = state.parts.get(index)
        if before is None:
            before = rule.start((body.topic, index))
        state.parts[index], found = rule.step(before, event)
        return state, found

    def end(self, state: Generations[S], end: RunEnd) -> Sequence[Finding]:
        return [found for part in state.parts.values() for found in self.rule.end(part, end)]


def of_replicas(rule: Rule[S]) -> OfPresentTopic[S]:
    """A rule about what replicas record."""
    return OfPresentTopic(rule, OF_REPLICAS)


def of_clients(rule: Rule[S], renewed: Callable[[S], S] | None = None) -> OfPresentTopic[S]:
    """A rule about what clients record."""
    return OfPresentTopic(rule, OF_CLIENTS, renewed)
