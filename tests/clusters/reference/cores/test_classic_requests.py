"""What clients ask of a broker without a controller, while others change the cluster too."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.clusters.reference.broker_bench import OTHER, BrokerBench
from tests.clusters.reference.classic_bench import (
    TOPIC,
    at,
    exists,
    is_multi,
    known,
    once,
    other_broker,
    started,
    topic,
)

from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.administration import ATTEMPTS
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import TopicCommitted

REFUSED = zk.Done((zk.Refused(zk.Reason.BAD_VERSION),))


def create(*names: str) -> m.CreateTopicsRequest:
    wanted = tuple(
        m.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
    )
    return m.CreateTopicsRequest(topics=wanted, timeout=1000)


def asks(one: BrokerBench, request: m.Request) -> m.Response:
    """The one answer to a client's request."""
    (reply,) = one.asks("CLIENT", request)
    assert isinstance(reply, e.Reply), reply
    assert isinstance(reply.message, m.Response)
    return reply.message


def created(one: BrokerBench, *names: str) -> list[Error]:
    answer = asks(one, create(*names))
    assert isinstance(answer, m.CreateTopicsResponse)
    return [Error(each.error_code) for each in answer.topics]


def assigned(one: BrokerBench) -> list[tuple[int, ...]]:
    """The replicas of each partition of the topic, as stored."""
    found = []
    for index in range(2):
        path = znodes.replicas("orders", index)
        read = at(one, zk.GetData(path))
        assert isinstance(read, zk.Data)
        found.append(decode(path, read.data, znodes.Assigned).replicas)
    return found


def is_listing(request: zk.Request) -> bool:
    return request == zk.GetChildren(znodes.TOPICS, watch=True)


def multis(one: BrokerBench) -> int:
    return sum(map(is_multi, one.asked))


# ----------------------------------------------------------------------------------------- creation


def test_a_created_topic_is_known_before_the_answer() -> None:
    one = started()
    assert created(one, "orders") == [Error.NONE]
    assert exists(one, znodes.isr("orders", 0))
    replied = next(n for n, each in enumerate(one.effects) if isinstance(each, e.Reply))
    changes = [isinstance(x, e.Note) and isinstance(x.body, TopicCommitted) for x in one.effects]
    assert any(changes[:replied])
    one.passes(0.1)
    assert [each.leading for each in known(one).data.replicas.all()] == [True]


def test_a_decision_that_changes_nothing_is_answered_without_a_transaction() -> None:
    one = started()
    topic(one, (1,))
    one.passes(0.1)
    before = multis(one)
    assert created(one, "orders") == [Error.TOPIC_ALREADY_EXISTS]
    assert multis(one) == before


def test_a_topic_that_another_broker_creates_first_exists() -> None:
    one = started()

    def other(_: zk.Request) -> None:
        topic(one, (1,))

    one.meddles = once(is_multi, other)
    assert created(one, "orders") == [Error.TOPIC_ALREADY_EXISTS]
    assert known(one).known.image.topics["orders"] == TOPIC


def asks_as_broker_2_goes(one: BrokerBench, request: m.Request) -> None:
    """Asks for a change; broker 2 goes just before it is stored."""

    def goes(_: zk.Request) -> None:
        one.write(zk.Delete(znodes.broker(2)))

    one.meddles = once(is_multi, goes)
    asks(one, request)


def test_a_topic_is_placed_anew_if_a_broker_goes_before_it_is_stored() -> None:
    one = started()
    other_broker(one)
    both = m.CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    asks_as_broker_2_goes(one, m.CreateTopicsRequest(topics=(both,), timeout=1000))
    assert assigned(one) == [(1,), (1,)]


def test_partitions_are_placed_anew_if_a_broker_goes_before_they_are_stored() -> None:
    one = started()
    other_broker(one)
    created(one, "orders")
    more = a.CreatePartitionsTopic(name="orders", count=2)
    asks_as_broker_2_goes(one, a.CreatePartitionsRequest(topics=(more,), timeout=1000))
    assert assigned(one) == [(1,), (1,)]


def test_a_decision_that_is_always_overtaken_is_refused_in_the_end() -> None:
    one = started()
    one.meddles = lambda request: REFUSED if is_multi(request) else None
    assert created(one, "orders") == [Error.NOT_CONTROLLER]
    assert multis(one) == ATTEMPTS


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_transaction_without_an_answer_may_be_stored(carried_out: bool) -> None:
    one = started()

    def lost(request: zk.Request) -> zk.Answer:
        if carried_out:
            one.carries_out(request)
        return zk.Unknown()

    one.meddles = once(is_multi, lost)
    assert created(one, "orders") == [Error.REQUEST_TIMED_OUT]
    assert exists(one, znodes.topic("orders")) is carried_out


def test_a_connection_that_is_lost_under_a_read_stores_nothing() -> None:
    one = started()
    one.meddles = once(is_listing, lambda _: zk.Unknown())
    assert created(one, "orders") == [Error.NOT_CONTROLLER]
    assert multis(one) == 0


def test_a_connection_that_is_lost_after_a_refusal_stores_nothing() -> None:
    one = started()
    refuses = once(is_multi, lambda _: REFUSED)

    def meddles(request: zk.Request) -> zk.Answer | None:
        return zk.Unknown() if multis(one) and is_listing(request) else refuses(request)

    one.meddles = meddles
    assert created(one, "orders") == [Error.NOT_CONTROLLER]


