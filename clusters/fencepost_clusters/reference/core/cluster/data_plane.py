"""The data plane of a broker: its replicas, and all that is done with messages.

Each plane's broker owns one. The broker decides who leads, who is in an ISR, and whether clients
are served; the data plane does the rest in the same way in every plane. What it needs of the plane
is given:

1. `session` is the broker's registration: its epoch, its state, and whether it serves clients.
2. `isr_requests` asks for ISR changes: of a controller, or by a write to ZooKeeper.
3. `changes` carries out what clients change: by a controller, or by a transaction of its own.
4. The state of the cluster is an argument of each step. Each plane learns it in its own way, and
   may replace it as a whole, so a reference that is kept could be an old one.

The life of a data plane:

    recover() --Recovered--> take_disk() ... join() <--> leave() ... stop()

Fetches are sent, and ISR changes asked for, from `join` to `leave`. Over ZooKeeper a broker joins
with its disk, since nobody names this process to it before it has registered. In the quorum it
reads metadata while it recovers. What that says about its id is said about its former process,
until it names this one: if it joined before, it would lead what the former process led.
A process that lost its id leaves for good. One whose registration was deleted joins again with the
next.

An input is handled in this order:

1. `tick`, if it is due: what was due before the input arrived happens before it.
2. The input, by the plane. It may append batches, move high watermarks and change roles.
3. `settle`: the Produces and fetches that wait are answered if the input lets them. So an input
   that changes a replica twice, such as a new role and then a new ISR, is answered by the outcome.

See docs/decisions/51-planes.md.
"""

from __future__ import annotations

from typing import Protocol

from fencepost_clusters.reference.core.cluster.client_requests import (
    CarriesOut,
    ClientRequests,
    Serving,
    refuse_fenced,
)
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import (
    Close,
    Instant,
    Received,
    Recover,
    Recovered,
    Reply,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.replication.cluster_state import Session
from fencepost_clusters.reference.core.replication.fetching import Fetching
from fencepost_clusters.reference.core.replication.following import Following
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.producing import Producing
from fencepost_clusters.reference.core.replication.replicas import IsrRequests, Replicas
from fencepost_clusters.reference.core.replication.roles import RetireReason
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import RecoveryEnded, RecoveryStarted


class SharedPolicies(Protocol):
    """The policies of a plane's nodes, as far as every plane has them."""

    @property
    def cluster(self) -> ClusterPolicies: ...
    @property
    def replication(self) -> ReplicationPolicies: ...


class DataPlane:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        *,
        isr_requests: IsrRequests,
        changes: CarriesOut,
        policies: SharedPolicies,
        out: Outbox,
    ) -> None:
        replication = policies.replication
        self.replicas = Replicas(settings, isr_requests, replication, out)
        self.following = Following(settings, self.replicas, session, replication, out)
        self.producing = Producing(settings, self.replicas, session, replication, out)
        self.fetching = Fetching(
            self.replicas,
            session=session,
            refuse=lambda received: refuse_fenced(received, session, out),
            policies=replication,
            out=out,
        )
        self.recovered = False
        """Whether the logs are recovered: before that, no replica may be opened."""
        self.takes_part = False
        """Whether this process acts as the broker of its id: from `join` to `leave`."""
        self._clients = ClientRequests(
            settings,
            session,
            parts=Serving(self.replicas, self.producing, self.fetching, changes),
            policies=policies.cluster.serving,
            out=out,
        )
        self._session = session
        self._node_id = settings.node_id
        self._out = out

    # --------------------------------------------------------------------------------------- life

    def recover(self) -> None:
        """Begins to recover the logs on disk."""
        self._out.note(RecoveryStarted(node_id=self._node_id))
        self._out.add(Recover())

    def take_disk(self, found: Recovered) -> None:
        """The logs are recovered, so the broker may register (REG-02)."""
        batches = sum(len(entries) for entries in found.logs.values())
        self._out.note(RecoveryEnded(node_id=self._node_id, logs=len(found.logs), batches=batches))
        self.replicas.recovered(found)
        self.recovered = True

    def join(self) -> None:
        """From now on what the cluster says about this broker id is said about this process."""
        self.takes_part = True

    def leave(self, reason: RetireReason) -> None:
        """This process is the broker of its id no more: its replicas neither lead nor follow."""
        self.takes_part = False
        self.replicas.retire_all(reason)

    def stop(self, now: Instant) -> None:
        """The process ends: nothing that waits will be committed here, and what is in the logs is
        flushed."""
        self.replicas.retire_all("shutdown")
        self.producing.fail_all(now)
        if self.replicas.by_key:
            self.replicas.checkpoint()

    # ---------------------------------------------------------------------------------- each step

    def tick(self, image: Image, now: Instant) -> None:
        """Asks for the ISR changes, and sends the fetches, that are due."""
        if self.takes_part:
            self.replicas.tick(image, now)
            self.following.tick(image, now)

    def settle(self, image: Image, now: Instant) -> None:
        """Answers the waiting Produces and fetches that can be answered now."""
        self.producing.settle(now)
        self.fetching.release(image, now)

    def deadline_ns(self) -> int | None:
        """When the next `tick` or `settle` is due."""
        acts = self.takes_part
        return earliest(
            (
                self.producing.deadline_ns(),
                self.fetching.deadline_ns(),
                self.replicas.deadline_ns() if acts else None,
                self.following.deadline_ns() if acts else None,
            )
        )

    def failed(self, call_id: int, now: Instant) -> None:
        """A call got no answer, if it was a fetch or an ISR request."""
        self.following.failed(call_id, now)
        self.replicas.failed(call_id, now)

    # ----------------------------------------------------------------------------------- requests

    def client_request(
        self, received: Received, image: Image, now: Instant, unread: str = ""
    ) -> None:
        """Answers a client's request, now or later. `unread` says what this broker has not read of
        the cluster yet, if anything: a client would take its image for the cluster's state."""
        if not self._session.serving(now):
            refuse_fenced(received, self._session, self._out)
        elif unread:
            self._out.add(Close(received.request_id, unread))
        else:
            self._clients.handle(received, image, now)

    def refuse_follower(self, received: Received) -> None:
        """Answers a follower's fetch as a process does that leads nothing."""
        refusal = m.FetchResponse(error_code=Error.NOT_LEADER_OR_FOLLOWER, responses=())
        self._out.add(Reply(received.request_id, refusal))
