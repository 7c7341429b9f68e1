"""The controller over ZooKeeper, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost_clusters.reference.core.node.effects import (
    Call,
    Effect,
    Instant,
    Note,
    Received,
    ToZooKeeper,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.legacy.core import settings, znodes
from fencepost_clusters.reference.legacy.core.controller.announcer import KnownBroker
from fencepost_clusters.reference.legacy.core.controller.controller import Controller
from fencepost_clusters.reference.legacy.core.controller.election import Won
from fencepost_clusters.reference.legacy.core.controller.messages import ControlRequest
from fencepost_clusters.reference.legacy.core.controller.term import Term
from fencepost_clusters.reference.legacy.core.registrations import Registration
from fencepost_clusters.reference.over_zookeeper.core.session import Clock, Session
from fencepost_clusters.reference.policies import Policies
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.legacy import BrokerState
from fencepost_clusters.zookeeper.client import port as zk

TOPIC = znodes.topic_id("orders")
OWN = 20
PROPERTIES = {
    "broker.id": "1",
    "zookeeper.connect": "zookeeper-1:2181",
    "controller.heartbeat.timeout.ms": "3000",
}


def at(ms: int) -> Instant:
    return Instant(ms * 1_000_000, ms)


class ControllerBench:
    """Broker 1 is the controller; brokers 2 and 3 are active, and broker 2 leads orders-0."""

    def __init__(self, **replaced: Any) -> None:
        """`replaced` are decisions of the controller, as a defect replaces them."""
        self.out = Outbox()
        self._calls: list[Call] = []
        self._asked: list[ToZooKeeper] = []
        self.effects: list[Effect] = []
        self.seen: list[object] = []
        """The events so far."""
        read, policies = settings.read(PROPERTIES), Policies().of_legacy()
        controller = replace(policies.legacy.controller, **replaced)
        policies = replace(policies, legacy=replace(policies.legacy, controller=controller))
        self.session = Session((("zookeeper-1", 2181),), "", 3000, self.out)
        self.clock = Clock(at(0))
        self.controller = Controller(read, self.session, self.clock, policies, self.out)
        self.term = self.controller.term = Term(
            Won(epoch=1, version=0, first=True),
            read,
            self.controller.queues,
            policies=policies,
            out=self.out,
            clock=self.clock,
        )
        self.term.ready = True
        for broker in (2, 3):
            info = znodes.BrokerInfo(5, (("REPLICATION", f"broker-{broker}", 9094),))
            self.term.brokers[broker] = KnownBroker(
                registration=Registration(broker, OWN, info, 1),
                state=BrokerState.ACTIVE,
                initialised=OWN,
                incarnation=OWN,
                heard_ns=0,
                version=5,
            )
            self.controller.queues.open(broker, OWN, (f"broker-{broker}", 9094))
        self.term.store.stored.replay(
            [
                *(r.BrokerRecord(broker_id=b, broker_epoch=OWN, end_points=()) for b in (2, 3)),
                r.TopicRecord(name="orders", topic_id=TOPIC),
                r.PartitionRecord(
                    partition_id=0,
                    topic_id=TOPIC,
                    replicas=(2, 3),
                    isr=(2, 3),
                    leader=2,
                    leader_epoch=4,
                ),
            ]
        )
        self.term.store.stored.versions[znodes.state("orders", 0)] = 0

    def at(self, ms: int) -> Instant:
        """The time of the next input."""
        self.clock.now = at(ms)
        return self.clock.now

    def asked(self) -> tuple[ToZooKeeper, list[Effect]]:
        """The one request to ZooKeeper, and all effects."""
        effects = list(self.out.drain())
        (asked,) = (one for one in effects if isinstance(one, ToZooKeeper))
        return asked, effects

    def notes(self) -> list[object]:
        return [one.body for one in self.out.drain() if isinstance(one, Note)]

    def received(self, message: m.Request) -> Received:
        return Received(
            request_id=1,
            listener="REPLICATION",
            client="broker-2#1",
            correlation=1,
            message=message,
        )

    def take(self) -> list[Effect]:
        """The new effects. Calls, requests to ZooKeeper and events are kept, too."""
        effects = list(self.out.drain())
        self.effects += effects
        self._calls += [one for one in effects if isinstance(one, Call)]
        self._asked += [one for one in effects if isinstance(one, ToZooKeeper)]
        self.seen += [one.body for one in effects if isinstance(one, Note)]
        return effects

    def calls(self) -> list[Call]:
        """The calls that it has made since this was last asked, up to this time."""
        self.controller.go_on(self.clock.now)
        self.take()
        made, self._calls = self._calls, []
        return made

    def control_requests(self) -> list[tuple[int, ControlRequest]]:
        """The control requests that it sends, each answered at once: the broker and the request."""
        sent: list[tuple[int, ControlRequest]] = []
        while calls := self.calls():
            for one in calls:
                assert isinstance(one.message, ControlRequest)
                sent.append((int(one.address[0].removeprefix("broker-")), one.message))
                self.answer(one)
        return sent

    def answer(self, call: Call, error: Error = Error.NONE) -> None:
        """Answers a StopReplica, or another control request with a like answer."""
        answer = w.StopReplicaResponse(error_code=error)
        self.controller.queues.answered(call.call_id, answer, self.clock.now)

    def stored(self) -> zk.Multi:
        """Stores the one transaction that it asks for, and returns it; then answers its reads."""
        self.take()
        (first,) = self._asked
        assert isinstance(first.request, zk.Multi)
        self.settle()
        return first.request

    def settle(self) -> None:
        """Answers every request to ZooKeeper, as `store` does."""
        self.take()
        while self._asked:
            self.store()
            self.take()

    def reads(self) -> ToZooKeeper | None:
        """The next request to ZooKeeper, which the test answers."""
        self.take()
        return self._asked.pop(0) if self._asked else None

    def store(self) -> None:
        """Answers the one request to ZooKeeper. A transaction is stored, and a read finds no newer
        state."""
        (asked,) = self._asked
        self._asked.clear()
        match asked.request:
            case zk.Multi(writes):
                answer: zk.Answer = zk.Done(tuple(map(_written, writes)))
            case zk.Exists():
                answer = zk.Found(stat(0))
            case _:
                answer = zk.Refused(zk.Reason.NO_NODE)
        self.session.answered(asked.request_id, answer)


def _written(write: zk.Write) -> zk.WriteResult:
    match write:
        case zk.Check():
            return zk.Checked()
        case zk.SetData(_, _, version):
            return zk.DataSet(stat(version + 1))
        case zk.Create(path):
            return zk.Created(path, None)
        case zk.Delete():
            return zk.Deleted()


def stat(version: int, owner: int = 0, czxid: int = 5) -> zk.Stat:
    """The status of a znode of this version."""
    return zk.Stat(
        czxid=czxid,
        mzxid=5 + version,
        pzxid=5,
        ctime_ms=0,
        mtime_ms=0,
        version=version,
        cversion=0,
        owner=owner,
        length=0,
        children=0,
    )
