"""One broker of the plane without a controller over a model of ZooKeeper, and the others that its
tests act for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from tests.clusters.reference.broker_bench import OTHER, BrokerBench

from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.broker import ClassicNode
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import LeadershipStarted

TOPIC = UUID(int=7)
KEY = (TOPIC, 0)
ENDPOINTS = (("CLIENT", "broker-2", 9092), ("REPLICATION", "broker-2", 9094))
Body = TypeVar("Body")


def bench(**more: str) -> BrokerBench:
    return BrokerBench(
        control_plane="classic",
        zookeeper_session_timeout_ms="3000",
        preferred_replica_time_ms="200",
        leader_election_wait_time_ms="1500",
        **more,
    )


def started(**more: str) -> BrokerBench:
    one = bench(**more)
    one.start()
    return one


def known(one: BrokerBench) -> ClassicNode:
    assert isinstance(one.core, ClassicNode)
    return one.core


def noted(one: BrokerBench, kind: type[Body]) -> list[Body]:
    return [body for body in one.notes if isinstance(body, kind)]


def topic(
    one: BrokerBench,
    replicas: tuple[int, ...],
    isr: znodes.Isr | None = None,
    *,
    name: str = "orders",
    topic_id: UUID = TOPIC,
) -> None:
    """A topic of one partition, as another broker creates it."""
    content = encode(znodes.Topic(id=topic_id, version=1))
    partition = Partition(
        topic_id=topic_id, index=0, replicas=replicas, isr=(), leader=-1, leader_epoch=0
    )
    found = [
        write
        if isr is None or not isinstance(write, zk.Create) or not write.path.endswith("/ISR")
        else zk.Create(write.path, encode(isr))
        for write in writes.partition_made(name, partition)
    ]
    made = (zk.Create(znodes.topic(name), content), *found)
    one.write(zk.Multi((*made, zk.Create(znodes.reassignments(name)))))


def other_broker(one: BrokerBench, node: int = 2, *, stopping: bool = False) -> None:
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1, stopping=stopping))
    one.write(zk.Create(znodes.broker(node), info, ephemeral=True))


def restarted(one: BrokerBench, node: int = 2) -> None:
    """Another process of a broker registers in place of the former one."""
    one.write(zk.Delete(znodes.broker(node)))
    other_broker(one, node)


def process(one: BrokerBench, node: int) -> int:
    """The registered process of a broker."""
    found = known(one).known.process_of(node)
    assert found is not None
    return found


def isr(members: tuple[int, ...], since: tuple[int, ...], epoch: int = 3) -> znodes.Isr:
    return znodes.Isr(epoch=epoch, leader=members[0], isr=members, since=since, version=1)


def stored_isr(one: BrokerBench, name: str = "orders") -> znodes.Isr:
    """The ISR that ZooKeeper has."""
    path = znodes.isr(name, 0)
    read = at(one, zk.GetData(path))
    assert isinstance(read, zk.Data)
    return decode(path, read.data, znodes.Isr)


def at(one: BrokerBench, request: zk.Request) -> zk.Answer:
    """ZooKeeper's answer to another client."""
    return one.tree.request(OTHER, request, 0)[0]


def exists(one: BrokerBench, path: str) -> bool:
    found = at(one, zk.Exists(path))
    assert isinstance(found, zk.Found)
    return found.stat is not None


def children(one: BrokerBench, path: str) -> tuple[str, ...]:
    listed = at(one, zk.GetChildren(path))
    assert isinstance(listed, zk.Children), listed
    return listed.names


def alone(replicas: tuple[int, ...] = (1,), others: int = 2, **more: str) -> BrokerBench:
    """A bench whose broker leads a partition as the only member of the ISR. Brokers 2 to `others`
    are live."""
    one = started(**more)
    for node in range(2, others + 1):
        other_broker(one, node)
    topic(one, replicas, isr((1,), (known(one).elections.process,)))
    one.passes(0.01)
    assert noted(one, LeadershipStarted)
    return one


def fetches(
    one: BrokerBench, node: int = 2, offset: int = 0, name: str = "orders"
) -> list[e.Reply | e.Close]:
    """A follower's fetch from this broker."""
    node_known = known(one).known
    topic_id = node_known.image.topics[name]
    partition = node_known.image.partitions[topic_id][0]
    asked = m.FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=partition.leader_epoch,
        last_fetched_epoch=partition.leader_epoch if offset else -1,
    )
    registration = node_known.registrations.get(node)
    request = m.FetchRequest(
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=(m.FetchTopic(topic_id=topic_id, partitions=(asked,)),),
        replica_state=m.ReplicaState(
            replica_id=node, replica_epoch=-1 if registration is None else registration.epoch
        ),
    )
    return one.asks("REPLICATION", request)


def once(
    matches: Callable[[zk.Request], bool], does: Callable[[zk.Request], zk.Answer | None]
) -> Callable[[zk.Request], zk.Answer | None]:
    """Meddles with the first request that matches."""
    left = [True]

    def meddles(request: zk.Request) -> zk.Answer | None:
        if left[0] and matches(request):
            left[0] = False
            return does(request)
        return None

    return meddles


def is_multi(request: zk.Request) -> bool:
    return isinstance(request, zk.Multi)
