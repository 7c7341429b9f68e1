"""A controller's term over ZooKeeper, without a cluster round it: what its jobs wait for."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from fencepost_clusters.reference.core.legacy import settings, znodes
from fencepost_clusters.reference.core.legacy.controller import messages
from fencepost_clusters.reference.core.legacy.controller.announcer import KnownBroker
from fencepost_clusters.reference.core.legacy.controller.controller import Controller
from fencepost_clusters.reference.core.legacy.controller.election import Won
from fencepost_clusters.reference.core.legacy.controller.store import Steps
from fencepost_clusters.reference.core.legacy.controller.term import Term
from fencepost_clusters.reference.core.legacy.registrations import Registration
from fencepost_clusters.reference.core.legacy.session import Session
from fencepost_clusters.reference.core.node.effects import (
    Effect,
    Instant,
    Note,
    Outbox,
    Received,
    Reply,
    ToZooKeeper,
)
from fencepost_clusters.reference.core.policies import Policies
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import BrokerDeclared, ControllerEnded, ControlRequestSent

TOPIC = znodes.topic_id("orders")
OWN = 20
PROPERTIES = {
    "broker.id": "1",
    "zookeeper.connect": "zookeeper-1:2181",
    "controller.heartbeat.timeout.ms": "3000",
}


def at(ms: int) -> Instant:
    return Instant(ms * 1_000_000, ms)


class Office:
    """Broker 1 is the controller; brokers 2 and 3 are active, and broker 2 leads orders-0."""

    def __init__(self) -> None:
        self.out = Outbox()
        read, policies = settings.read(PROPERTIES), Policies().of_legacy()
        self.session = Session((("zookeeper-1", 2181),), "", 3000, self.out)
        self.controller = Controller(read, self.session, policies, self.out)
        self.term = self.controller.term = Term(
            Won(epoch=1, version=0, first=True),
            read,
            self.controller.queues,
            policies=policies,
            out=self.out,
            now=at(0),
        )
        self.term.ready = True
        for broker in (2, 3):
            info = znodes.BrokerInfo(5, (("REPLICATION", f"broker-{broker}", 9094),))
            self.term.brokers[broker] = KnownBroker(
                registration=Registration(broker, OWN, info, 1),
                state=w.BrokerState.ACTIVE,
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

    def asked(self) -> tuple[ToZooKeeper, list[Effect]]:
        """The one request to ZooKeeper, and all effects."""
        effects = list(self.out.drain())
        (asked,) = (one for one in effects if isinstance(one, ToZooKeeper))
        return asked, effects

    def notes(self) -> list[object]:
        return [one.body for one in self.out.drain() if isinstance(one, Note)]

    def received(self, message: w.Request) -> Received:
        return Received(
            request_id=1,
            listener="REPLICATION",
            client="broker-2#1",
            correlation=1,
            message=message,
        )


@pytest.fixture
def office() -> Office:
    return Office()


def reads() -> Iterator[zk.Request]:
    """A job that waits for ZooKeeper."""
    yield zk.Exists("/x")


def wait(office: Office) -> ToZooKeeper:
    """Something else is asked of ZooKeeper, and the jobs behind it wait."""
    job: Steps = reads()  # type: ignore[assignment]
    office.term.add(job)
    office.controller.go_on(at(0))
    return office.asked()[0]


def test_a_heartbeat_that_waits_while_another_process_registers_is_refused(
    office: Office,
) -> None:
    """HB-12."""
    asked = wait(office)
    office.term.brokers[2].state = w.BrokerState.INACTIVE
    beat = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=OWN, target_state=2)
    office.controller.heartbeat(office.received(beat), beat, at(1))
    office.term.brokers[2].initialised = office.term.brokers[2].incarnation = OWN + 1
    office.out.drain()
    office.session.answered(asked.request_id, zk.Found(None))
    (reply,) = (one for one in office.out.drain() if isinstance(one, Reply))
    assert isinstance(reply.message, w.MetadataHeartbeatResponse)
    assert reply.message.error_code == Error.INVALID_INCARNATION_ID


def test_of_processes_that_all_registered_later_the_oldest_one_stays_in_the_isr(
    office: Office,
) -> None:
    """RP-06: it still has what it had when the partition's state was written; a newer one may have
    an empty disk, and all others would truncate to it."""
    term = office.term
    info = term.brokers[2].registration.info
    for broker, epoch, since in ((2, 60, 10), (3, 50, 50)):
        later = msgspec.structs.replace(info, since=since if since != epoch else -1)
        known = term.brokers[broker]
        known.registration = Registration(broker, epoch, later, 1)
        known.initialised = known.incarnation = epoch
    term.store.written[TOPIC, 0] = 40
    term.add(term._end_inheritance())
    office.controller.go_on(at(0))
    asked, _ = office.asked()
    assert isinstance(asked.request, zk.Multi)
    (write,) = (one for one in asked.request.writes if isinstance(one, zk.SetData))
    content = znodes.decode(write.path, write.data, znodes.PartitionState)
    assert content.isr == (2,)


def test_a_process_that_lost_its_id_gives_the_election_up_for_good(office: Office) -> None:
    """HB-24: others would look for the controller at the process that has the id now."""
    office.session.changed(zk.Connected(7), at(0))
    office.controller.resign()
    asked, effects = office.asked()
    assert any(isinstance(one, Note) and isinstance(one.body, ControllerEnded) for one in effects)
    mine = zk.Stat(
        czxid=5,
        mzxid=5,
        pzxid=5,
        ctime_ms=0,
        mtime_ms=0,
        version=2,
        cversion=0,
        owner=7,
        length=0,
        children=0,
    )
    office.session.answered(asked.request_id, zk.Data(b"{}", mine))
    assert office.asked()[0].request == zk.Delete(znodes.CONTROLLER, 2)
    office.controller.stand(at(1))
    assert office.out.drain() == ()


@pytest.mark.parametrize("heard", [True, False])
def test_a_broker_that_is_heard_while_its_declaration_waits_is_not_declared_inactive(
    heard: bool, office: Office
) -> None:
    """HB-09."""
    office.term.brokers[3].heard_ns = at(3000).monotonic_ns
    asked = wait(office)
    office.controller.tick(at(3001))
    if heard:
        beat = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=OWN, target_state=2)
        office.controller.heartbeat(office.received(beat), beat, at(3002))
    office.controller.tick(at(3003))
    office.out.drain()
    office.session.answered(asked.request_id, zk.Found(None))
    declared = [one for one in office.notes() if isinstance(one, BrokerDeclared)]
    assert [(one.broker_id, one.new) for one in declared] == ([] if heard else [(2, "Inactive")])


def test_what_a_job_tells_brokers_leaves_before_the_next_job(office: Office) -> None:
    """HB-03: a request that names a broker is not sent after it was declared inactive."""

    def tell() -> Steps:
        image, announced = office.term.store.image, office.term.announcer.announced()
        request = messages.update_metadata(
            office.term.announcer.sender, image, OWN, image.all_partitions(), announced
        )
        office.controller.queues.add(3, request)
        return
        yield

    office.term.add(tell())
    office.term.add(office.term.declare(2, w.BrokerState.INACTIVE, "silent"))
    office.controller.go_on(at(0))
    kinds = [
        type(one) for one in office.notes() if isinstance(one, BrokerDeclared | ControlRequestSent)
    ]
    assert kinds[:2] == [ControlRequestSent, BrokerDeclared]


@pytest.mark.parametrize("in_office", [True, False])
def test_an_isr_that_needs_no_change_is_confirmed_in_office_only(
    in_office: bool, office: Office
) -> None:
    """HB-21: a controller that was deposed may not know of it, nor of the ISR that is stored."""
    wanted = w.IsrChangePartition(leader_epoch=4, partition_index=0, isr_nodes=(2, 3))
    topic = w.IsrChangeTopic(topic_name="orders", partitions=(wanted,))
    change = w.IsrChangeRequest(broker_id=2, incarnation_id=OWN, topics=(topic,))
    office.controller.isr_change(office.received(change), change, at(1))
    asked, effects = office.asked()
    assert asked.request == zk.Multi((zk.Check(znodes.CONTROLLER_EPOCH, 0),))
    assert not any(isinstance(one, Reply) for one in effects)
    result = zk.Checked() if in_office else zk.Refused(zk.Reason.BAD_VERSION)
    office.session.answered(asked.request_id, zk.Done((result,)))
    effects = list(office.out.drain())
    replies = [one.message for one in effects if isinstance(one, Reply)]
    ended = [
        one for one in effects if isinstance(one, Note) and isinstance(one.body, ControllerEnded)
    ]
    none = w.IsrChangeResponse(
        top_level_error_code=Error.NONE, results=(w.IsrChangeResult(error_code=Error.NONE),)
    )
    assert replies == ([none] if in_office else [])
    assert bool(ended) is not in_office
