"""Control requests at one broker over ZooKeeper, without a cluster (KIP-380)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from role_requests import roles

from fencepost_clusters.reference.core.node.effects import Instant, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.replica import log_name
from fencepost_clusters.reference.legacy.core import settings, znodes
from fencepost_clusters.reference.legacy.core.broker.commands import Commands
from fencepost_clusters.reference.legacy.core.broker.isr_requests import KnownZnodes
from fencepost_clusters.reference.legacy.core.controller.messages import (
    BEING_DELETED,
    ControlRequest,
)
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire.errors import Error

OWN, FORMER = 20, 10
PROPERTIES = {"broker.id": "1", "zookeeper.connect": "zookeeper-1:2181"}


class Broker:
    """Broker 1 with broker epoch 20; `strays` has the hosted topics at each deletion of strays,
    `unopened` the logs that are removed wherever no replica has opened them."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.strays: list[tuple[str, ...]] = []
        self.unopened: set[str] = set()
        lifecycle: Any = SimpleNamespace(epoch=OWN, is_registered=True, lost=False)
        replicas: Any = SimpleNamespace(
            delete_strays=lambda roles: self.strays.append(tuple(roles.topics)),
            delete_unopened=self.unopened.update,
            adopt=lambda *changed: None,
        )
        self.commands = Commands(
            settings.read(PROPERTIES),
            lifecycle,
            replicas,
            KnownZnodes(),
            policies=LegacyBrokerPolicies(),
            out=self.out,
        )

    def obeys(self, request: ControlRequest) -> bool:
        received = Received(
            request_id=1,
            listener="REPLICATION",
            client="broker-2#1",
            correlation=1,
            message=request,
        )
        self.commands.handle(received, request, Instant(0, 0))
        (reply,) = (one for one in self.out.drain() if isinstance(one, Reply))
        return bool(getattr(reply.message, "error_code", None) == Error.NONE)


def lead_and_follow(broker_epoch: int) -> w.LeaderAndIsrRequest:
    return roles(2, 0, isr=(2, 1), replicas=(2, 1), broker_epoch=broker_epoch)


def learn(
    broker_epoch: int, topics: tuple[w.UpdateMetadataTopic, ...] = ()
) -> w.UpdateMetadataRequest:
    return w.UpdateMetadataRequest(
        controller_id=2,
        controller_epoch=1,
        broker_epoch=broker_epoch,
        topic_states=topics,
        live_brokers=(),
    )


def stop(
    broker_epoch: int, deletes: bool = False, partitions: tuple[int, ...] = ()
) -> w.StopReplicaRequest:
    topic = w.StopReplicaTopic(topic_name="orders", partition_indexes=partitions)
    return w.StopReplicaRequest(
        controller_id=2,
        controller_epoch=1,
        broker_epoch=broker_epoch,
        delete_partitions=deletes,
        topics=(topic,) if partitions else (),
    )


@pytest.mark.parametrize("make", [lead_and_follow, learn, stop], ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    ("epoch", "obeyed"), [(w.NO_EPOCH, True), (FORMER, False), (OWN, True), (OWN + 1, True)]
)
def test_a_request_is_refused_for_its_broker_epoch_only_if_that_is_an_earlier_one(
    make: Any, epoch: int, obeyed: bool
) -> None:
    """BE-02 and BE-10."""
    assert Broker().obeys(make(epoch)) is obeyed


def test_only_the_first_leader_and_isr_for_this_process_deletes_strays() -> None:
    broker = Broker()
    assert broker.obeys(lead_and_follow(OWN))
    assert broker.obeys(lead_and_follow(OWN))
    assert broker.strays == [("orders",)]


def test_a_leader_and_isr_without_a_broker_epoch_deletes_no_strays() -> None:
    """It may be meant for the former process, and lack partitions that the broker hosts."""
    broker = Broker()
    assert broker.obeys(lead_and_follow(w.NO_EPOCH))
    assert broker.strays == []
    assert broker.obeys(lead_and_follow(OWN))
    assert broker.strays == [("orders",)]


@pytest.mark.parametrize("deletes", [True, False])
def test_only_a_stop_replica_that_deletes_removes_logs_that_no_replica_has_opened(
    deletes: bool,
) -> None:
    """A process that has just started knows no replica of a topic in deletion."""
    broker = Broker()
    assert broker.obeys(stop(w.NO_EPOCH, deletes, partitions=(0, 2)))
    opened = (log_name("orders", (znodes.topic_id("orders"), index)) for index in (0, 2))
    assert broker.unopened == (set(opened) if deletes else set())


def test_a_broker_forgets_a_topic_with_its_last_replica() -> None:
    broker = Broker()
    assert broker.obeys(lead_and_follow(OWN))
    roles = broker.commands.roles
    for request in (stop(OWN, partitions=(0,)), stop(OWN, deletes=True, partitions=(1,))):
        assert broker.obeys(request)
        assert roles.topics == {"orders": znodes.topic_id("orders")}
    assert broker.obeys(stop(OWN, deletes=True, partitions=(0,)))
    assert (roles.topics, roles.names, roles.partitions) == ({}, {}, {})
    assert broker.commands.known.versions == {}
    assert broker.obeys(stop(OWN, deletes=True, partitions=(0,)))


def test_the_settings_of_a_deleted_topic_are_forgotten() -> None:
    """A later topic of that name has its own."""
    broker = Broker()
    for leader, known in ((1, ["orders"]), (BEING_DELETED, [])):
        state = w.UpdateMetadataPartition(
            partition_index=0,
            controller_epoch=1,
            leader=leader,
            leader_epoch=0,
            isr=(1,),
            zk_version=0,
            replicas=(1,),
            offline_replicas=(),
        )
        topic = w.UpdateMetadataTopic(topic_name="orders", partition_states=(state,))
        assert broker.obeys(learn(OWN, (topic,)))
        metadata = broker.commands.metadata
        if known:
            metadata.settings["orders"] = {"min.insync.replicas": "2"}
        assert list(metadata.settings) == list(metadata.topics) == known
