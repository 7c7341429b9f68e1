"""Changes of the cluster that clients ask for: the broker that gets such a request carries it out.

It decides as a controller of the other planes does, upon the cluster as it is in ZooKeeper now, and
stores the decision in one transaction. If another broker has changed the same znodes meanwhile, it
decides again.
"""

from __future__ import annotations

import itertools
import uuid
from typing import final

from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.context import Context
from fencepost_clusters.reference.core.cluster.changes import CHANGES
from fencepost_clusters.reference.core.cluster.decisions import DecisionContext
from fencepost_clusters.reference.core.node.effects import Instant, Received, Reply
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode
from fencepost_clusters.reference.over_zookeeper.core.session import Disconnected, Task, certain
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import ZnodeUnreadable

ATTEMPTS = 20
"""How often a decision is made anew, since others change the same znodes."""


@final
class Administration:
    """See the module."""

    def __init__(self, context: Context, incarnation: uuid.UUID) -> None:
        self._settings = context.settings
        self._known = context.known
        self._session = context.session
        self._reader = context.reader
        self._policies = context.policies.cluster
        self._incarnation = incarnation
        self._numbers = itertools.count(1)

    def takes(self, request: m.Request) -> bool:
        """Whether a client's request is one for a change."""
        return CHANGES.is_forwarded(request)

    def carry_out(self, received: Received, now: Instant) -> None:
        """Carries out a request, and answers it once the change is stored, or refuses it."""
        if self._session.connected is None:
            self._answer(received, CHANGES.refused(received.message, Error.NOT_CONTROLLER))
            return
        self._session.start(self._carry_out(received))

    def _carry_out(self, received: Received) -> Task:
        # Whether a transaction may have been carried out without an answer. Then the client must
        # hear that the outcome is unknown, and not that nothing was done.
        sent = False
        try:
            for _ in range(ATTEMPTS):
                yield from self._refresh()
                decision = CHANGES.decide(self._context(), received.message)
                found = writes.transaction(self._known, decision.records)
                if not found:
                    self._answer(received, decision.answer)
                    return
                sent = True
                done = certain((yield zk.Multi(found)))
                if isinstance(done, zk.Done) and not isinstance(done.results[-1], zk.Refused):
                    yield from self._refresh()
                    self._answer(received, decision.answer)
                    return
                # Refused as a whole: another broker has changed one of the znodes.
                sent = False
        except Disconnected:
            pass
        except BadZnode as bad:
            self._known.out.note(ZnodeUnreadable(reason=str(bad)))
        error = Error.REQUEST_TIMED_OUT if sent else Error.NOT_CONTROLLER
        self._answer(received, CHANGES.refused(received.message, error))

    def _refresh(self) -> Task:
        """Reads the cluster, so that a decision is made upon it as it is now. The others can be
        changed if one topic cannot be read."""
        yield from self._reader.brokers()
        yield from self._reader.topics()
        listed = certain((yield zk.GetChildren(znodes.TOPICS)))
        for name in listed.names if isinstance(listed, zk.Children) else ():
            try:
                yield from self._refresh_topic(name)
            except BadZnode as bad:
                self._known.out.note(ZnodeUnreadable(reason=str(bad)))

    def _refresh_topic(self, name: str) -> Task:
        yield from self._reader.topic(name)
        if name not in self._known.image.topics:
            return
        parts = certain((yield zk.GetChildren(znodes.topic(name))))
        for one in parts.names if isinstance(parts, zk.Children) else ():
            yield from self._reader.partition(name, int(one))

    def _context(self) -> DecisionContext:
        return DecisionContext(
            image=self._known.image,
            ready=self._known.ready(),
            settings=self._settings,
            policies=self._policies,
            topic_id=self._topic_id,
        )

    def _topic_id(self, name: str, number: int) -> uuid.UUID:
        """A new topic's id: this process gives none twice."""
        made = f"{self._incarnation}:{next(self._numbers)}:{name}"
        return uuid.uuid5(uuid.NAMESPACE_URL, made)

    def _answer(self, received: Received, answer: m.Response) -> None:
        self._known.out.add(Reply(received.request_id, answer))
