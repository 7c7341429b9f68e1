"""Events from znodes, read from the model of ZooKeeper by watches, as a session would."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field

import pytest
from msgspec import Struct

from fencepost import EvidenceMissed
from fencepost_clusters.apache_kafka.zookeeper_mode.znodes import IDS, TOPICS, Znodes, state_path
from fencepost_clusters.zookeeper.client.port import (
    Create,
    Created,
    Delete,
    Multi,
    Refused,
    Request,
    SetData,
    Unsent,
)
from fencepost_clusters.zookeeper.simulation.tree import Tree
from fencepost_kafka import BrokerCommitted, PartitionCommitted, TopicCommitted

KAFKA, OBSERVER = 1, 2


@dataclass
class Scene:
    """A tree, Kafka's session that writes, and the observer's session."""

    tree: Tree = field(default_factory=Tree)
    znodes: Znodes = field(default_factory=Znodes)
    bodies: list[Struct] = field(default_factory=list)
    waiting: deque[Request] = field(default_factory=deque)

    def __post_init__(self) -> None:
        for session in (KAFKA, OBSERVER):
            self.tree.begin(session, 6000, 0)
        self.waiting.extend(self.znodes.begin())

    def write(self, *requests: Request) -> None:
        """Carries them out one by one; the watches that fire are seen, and read later."""
        for request in requests:
            answer, fired = self.tree.request(KAFKA, request, 0)
            assert not isinstance(answer, Refused | Unsent), answer
            for one in fired:
                assert one.session == OBSERVER
                self.waiting.extend(self.znodes.fired(one.fired))

    def read(self) -> list[Struct]:
        """Reads until no request is left; returns the events."""
        before = len(self.bodies)
        while self.waiting:
            request = self.waiting.popleft()
            answer, _ = self.tree.request(OBSERVER, request, 0)
            asked, bodies = self.znodes.answered(request, answer)
            self.waiting.extend(asked)
            self.bodies += bodies
        return self.bodies[before:]

    def reconnect(self) -> None:
        """The observer's watches are lost, and it connects again."""
        self.tree.disconnect(OBSERVER)
        self.waiting.clear()
        self.waiting.extend(self.znodes.begin())


ROOTS = (Create("/brokers"), Create("/brokers/ids"), Create("/brokers/topics"))


def state(leader: int, epoch: int, isr: list[int]) -> bytes:
    return json.dumps({"leader": leader, "leader_epoch": epoch, "isr": isr, "version": 1}).encode()


def topic(name: str) -> Request:
    data = json.dumps({"version": 1, "partitions": {"0": [1, 2]}}).encode()
    return Create(f"/brokers/topics/{name}", data)


def partition(name: str) -> tuple[Request, ...]:
    """The controller makes a partition's state after its topic."""
    path = f"/brokers/topics/{name}/partitions"
    return (
        Create(path),
        Create(f"{path}/0"),
        Create(state_path(name, 0), state(1, 0, [1, 2])),
    )


