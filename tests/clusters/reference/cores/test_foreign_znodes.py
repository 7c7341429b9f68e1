"""Znodes that another client wrote, damaged or removed: the controller logs which, and keeps
running."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeVar

import pytest

from fencepost_clusters.reference.core.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from fencepost_clusters.reference.core.node.effects import Note
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.controller.election import Won
from fencepost_clusters.reference.legacy.core.controller.store import Deposed, Occupied, Store
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_clusters.zookeeper.simulation.tree import Tree
from fencepost_kafka import ZnodeUnreadable

Result = TypeVar("Result")
ME, OTHER = 1, 2


class Bench:
    """A controller's store over a model of ZooKeeper, which has `orders` and `refunds`."""

    def __init__(self) -> None:
        self.tree = Tree()
        for session in (ME, OTHER):
            self.tree.begin(session, 30_000, 0)
        for path in znodes.PERSISTENT:
            self.write(zk.Create(path))
        self.write(zk.Create(znodes.CONTROLLER_EPOCH, b"1"))
        self.out = Outbox()
        for name in ("orders", "refunds"):
            self.run(self.store().carry_out(lambda name=name: made(name)))

    def store(self) -> Store:
        """The store of a new term."""
        return Store(Won(1, 0, first=False), self.out)

    def read(self) -> Store:
        """The store of a new term that has read the state."""
        store = self.store()
        self.run(store.read())
        return store

    def write(self, request: zk.Request) -> None:
        """Another client's request."""
        answer, _ = self.tree.request(OTHER, request, 0)
        assert not isinstance(answer, zk.Refused), answer

    def run(self, steps: Generator[zk.Request, zk.Answer, Result]) -> Result:
        try:
            request = next(steps)
            while True:
                request = steps.send(self.tree.request(ME, request, 0)[0])
        except StopIteration as end:
            return end.value

    def reasons(self) -> list[str]:
        bodies = [one.body for one in self.out.drain() if isinstance(one, Note)]
        return [body.reason for body in bodies if isinstance(body, ZnodeUnreadable)]


def made(name: str) -> tuple[r.Record, ...]:
    partition = r.PartitionRecord(
        partition_id=0,
        topic_id=znodes.topic_id(name),
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=0,
    )
    return (r.TopicRecord(name=name, topic_id=znodes.topic_id(name)), partition)


@pytest.fixture
def bench() -> Bench:
    return Bench()


STATE = znodes.state("orders", 0)
ODD_KEY = b'{"partitions": {"first": [1]}, "version": 3}'


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (zk.SetData(STATE, b"{"), f"{STATE} has no valid PartitionState"),
        (zk.SetData(znodes.topic("orders"), b"\xff"), "/orders has no valid Assignment"),
        (
            zk.SetData(znodes.topic("orders"), ODD_KEY),
            "a partition 'first', which is no number",
        ),
        (zk.SetData(znodes.config("orders"), b"[]"), "/orders has no valid Config"),
        (zk.Delete(STATE), f"{STATE} is missing"),
        (zk.Delete(znodes.config("orders")), "/orders is missing"),
    ],
    ids=["state", "assignment", "partition", "config", "no-state", "no-config"],
)
def test_a_topic_with_an_unreadable_znode_is_left_as_it_is(
    bench: Bench, broken: zk.Request, says: str
) -> None:
    bench.write(broken)
    store = bench.read()
    assert set(store.image.topics) == {"refunds"}
    (reason,) = bench.reasons()
    assert says in reason


def test_a_topic_whose_znode_exists_unknown_to_the_controller_cannot_be_created(
    bench: Bench,
) -> None:
    bench.write(zk.SetData(znodes.topic("orders"), b"{"))
    store = bench.read()
    with pytest.raises(Occupied, match=znodes.topic("orders")):
        bench.run(store.carry_out(lambda: made("orders")))


def changed(store: Store) -> Callable[[], tuple[r.Record, ...]]:
    return lambda: (made("orders")[1],)


def deleted(store: Store) -> Callable[[], tuple[r.Record, ...]]:
    return lambda: (r.DeleteTopicRecord(name=znodes.topic_id("orders")),)


@pytest.mark.parametrize("decide", [changed, deleted])
def test_a_term_ends_where_a_znode_that_it_knows_is_gone(
    bench: Bench, decide: Callable[[Store], Callable[[], tuple[r.Record, ...]]]
) -> None:
    store = bench.read()
    if decide is deleted:
        bench.write(zk.Create(znodes.deletion("orders")))
    bench.write(zk.Delete(STATE))
    with pytest.raises(Deposed):
        bench.run(store.carry_out(decide(store)))
    assert bench.reasons() == [f"{STATE} was changed by another client: no such node"]


