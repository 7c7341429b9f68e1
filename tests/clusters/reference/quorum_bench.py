"""One broker of the quorum plane, without a cluster: the test answers in place of the controllers,
of other brokers and of clients."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from random import Random  # noqa: TID251 - the node's own seeded stream
from typing import TypeVar

from msgspec import Struct

from fencepost_clusters.reference.core.assembly import DiskContents, assemble
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node import settings as s
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.policies import Policies
from fencepost_clusters.reference.core.quorum.broker.broker import BrokerNode
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft.messages import fetch_answer
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

SECOND = 1_000_000_000
ME, OTHER, CONTROLLER = 1, 2, 101
CONTROLLERS = tuple(
    m.NodeEndpoint(node_id=CONTROLLER + n, host=f"c-{n + 1}", port=9093) for n in range(3)
)
TERM = 1
"""The controller's epoch."""
TOPIC = uuid.UUID(int=9)
LEASE_MS = 3000
TICKS = 10
"""More Ticks than a broker wants at one time."""
Body = TypeVar("Body", bound=Struct)


class QuorumBroker:
    """Broker 1. Controller 101 is the active one of the three that it knows; broker 2 is another
    process."""

    def __init__(self, **more: str) -> None:
        self.now_ns = SECOND
        self.end = 0
        """The end of the controllers' log; all of it is committed."""
        self.effects: list[e.Effect] = []
        """All its effects, in order."""
        self.calls: list[e.Call] = []
        """Its calls that have no answer, in order."""
        self._requests = itertools.count(1)
        settings = s.read(
            {
                "process.roles": "broker",
                "broker.id": str(ME),
                "controller.connect": "c-1:9093",
                "registration.lease.timeout.ms": str(LEASE_MS),
                "registration.heartbeat.interval.ms": "300",
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        core = assemble(
            settings,
            Site("broker-1", "broker-1", {"CLIENT": 9092, "REPLICATION": 9091}, "broker-1#1"),
            stored=DiskContents(),
            chance=Random(1).randint,
            policies=Policies(),
            now=self.now,
        )
        assert isinstance(core, BrokerNode)
        self.core = core
        self.give(e.Tick())
        self.give(e.Recovered({}, {}))
        self.learns()

    @property
    def now(self) -> e.Instant:
        return e.Instant(self.now_ns, self.now_ns // 1_000_000)

    @property
    def state(self) -> BrokerState:
        return self.core.lifecycle.state

    def give(self, what: e.Input) -> tuple[e.Effect, ...]:
        """Handles an input; returns the effects of this step."""
        done = self.core.handle(what, self.now)
        self.effects += done
        self.calls += [one for one in done if isinstance(one, e.Call)]
        return done

    def passes(self, seconds: float) -> None:
        """Lets time pass, from each Tick that the broker wants to the next."""
        end_ns = self.now_ns + round(seconds * SECOND)
        again = 0
        while (due_ns := self.core.deadline_ns()) is not None and due_ns <= end_ns:
            again = 0 if due_ns > self.now_ns else again + 1
            assert again < TICKS, "a Tick at the deadline leaves what is due undone"
            self.now_ns = max(self.now_ns, due_ns)
            self.give(e.Tick())
        self.now_ns = end_ns

    def noted(self, kind: type[Body]) -> list[Body]:
        """Its events of a kind, in order."""
        notes = (one.body for one in self.effects if isinstance(one, e.Note))
        return [one for one in notes if isinstance(one, kind)]

    # ---------------------------------------------------------------------------------- its calls

    def called(self, channel: str) -> e.Call:
        """The newest call on a channel, which has no answer."""
        return [one for one in self.calls if one.channel == channel][-1]

    def answers(self, channel: str, message: m.Response) -> tuple[e.Effect, ...]:
        """Answers the newest call on a channel."""
        call = self.called(channel)
        self.calls.remove(call)
        return self.give(e.Answered(call.call_id, message))

    def beats(
        self, state: BrokerState = BrokerState.ACTIVE, error: Error = Error.NONE, epoch: int = 0
    ) -> tuple[e.Effect, ...]:
        """The controller answers the heartbeat in flight; a lease begins when that was sent."""
        asked = self.called("heartbeat").message
        assert isinstance(asked, m.BrokerHeartbeatRequest)
        good = error is Error.NONE
        answer = m.BrokerHeartbeatResponse(
            error_code=error,
            active_controller_id=CONTROLLER,
            next_state=state,
            broker_epoch=epoch if good else -1,
            lease_end_time_ms=asked.lease_start_time_ms + LEASE_MS if good else -1,
            controller_epoch=TERM,
        )
        return self.answers("heartbeat", answer)

    def replicates(
        self, *parts: m.PartitionData, error: Error = Error.NONE
    ) -> tuple[e.Effect, ...]:
        """A leader answers the fetch in flight."""
        topics = (m.FetchableTopicResponse(partitions=parts, topic_id=TOPIC),) if parts else ()
        answer = m.FetchResponse(error_code=error, session_id=1, responses=topics)
        return self.answers("replication", answer)

    def commits(self, *records: r.Record) -> tuple[e.Effect, ...]:
        """The controller commits these records; the broker fetches them."""
        data = record_batch.build([r.encode(one) for one in records], self.end, TERM, 1)
        self.end += len(records)
        return self.learns(data)

    def learns(self, data: bytes = b"") -> tuple[e.Effect, ...]:
        """The controller answers the fetch of the metadata."""
        answer = fetch_answer(
            CONTROLLER, TERM, high_watermark=self.end, data=data, voters=CONTROLLERS
        )
        return self.answers("metadata", answer)

    # ---------------------------------------------------------------------------------- its cluster

    def registers(self, fenced: bool = True, epoch: int = 0) -> QuorumBroker:
        """The controller commits this broker's registration."""
        self.commits(registration(ME, self.core.lifecycle.incarnation, epoch, fenced))
        return self

    def activates(self) -> QuorumBroker:
        """It registers and becomes active in epoch 1; broker 2 is active, too."""
        self.beats(BrokerState.FENCED)
        self.registers()
        self.passes(0.1)
        self.beats(epoch=1)
        self.registers(fenced=False, epoch=1)
        self.commits(registration(OTHER, uuid.UUID(int=OTHER), self.end))
        assert self.state is BrokerState.ACTIVE
        return self

    def holds(self, leader: int, isr: Sequence[int] = (ME, OTHER), epoch: int = 0) -> QuorumBroker:
        """The controller commits that partition 0 of a topic on both brokers is led by this one."""
        part = r.PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=(ME, OTHER),
            isr=tuple(isr),
            leader=leader,
            leader_epoch=epoch,
        )
        new = (TOPIC, 0) not in self.core.replicas.by_key
        topic = [r.TopicRecord(name="orders", topic_id=TOPIC)] if new else []
        self.commits(*topic, part)
        return self

    # ------------------------------------------------------------------------------ requests to it

    def asks(self, listener: str, message: m.Request) -> list[e.Reply]:
        """The answers that leave at once when it gets a request."""
        received = e.Received(
            request_id=next(self._requests),
            listener=listener,
            client="test",
            correlation=1,
            message=message,
        )
        return replies(self.give(received))


def replies(done: Sequence[e.Effect]) -> list[e.Reply]:
    return [one for one in done if isinstance(one, e.Reply)]


def registration(
    broker: int, incarnation: uuid.UUID, epoch: int, fenced: bool = False
) -> r.BrokerRecord:
    return r.BrokerRecord(
        broker_id=broker,
        broker_epoch=epoch,
        end_points=(r.EndPoint(name="REPLICATION", host=f"broker-{broker}", port=9091),),
        fenced=fenced,
        incarnation_id=incarnation,
    )