def committed(zxid: int, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> Struct:
    """The event of the state of `orders-1`, partition 0."""
    return PartitionCommitted(
        offset=zxid,
        topic="orders-1",
        partition=0,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        replicas=(1, 2),
    )


def test_a_znode_that_does_not_exist_yet_is_watched() -> None:
    scene = Scene()
    assert scene.read() == []
    scene.write(*ROOTS)
    assert scene.read() == []
    scene.write(Create("/brokers/ids/1", b"{}", ephemeral=True))
    (registered,) = scene.read()
    assert isinstance(registered, BrokerCommitted)
    assert (registered.broker_id, registered.fenced) == (1, False)
    assert registered.offset == registered.broker_epoch == scene.tree.zxid


def test_a_registration_that_was_replaced_at_once_has_another_epoch() -> None:
    scene = Scene()
    scene.write(*ROOTS, Create("/brokers/ids/1", ephemeral=True))
    (first,) = scene.read()
    scene.write(Multi((Delete("/brokers/ids/1"), Create("/brokers/ids/1", ephemeral=True))))
    (second,) = scene.read()
    assert isinstance(first, BrokerCommitted)
    assert isinstance(second, BrokerCommitted)
    assert second.broker_epoch > first.broker_epoch
    scene.write(Delete("/brokers/ids/1"))
    (gone,) = scene.read()
    assert gone == BrokerCommitted(
        offset=scene.tree.zxid,
        broker_id=1,
        broker_epoch=second.broker_epoch,
        fenced=True,
        incarnation=second.incarnation,
    )


def test_a_topic_and_the_states_of_its_partitions() -> None:
    scene = Scene()
    scene.write(*ROOTS, topic("orders-1"))
    (created,) = scene.read()
    assert isinstance(created, TopicCommitted)
    assert (created.topic, created.topic_id, created.deleted) == ("orders-1", "orders-1", False)
    scene.write(*partition("orders-1"))
    (began,) = scene.read()
    assert began == committed(scene.tree.zxid, leader=1, leader_epoch=0, isr=(1, 2))
    scene.write(SetData(state_path("orders-1", 0), state(2, 1, [2])))
    (moved,) = scene.read()
    assert moved == committed(scene.tree.zxid, leader=2, leader_epoch=1, isr=(2,))
    path = "/brokers/topics/orders-1"
    below = (state_path("orders-1", 0), f"{path}/partitions/0", f"{path}/partitions")
    scene.write(*(Delete(one) for one in (*below, path)))
    (deleted,) = scene.read()
    assert isinstance(deleted, TopicCommitted)
    assert (deleted.topic, deleted.deleted) == ("orders-1", True)


def test_a_state_that_was_replaced_before_it_was_read_is_missed() -> None:
    scene = Scene()
    scene.write(*ROOTS, topic("orders"), *partition("orders"))
    scene.read()
    path = state_path("orders", 0)
    scene.write(SetData(path, state(2, 1, [2])), SetData(path, state(1, 2, [1])))
    missed, now = scene.read()
    assert missed == EvidenceMissed(
        what="1 states of orders-0 were replaced before they were read",
        kinds=("metadata.partition",),
    )
    assert isinstance(now, PartitionCommitted)
    assert (now.leader, now.leader_epoch, now.skipped) == (1, 2, 1)


def test_after_a_lost_connection_all_is_read_and_watched_again() -> None:
    scene = Scene()
    scene.write(*ROOTS, topic("orders"), *partition("orders"))
    scene.read()
    scene.tree.disconnect(OBSERVER)
    scene.write(SetData(state_path("orders", 0), state(2, 1, [2])), topic("bills"))
    scene.reconnect()
    bodies = scene.read()
    assert [type(one) for one in bodies] == [PartitionCommitted, TopicCommitted]
    scene.write(SetData(state_path("orders", 0), state(1, 2, [1, 2])))
    (again,) = scene.read()
    assert isinstance(again, PartitionCommitted)


def test_a_lost_answer_makes_no_event() -> None:
    assert Znodes().answered(Create("/x"), Unsent()) == ((), ())
    assert Znodes().answered(Create("/x"), Created("/x", None)) == ((), ())


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (f"{IDS}/one", b"{}"),
        (f"{TOPICS}/refunds", b"{"),
        (f"{TOPICS}/refunds", b'{"partitions": {"first": [1]}}'),
        (state_path("orders", 0), b"{"),
    ],
    ids=["broker", "topic", "partition", "state"],
)
def test_a_znode_of_another_process_is_named_and_the_others_are_read(
    path: str, data: bytes
) -> None:
    scene = Scene()
    scene.write(*ROOTS, topic("orders"), *partition("orders"))
    scene.read()
    state = path.endswith("/state")
    scene.write(SetData(path, data) if state else Create(path, data))
    (missed,) = scene.read()
    assert isinstance(missed, EvidenceMissed)
    assert missed.what.startswith(f"{path} could not be read: ")
    assert missed.kinds
    scene.write(Create(f"{IDS}/3", b"{}"))
    assert [body.broker_id for body in scene.read() if isinstance(body, BrokerCommitted)] == [3]