def test_a_connection_that_is_lost_after_the_transaction_leaves_it_stored() -> None:
    """NOT_CONTROLLER would say that nothing was done."""
    one = started()

    def meddles(request: zk.Request) -> zk.Answer | None:
        return zk.Unknown() if multis(one) and is_listing(request) else None

    one.meddles = meddles
    assert created(one, "orders") == [Error.REQUEST_TIMED_OUT]
    assert exists(one, znodes.topic("orders"))


def test_a_broker_without_a_connection_refuses_at_once() -> None:
    one = started()
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    before = len(one.asked)
    assert created(one, "orders") == [Error.NOT_CONTROLLER]
    assert len(one.asked) == before


def test_a_missing_list_of_brokers_is_named_and_the_request_refused() -> None:
    one = started()
    gone = zk.Refused(zk.Reason.NO_NODE)
    ids = zk.GetChildren(znodes.BROKER_IDS, watch=True)
    one.meddles = once(lambda request: request == ids, lambda _: gone)
    assert created(one, "orders") == [Error.NOT_CONTROLLER]
    assert one.reasons() == ["/brokers/ids is missing"]


def test_an_unreadable_topic_does_not_keep_others_from_being_created() -> None:
    one = started()
    topic(one, (1,), name="broken")
    one.tree.request(OTHER, zk.SetData(znodes.topic("broken"), b"{"), 0)
    assert created(one, "orders") == [Error.NONE]
    assert any("/brokers/topics/broken" in said for said in one.reasons())


def test_a_topic_that_goes_while_it_is_read_does_not_keep_others_from_being_created() -> None:
    one = started()
    ghost = zk.GetChildren(znodes.TOPICS)

    def listed(request: zk.Request) -> zk.Answer:
        answer = one.carries_out(request)
        assert isinstance(answer, zk.Children)
        return zk.Children((*answer.names, "ghost"), answer.stat)

    one.meddles = once(lambda request: request == ghost, listed)
    assert created(one, "orders") == [Error.NONE]


def test_topics_of_one_broker_have_ids_of_their_own() -> None:
    one = started()
    assert created(one, "orders", "refunds") == [Error.NONE, Error.NONE]
    assert created(one, "later") == [Error.NONE]
    first = known(one).known.image.topics["later"]
    one.write(zk.Multi(writes.transaction(known(one).known, (deletion("later", first),))))
    one.passes(1)
    assert not exists(one, znodes.topic("later"))
    assert created(one, "later") == [Error.NONE]
    assert known(one).known.image.topics["later"] != first


def deletion(name: str, topic_id: UUID) -> r.TopicRecord:
    return r.TopicRecord(name=name, topic_id=topic_id, deleting=True)


# ------------------------------------------------------------------------------------ what is read


def test_a_decision_is_made_upon_the_cluster_as_it_is_now() -> None:
    """Also if no watch has fired for the change yet."""
    one = started()
    topic(one, (1,))
    one.passes(0.1)
    other_broker(one)
    assigned = encode(znodes.Assigned(replicas=(2, 1), version=1))
    one.tree.request(OTHER, zk.SetData(znodes.replicas("orders", 0), assigned), 0)
    asked = a.ListPartitionReassignmentsRequest(timeout=1000, topics=None)
    assert isinstance(asks(one, asked), a.ListPartitionReassignmentsResponse)
    partition = known(one).known.partition((TOPIC, 0))
    assert partition is not None
    assert partition.replicas == (2, 1)


def alter(value: str, name: str = "", kind: int = 4) -> a.IncrementalAlterConfigsRequest:
    """Sets min.insync.replicas of all brokers (4), or of a topic (2)."""
    config = a.AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
    resource = a.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(config,))
    return a.IncrementalAlterConfigsRequest(resources=(resource,))


def altered(one: BrokerBench, request: a.IncrementalAlterConfigsRequest) -> Error:
    answer = asks(one, request)
    assert isinstance(answer, a.IncrementalAlterConfigsResponse)
    (each,) = answer.responses
    return Error(each.error_code)


def broker_settings(one: BrokerBench) -> dict[str, str]:
    read = at(one, zk.GetData(znodes.BROKERS))
    assert isinstance(read, zk.Data)
    return dict(decode(znodes.BROKERS, read.data, znodes.BrokerSettings).config)


def test_settings_of_all_brokers_are_stored_over_those_of_others() -> None:
    one = started()
    assert altered(one, alter("1")) is Error.NONE
    assert altered(one, alter("2")) is Error.NONE
    kept = znodes.BrokerSettings(version=1, config={"of.another.release": "5"})
    one.write(zk.SetData(znodes.BROKERS, encode(kept)))
    assert altered(one, alter("3")) is Error.NONE
    assert broker_settings(one) == {"min.insync.replicas": "3", "of.another.release": "5"}


def test_settings_of_a_topic_are_stored_over_those_of_others() -> None:
    one = started()
    topic(one, (1,))
    one.passes(0.1)
    assert altered(one, alter("1", "orders", 2)) is Error.NONE
    content = znodes.Topic(id=TOPIC, version=1, config={"retention.bytes": "5"})
    one.write(zk.SetData(znodes.topic("orders"), encode(content)))
    assert altered(one, alter("2", "orders", 2)) is Error.NONE
    read = at(one, zk.GetData(znodes.topic("orders")))
    assert isinstance(read, zk.Data)
    stored = decode(znodes.topic("orders"), read.data, znodes.Topic)
    assert stored.config == {"min.insync.replicas": "2", "retention.bytes": "5"}
    assert not stored.deleting