def test_the_next_term_knows_a_reassignment_under_way_and_one_that_is_over(bench: Bench) -> None:
    """RP-20."""
    for adding, removing in (((3,), (2,)), ((), ())):
        store = bench.read()
        moving = replace(
            made("orders")[1],
            replicas=(1, 2, 3),
            adding_replicas=adding,
            removing_replicas=removing,
        )
        bench.run(store.carry_out(lambda record=moving: (record,)))
        found = bench.read().image.partitions[znodes.topic_id("orders")][0]
        assert (found.replicas, found.adding, found.removing) == ((1, 2, 3), adding, removing)


def test_a_controller_knows_the_versions_of_what_it_wrote(bench: Bench) -> None:
    """A LeaderAndIsr names the version; a broker ignores one that is not newer."""
    store = bench.read()
    bench.run(store.carry_out(lambda: made("returns")))
    for _ in range(2):
        bench.run(store.carry_out(changed(store)))
        read = bench.read().stored.versions
        assert {path: store.stored.versions[path] for path in read} == read
    assert store.stored.versions[STATE] == 2


def test_a_state_that_a_leader_has_written_counts_once_it_differs(bench: Bench) -> None:
    """HB-22."""
    store = bench.read()
    for isr, differs in (((1,), True), ((1,), False), ((1, 2), True)):
        state = encode(znodes.PartitionState(1, 0, isr, 1))
        bench.write(zk.SetData(STATE, state))
        found = bench.run(store.refresh(STATE))
        assert (found is not None) is differs
        assert found is None or found.isr == isr
        assert bench.run(store.refresh(STATE)) is None


def test_a_term_ends_where_a_leader_has_stored_an_unreadable_state(bench: Bench) -> None:
    store = bench.read()
    bench.write(zk.SetData(STATE, b"{"))
    with pytest.raises(Deposed):
        bench.run(store.carry_out(changed(store)))
    (reason,) = bench.reasons()
    assert f"{STATE} has no valid PartitionState" in reason


def test_a_controller_whose_epoch_is_over_stores_nothing(bench: Bench) -> None:
    """BE-08: another controller has begun a term."""
    store = bench.read()
    bench.write(zk.SetData(znodes.CONTROLLER_EPOCH, b"2"))
    for attempt in (store.carry_out(changed(store)), store.confirm()):
        with pytest.raises(Deposed):
            bench.run(attempt)


def test_a_term_that_has_ended_does_not_decide_again(bench: Bench) -> None:
    store = bench.read()
    bench.write(zk.SetData(STATE, encode(znodes.PartitionState(1, 0, (1,), 1))))
    store.over = True
    with pytest.raises(Deposed):
        bench.run(store.carry_out(changed(store)))


def setting(name: str, value: str) -> tuple[r.Record, ...]:
    return (
        r.ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name="orders", name=name, value=value
        ),
    )


def test_a_setting_is_stored_over_that_of_another_client(bench: Bench) -> None:
    store = bench.read()
    other = encode(znodes.Config({"retention.ms": "1"}))
    bench.write(zk.SetData(znodes.config("orders"), other))
    bench.run(store.carry_out(lambda: setting("min.insync.replicas", "2")))
    stored = bench.tree.request(ME, zk.GetData(znodes.config("orders")), 0)[0]
    assert isinstance(stored, zk.Data)
    content = decode("", stored.data, znodes.Config)
    assert content.config["min.insync.replicas"] == "2"


def test_a_term_knows_the_settings_of_all_brokers(bench: Bench) -> None:
    wanted = {"min.insync.replicas": "2"}
    bench.write(zk.Create(znodes.BROKER_CONFIG, encode(znodes.Config(wanted))))
    assert bench.read().image.broker_settings == wanted


def test_unreadable_settings_of_all_brokers_are_named_and_written_over(bench: Bench) -> None:
    bench.write(zk.Create(znodes.BROKER_CONFIG, b"["))
    store = bench.read()
    assert store.image.broker_settings == {}
    (reason,) = bench.reasons()
    assert znodes.BROKER_CONFIG in reason
    record = r.ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name="", name="min.insync.replicas", value="2"
    )
    bench.run(store.carry_out(lambda: (record,)))
    assert bench.read().image.broker_settings == {"min.insync.replicas": "2"}


def test_a_controller_forgets_the_versions_of_a_deleted_topic(bench: Bench) -> None:
    store = bench.read()
    before = dict(store.stored.versions)
    bench.run(store.carry_out(lambda: made("returns")))
    assert store.stored.versions.keys() > before.keys()
    topic_id = znodes.topic_id("returns")
    mark = r.TopicRecord(name="returns", topic_id=topic_id, deleting=True)
    bench.run(store.carry_out(lambda: (mark,)))
    bench.run(store.carry_out(lambda: (r.DeleteTopicRecord(name=topic_id),)))
    assert store.stored.versions == before


def test_the_state_of_a_new_partition_is_watched(bench: Bench) -> None:
    """A leader of the protocol before heartbeats writes its ISR itself (HB-22)."""
    state = encode(znodes.PartitionState(1, 0, (1,), 1))
    fired = bench.tree.request(OTHER, zk.SetData(STATE, state), 0)[1]
    assert [one.session for one in fired] == [ME]
