"""Topics that are deleted, and may be made again under their name.

A rule about the messages of a partition forgets them when its topic is deleted. The words for that
are the committed record and the answer that a client got, and not the word of a node that holds the
messages: it may be wrong, or a node may never say it.

Events of the former topic may come after that. So a node's events count again once it begins to
lead or to follow, a consumer's once it is positioned, and a write counts if it was invoked since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, final

from msgspec import Struct

from fencepost import Event, Finding, RunEnd
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
    TopicCommitted,
)
from fencepost_suites.common.keys import NOTHING, Keys

S = TypeVar("S")

DELETIONS: frozenset[type[Struct]] = frozenset({TopicCommitted, AdminCompleted})
"""The independent words about a deletion."""
OF_REPLICAS: frozenset[type[Struct]] = DELETIONS | {LeadershipStarted, FollowingStarted}
"""The events by which `Generations` tells the topics of one name apart, for events of replicas."""
OF_CLIENTS: frozenset[type[Struct]] = DELETIONS | {ProduceInvoked, ConsumerPositioned}
"""The same for events of clients."""


def by_generation(event: Event) -> Keys:
    """The topic."""
    body: Any = event.body
    return ((body.subject if isinstance(body, AdminCompleted) else body.topic,),)


@final
@dataclass(slots=True)
class Generations(Generic[S]):
    """One state for each partition of a topic, begun anew when the topic is deleted.

    `new` makes a state; `renewed` the state that follows one, if more than a new one is kept.
    """

    new: Callable[[], S]
    renewed: Callable[[S], S] | None = None
    parts: dict[int, S] = field(default_factory=dict)
    deleted_at: int = -1
    """The offset of the newest record of a deletion."""
    by_record: int = 0
    by_client: int = 0
    """How many deletions there were by the records, and by the answers to clients."""
    begun: set[tuple[str, int]] = field(default_factory=set)
    """The processes, and partitions, whose events are of the present topic."""
    invoked: set[str] = field(default_factory=set)
    """The writes that were invoked since the last deletion."""

    def step(
        self, event: Event, inner: Callable[[S, Event], tuple[S, Sequence[Finding]]]
    ) -> tuple[Generations[S], Sequence[Finding]]:
        """Applies an event to the state of its partition by the rule's own step."""
        body: Any = event.body
        if isinstance(body, TopicCommitted | AdminCompleted):
            self._topic(body)
            return self, NOTHING
        if (self.by_record or self.by_client) and not self._counts(event):
            return self, NOTHING
        state = self.parts.get(body.partition)
        if state is None:
            state = self.new()
        self.parts[body.partition], found = inner(state, event)
        return self, found

    def end(
        self, end: RunEnd, inner: Callable[[S, RunEnd], Sequence[Finding]]
    ) -> Sequence[Finding]:
        """The findings of every partition at the end."""
        return [found for state in self.parts.values() for found in inner(state, end)]

    def _topic(self, body: TopicCommitted | AdminCompleted) -> None:
        known = max(self.by_record, self.by_client)
        if isinstance(body, AdminCompleted):
            self.by_client += body.api == "delete_topic" and body.outcome == "ok"
        elif body.deleted and body.offset > self.deleted_at:
            self.by_record, self.deleted_at = self.by_record + 1, body.offset
        if max(self.by_record, self.by_client) == known:
            return
        self.begun.clear()
        self.invoked.clear()
        renewed = self.renewed
        self.parts = {} if renewed is None else {at: renewed(s) for at, s in self.parts.items()}

    def _counts(self, event: Event) -> bool:
        """Whether an event is of the topic that there is now."""
        body = event.body
        match body:
            case PartitionCommitted():
                return body.offset > self.deleted_at
            case LeadershipStarted() | FollowingStarted() | ConsumerPositioned():
                self.begun.add((event.process, body.partition))
                return True
            case ProduceInvoked():
                self.invoked.add(body.operation)
                return True
            case ProduceCompleted():
                return body.operation in self.invoked
            case ReadCompleted() | ProducerEpochChanged():
                return True
            case Polled(final=True):
                return True
        return (event.process, getattr(body, "partition", -1)) in self.begun
