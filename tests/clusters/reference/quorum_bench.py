"""One node of the quorum plane, without a cluster: the test answers in place of all other nodes and
of clients."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from random import Random  # noqa: TID251 - the node's own seeded stream
from typing import TypeVar

from bench_time import SECOND, pass_time
from msgspec import Struct

from fencepost_clusters.reference.assembly import DiskContents, assemble
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node import settings as s
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.quorum.broker.broker import BrokerNode
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.core.quorum.raft.messages import (
    begin_epoch,
    fetch,
    fetch_answer,
    snapshot_answer,
    vote,
    vote_answer,
)
from fencepost_clusters.reference.policies import Policies
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

ME, OTHER, CONTROLLER = 1, 2, 101
VOTERS = (101, 102, 103)
CONTROLLERS = tuple(m.NodeEndpoint(node_id=v, host=f"c-{v - 100}", port=9093) for v in VOTERS)
TERM = 1
"""The controller's epoch."""
TOPIC = uuid.UUID(int=9)
LEASE_MS = 3000
Body = TypeVar("Body", bound=Struct)


class QuorumNode:
    """The process of a node, from its settings and the contents of its disk."""

    def __init__(
        self,
        properties: Mapping[str, str],
        site: Site,
        stored: DiskContents | None = None,
        policies: Policies | None = None,
    ) -> None:
        self.now_ns = SECOND
        self.effects: list[e.Effect] = []
        """All its effects, in order."""
        self.calls: list[e.Call] = []
        """Its calls that have no answer, in order."""
        self.exited = False
        self._requests = itertools.count(1)
        self.core = assemble(
            s.read(properties),
            site,
            stored=stored or DiskContents(),
            chance=Random(1).randint,
            policies=policies or Policies(),
            now=self.now,
        )

    @property
    def now(self) -> e.Instant:
        return e.Instant(self.now_ns, self.now_ns // 1_000_000)

    def give(self, what: e.Input) -> tuple[e.Effect, ...]:
        """Handles an input; returns the effects of this step. A broker leaves nothing undone that
        is due."""
        done = self.core.handle(what, self.now)
        self.effects += done
        self.exited = self.exited or any(isinstance(one, e.Exit) for one in done)
        self.calls += [one for one in done if isinstance(one, e.Call)]
        if isinstance(self.core, BrokerNode) and not self.exited:
            assert self.core.deadline_ns() > self.now_ns
        return done

    def passes(self, seconds: float) -> None:
        """Lets time pass, from each Tick that the node wants to the next."""
        pass_time(self, seconds)

    def noted(self, kind: type[Body]) -> list[Body]:
        """Its events of a kind, in order."""
        notes = (one.body for one in self.effects if isinstance(one, e.Note))
        return [one for one in notes if isinstance(one, kind)]

    def called(self, channel: str) -> e.Call:
        """The newest call on a channel, which has no answer."""
        return [one for one in self.calls if one.channel == channel][-1]

    def answers(self, channel: str, message: m.Response) -> tuple[e.Effect, ...]:
        """Answers the newest call on a channel."""
        call = self.called(channel)
        self.calls.remove(call)
        return self.give(e.Answered(call.call_id, message))

    def asks(self, listener: str, message: m.Request, client: str = "test") -> list[e.Reply]:
        """The answers that leave at once when it gets a request."""
        received = e.Received(
            request_id=next(self._requests),
            listener=listener,
            client=client,
            correlation=1,
            message=message,
        )
        return replies(self.give(received))


class QuorumController:
    """Controller 101. It is active once it is `elected` by the voters."""

    def __init__(
        self,
        *voters: int,
        stored: DiskContents | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """The voters are 101 to 103 if none is named."""
        connect = (f"{v}@c-{v - 100}:9093" for v in voters or VOTERS)
        self.node = QuorumNode(
            {
                "process.roles": "controller",
                "controller.id": str(CONTROLLER),
                "controller.listeners": "CONTROLLER",
                "controller.quorum.fetch.timeout.ms": "2000",
                "controller.connect": ",".join(connect),
                **(settings or {}),
            },
            Site("controller-1", "controller-1", {"CONTROLLER": 9093}, "controller-1#1"),
            stored,
        )
        assert isinstance(self.node.core, ControllerNode)
        self.core = self.node.core

    def stands(self) -> tuple[e.Effect, ...]:
        """It stands for election, since it knows no leader."""
        self.node.now_ns += 30 * SECOND
        return self.node.give(e.Tick())

    def elected(self) -> QuorumController:
        """The others vote for it, and fetch its log."""
        self.stands()
        while not self.core.active:
            self.node.answers("quorum", vote_answer(None, self.core.raft.epoch, granted=True))
        self.followed()
        return self

    def followed(self) -> list[e.Reply]:
        """The other voters fetch from the end of its log; returns all answers that leave then."""
        others = sorted(self.core.raft.voters.keys() - {CONTROLLER})
        return [reply for voter in others for reply in self.fetched(voter)]

    def fetched(self, node: int) -> list[e.Reply]:
        """Another node fetches from the end of its log."""
        raft, log = self.core.raft, self.core.log
        replica = m.ReplicaState(replica_id=node)
        asked = fetch(log.end, raft.epoch, log.last_epoch, 500, replica)
        return self.asks(asked, f"node-{node}")

    def asks(self, message: m.Request, client: str = "test") -> list[e.Reply]:
        """The answers that leave at once when it gets a request."""
        return self.node.asks("CONTROLLER", message, client)

    def beat(
        self,
        broker: int,
        state: BrokerState = BrokerState.ACTIVE,
        target: BrokerState = BrokerState.ACTIVE,
    ) -> list[e.Reply]:
        """A broker's heartbeat in its registered epoch; it has replayed the whole metadata."""
        known = self.core.committed.image.brokers.get(broker)
        return self.asks(
            m.BrokerHeartbeatRequest(
                target_state=target,
                broker_id=broker,
                broker_epoch=-1 if known is None else known.epoch,
                lease_start_time_ms=self.node.now.wall_ms,
                cur_metadata_offset=self.core.log.end - 1,
                listeners=(),
                incarnation_id=uuid.UUID(int=broker),
                current_state=state,
                features=(m.Feature(name="metadata.format", min_level=1, max_level=2),),
            ),
            f"broker-{broker}",
        )

    def activates(self, *brokers: int) -> QuorumController:
        """These brokers register and become active."""
        for broker in brokers:
            for state in (BrokerState.INITIAL, BrokerState.FENCED):
                self.beat(broker, state)
                self.followed()
        assert set(self.core.committed.image.live()) >= {*brokers}
        return self

    def follows(
        self,
        leader: int,
        epoch: int,
        data: bytes = b"",
        committed: int = 0,
        *,
        diverging: m.EpochEndOffset | None = None,
        snapshot: m.SnapshotId | None = None,
    ) -> tuple[e.Effect, ...]:
        """Another controller leads. This one fetches from it, and gets this answer."""
        self.asks(begin_epoch(leader, epoch))
        self.node.passes(0)
        answer = fetch_answer(
            leader,
            epoch,
            high_watermark=committed,
            data=data,
            diverging=diverging,
            snapshot=snapshot,
        )
        return self.node.answers("metadata", answer)


class QuorumBroker:
    """Broker 1. Controller 101 is the active one of the three that it knows; broker 2 is another
    process."""

    def __init__(self, recovered: e.Recovered | None = None, **more: str) -> None:
        """`recovered` are the logs on its disk: none, unless they are given."""
        self.end = 0
        """The end of the controllers' log; all of it is committed."""
        self.node = QuorumNode(
            {
                "process.roles": "broker",
                "broker.id": str(ME),
                "controller.connect": "c-1:9093",
                "registration.lease.timeout.ms": str(LEASE_MS),
                "registration.heartbeat.interval.ms": "300",
                **{name.replace("_", "."): value for name, value in more.items()},
            },
            Site("broker-1", "broker-1", {"CLIENT": 9092, "REPLICATION": 9091}, "broker-1#1"),
        )
        assert isinstance(self.node.core, BrokerNode)
        self.core = self.node.core
        self.node.give(e.Tick())
        self.node.give(recovered or e.Recovered({}, {}))
        self.learns()

    @property
    def state(self) -> BrokerState:
        return self.core.lifecycle.state

    def beats(
        self,
        state: BrokerState = BrokerState.ACTIVE,
        error: Error = Error.NONE,
        epoch: int = 0,
        controller: tuple[int, int] = (CONTROLLER, TERM),
    ) -> tuple[e.Effect, ...]:
        """A controller, given with its epoch, answers the heartbeat in flight; a lease begins when
        that was sent."""
        asked = self.node.called("heartbeat").message
        assert isinstance(asked, m.BrokerHeartbeatRequest)
        good = error is Error.NONE
        answer = m.BrokerHeartbeatResponse(
            error_code=error,
            active_controller_id=controller[0],
            next_state=state,
            broker_epoch=epoch if good else -1,
            lease_end_time_ms=asked.lease_start_time_ms + LEASE_MS if good else -1,
            controller_epoch=controller[1],
        )
        return self.node.answers("heartbeat", answer)

    def replicates(
        self, *parts: m.PartitionData, error: Error = Error.NONE
    ) -> tuple[e.Effect, ...]:
        """A leader answers the fetch in flight."""
        topics = (m.FetchableTopicResponse(partitions=parts, topic_id=TOPIC),) if parts else ()
        answer = m.FetchResponse(error_code=error, session_id=1, responses=topics)
        return self.node.answers("replication", answer)

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
        return self.node.answers("metadata", answer)

    def registers(self, fenced: bool = True, epoch: int = 0) -> QuorumBroker:
        """The controller commits this broker's registration."""
        self.commits(registration(ME, self.core.lifecycle.incarnation, epoch, fenced))
        return self

    def activates(self) -> QuorumBroker:
        """It registers and becomes active in epoch 1; broker 2 is active, too."""
        self.beats(BrokerState.FENCED)
        self.registers()
        self.node.passes(0.1)
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
        new = (TOPIC, 0) not in self.core.data.replicas.by_key
        topic = [r.TopicRecord(name="orders", topic_id=TOPIC)] if new else []
        self.commits(*topic, part)
        return self


def snapshot_part(
    snapshot: m.SnapshotId,
    data: bytes,
    *,
    position: int = 0,
    size: int = -1,
    leader: int = CONTROLLER,
    epoch: int = TERM,
) -> m.FetchSnapshotResponse:
    """A leader's answer with a part of a snapshot; all of it, unless its size is given."""
    part = m.PartitionSnapshotData(
        index=0,
        error_code=Error.NONE,
        snapshot_id=snapshot,
        current_leader=m.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        size=len(data) if size < 0 else size,
        position=position,
        unaligned_records=data,
    )
    return snapshot_answer(part)


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


# ---------------------------------------------------------------------------------------- the log

ROW = r.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")


def rows(base: int, epoch: int, count: int = 1) -> bytes:
    """A batch of records at an offset."""
    return record_batch.build([r.encode(ROW)] * count, base, epoch, 1)


def in_order(done: Iterable[e.Effect]) -> list[e.Effect]:
    """What is stored, and what leaves."""
    return [one for one in done if isinstance(one, e.DiskEffect | e.Call | e.Reply)]


def kinds(done: Iterable[e.Effect]) -> list[type]:
    return [type(one) for one in in_order(done)]


def voted(
    controller: QuorumController, candidate: int, epoch: int, log_end: int = 100
) -> m.VoteResult:
    """The answer to a candidate."""
    (reply,) = controller.asks(vote(epoch, candidate, log_end, epoch - 1))
    assert isinstance(reply.message, m.VoteResponse)
    return reply.message.topics[0].partitions[0]


def fetched(
    controller: QuorumController,
    node: int,
    offset: int,
    *,
    last_epoch: int,
    epoch: int | None = None,
    wait_ms: int = 0,
) -> list[m.PartitionData]:
    """The answer to a fetch, if it leaves at once."""
    claimed = controller.core.raft.epoch if epoch is None else epoch
    replica = m.ReplicaState(replica_id=node)
    asked = fetch(offset, claimed, last_epoch, wait_ms, replica)
    return parts(controller.asks(asked, f"node-{node}"))


def parts(answers: list[e.Reply]) -> list[m.PartitionData]:
    messages = [one.message for one in answers]
    return [one.responses[0].partitions[0] for one in messages if isinstance(one, m.FetchResponse)]


def calls(done: Iterable[e.Effect], kind: type[m.Request]) -> list[str]:
    """The hosts to which a kind of request leaves."""
    found = (one for one in done if isinstance(one, e.Call))
    return [one.address[0] for one in found if isinstance(one.message, kind)]
