"""Pure decisions: placement, settings, topics, the ISR arithmetic."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest

from fencepost import Shape, UsageError
from fencepost_clusters.reference.classic import defects as without_controller
from fencepost_clusters.reference.cluster import ReferenceQuorum
from fencepost_clusters.reference.core.cluster import (
    configs,
    leadership,
    placement,
    serving,
    topics,
)
from fencepost_clusters.reference.core.cluster.image import BROKER_RESOURCE as BROKERS
from fencepost_clusters.reference.core.cluster.image import TOPIC_RESOURCE, Image
from fencepost_clusters.reference.core.cluster.policies import (
    ElectionPolicies,
    PlacementPolicies,
    ServingPolicies,
)
from fencepost_clusters.reference.core.node import settings
from fencepost_clusters.reference.core.quorum.controller import isr_changes
from fencepost_clusters.reference.core.quorum.controller.policies import RegistrationPolicies
from fencepost_clusters.reference.defects.catalogue import DEFECTS, POLICY_DEFECTS
from fencepost_clusters.reference.legacy import defects as over_zookeeper
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

TOPIC = uuid.UUID(int=9)
BROKER = {
    "process.roles": "broker",
    "broker.id": "1",
    "controller.connect": "101@controller-1:9093,102@controller-2:9093",
}


def image(live: tuple[int, ...] = (1, 2, 3), fenced: tuple[int, ...] = ()) -> Image:
    built = Image()
    for offset, broker in enumerate((*live, *fenced)):
        built.replay(
            r.BrokerRecord(
                broker_id=broker,
                broker_epoch=offset,
                end_points=(),
                fenced=broker in fenced,
                incarnation_id=uuid.UUID(int=broker),
            ),
            offset,
        )
    return built


def with_partition(built: Image, isr: tuple[int, ...], leader: int) -> Image:
    built.replay(r.TopicRecord(name="orders", topic_id=TOPIC), built.offset)
    record = r.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3), isr=isr, leader=leader, leader_epoch=4
    )
    built.replay(record, built.offset)
    return built


@pytest.mark.parametrize("brokers", range(2, 8))
def test_placement_puts_no_two_replicas_on_one_broker_and_spreads_them(brokers: int) -> None:
    placed = placement.place(range(1, brokers + 1), brokers * (brokers - 1), 2)
    assert all(len(set(replicas)) == len(replicas) for replicas in placed)
    preferred = Counter(replicas[0] for replicas in placed)
    assert set(preferred.values()) == {brokers - 1}
    for broker in range(1, brokers + 1):  # a failed broker's load goes to all others alike
        eligible_leaders = Counter(replicas[1] for replicas in placed if replicas[0] == broker)
        assert set(eligible_leaders.values()) == {1}


def test_a_gone_broker_leaves_isrs_but_as_the_last_member() -> None:
    (change,) = leadership.on_broker_gone(with_partition(image(), (1, 2), 1), 1, ElectionPolicies())
    assert isinstance(change, r.IsrChangeRecord)
    assert (change.isr, change.leader, change.leader_epoch) == ((2,), 2, 5)
    (last,) = leadership.on_broker_gone(with_partition(image(), (1,), 1), 1, ElectionPolicies())
    assert isinstance(last, r.IsrChangeRecord)
    assert (last.isr, last.leader) == ((1,), -1)


def test_a_gone_leader_that_is_not_in_the_isr_is_followed_by_a_member() -> None:
    """As another program may have written in ZooKeeper."""
    (change,) = leadership.on_broker_gone(with_partition(image(), (2, 3), 1), 1, ElectionPolicies())
    assert isinstance(change, r.IsrChangeRecord)
    assert (change.isr, change.leader) == ((2, 3), 2)


@pytest.mark.parametrize(
    ("isr", "leader", "back", "leads"),
    [
        ((1,), -1, 1, True),
        ((1,), -1, 2, False),
        ((1, 2), 1, 2, False),
        ((2, 3), 2, 1, False),
        ((0, 2), 0, 2, False),
    ],
    ids=["the last member", "no member", "a follower", "a stranger to the ISR", "led by 0"],
)
def test_a_broker_that_is_back_leads_only_what_no_other_one_can_lead(
    isr: tuple[int, ...], leader: int, back: int, leads: bool
) -> None:
    """RP-06, RP-29: a replica outside the ISR may lack committed messages."""
    built = with_partition(image(), isr, leader)
    changes = leadership.on_broker_back(built, back, ElectionPolicies())
    led = [(one.isr, one.leader) for one in changes if isinstance(one, r.IsrChangeRecord)]
    assert led == ([(isr, back)] if leads else [])


def test_leadership_goes_to_no_fenced_member() -> None:
    built = with_partition(image(live=(1, 3), fenced=(2,)), (1, 2, 3), 1)
    (change,) = leadership.on_broker_gone(built, 1, ElectionPolicies())
    assert isinstance(change, r.IsrChangeRecord)
    assert change.leader == 3


@pytest.mark.parametrize(
    ("members", "epoch", "asker", "error"),
    [
        (((1, 0), (2, 1)), 4, 1, Error.NONE),
        (((1, 0), (2, 1)), 3, 1, Error.FENCED_LEADER_EPOCH),
        (((1, 0), (2, 1)), 4, 2, Error.NOT_LEADER_OR_FOLLOWER),
        (((2, 1),), 4, 1, Error.INVALID_REQUEST),  # without the leader
        ((), 4, 1, Error.INVALID_REQUEST),
        (((1, 0), (4, 0)), 4, 1, Error.INVALID_REQUEST),  # no replica
        (((1, 0), (3, 2)), 4, 1, Error.INELIGIBLE_REPLICA),  # fenced
        (((1, 0), (2, 0)), 4, 1, Error.INELIGIBLE_REPLICA),  # an incarnation that is gone
    ],
)
def test_an_isr_change_is_judged(
    members: tuple[tuple[int, int], ...], epoch: int, asker: int, error: Error
) -> None:
    built = with_partition(image(live=(1, 2), fenced=(3,)), (1,), 1)
    asked = m.AlterPartitionData(
        partition_index=0,
        leader_epoch=epoch,
        new_isr_with_epochs=tuple(m.IsrMember(broker_id=b, broker_epoch=e) for b, e in members),
    )
    topic = m.AlterPartitionTopic(topic_id=TOPIC, partitions=(asked,))
    got, record = isr_changes.alter_isr(
        built,
        asker,
        topic,
        asked,
        election=ElectionPolicies(),
        registration=RegistrationPolicies(),
    )
    assert got is error
    assert (record is not None) == (error is Error.NONE)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (m.CreatableTopic(name="orders", num_partitions=3, replication_factor=3), Error.NONE),
        (
            m.CreatableTopic(name="orders", num_partitions=3, replication_factor=4),
            Error.INVALID_REPLICATION_FACTOR,
        ),
        (
            m.CreatableTopic(name="orders", num_partitions=0, replication_factor=3),
            Error.INVALID_PARTITIONS,
        ),
        (
            m.CreatableTopic(name="or/ders", num_partitions=1, replication_factor=1),
            Error.INVALID_TOPIC_EXCEPTION,
        ),
        (
            m.CreatableTopic(name="__kafka_metadata", num_partitions=1, replication_factor=1),
            Error.INVALID_TOPIC_EXCEPTION,
        ),
        (
            m.CreatableTopic(
                name="o",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=(m.CreatableTopicConfig(name="cleanup.policy", value="compact"),),
            ),
            Error.INVALID_CONFIG,
        ),
        (
            m.CreatableTopic(
                name="o",
                num_partitions=-1,
                replication_factor=-1,
                assignments=(m.CreatableReplicaAssignment(partition_index=0, broker_ids=(1, 1)),),
            ),
            Error.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_a_topic_is_created_or_refused_with_kafkas_error(
    topic: m.CreatableTopic, error: Error
) -> None:
    records, result = topics.create(
        image(), topic, settings.read(BROKER), TOPIC, PlacementPolicies()
    )
    assert result.error_code == error
    assert bool(records) == (error is Error.NONE)


def test_a_topic_is_created_with_its_settings() -> None:
    own = (m.CreatableTopicConfig(name="retention.ms", value="5000"),)
    asked = m.CreatableTopic(name="orders", num_partitions=1, replication_factor=1, configs=own)
    records, result = topics.create(
        image(), asked, settings.read(BROKER), TOPIC, PlacementPolicies()
    )
    stored = [one for one in records if isinstance(one, r.ConfigRecord)]
    assert stored == [
        r.ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name="orders", name="retention.ms", value="5000"
        )
    ]
    assert [(one.name, one.value) for one in result.configs] == [("retention.ms", "5000")]


@pytest.mark.parametrize(
    ("partitions", "replicas", "error"),
    [
        (topics.MAX_PARTITIONS, 1, Error.NONE),
        (topics.MAX_PARTITIONS + 1, 1, Error.INVALID_PARTITIONS),
        (0, 1, Error.INVALID_PARTITIONS),
        (1, 3, Error.NONE),
        (1, 4, Error.INVALID_REPLICATION_FACTOR),
        (1, 0, Error.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_topic_has_partitions_up_to_a_limit_and_replicas_on_as_many_brokers_as_are_live(
    partitions: int, replicas: int, error: Error
) -> None:
    asked = m.CreatableTopic(name="orders", num_partitions=partitions, replication_factor=replicas)
    records, result = topics.create(
        image(), asked, settings.read(BROKER), TOPIC, PlacementPolicies()
    )
    assert result.error_code == error
    placed = sum(isinstance(one, r.PartitionRecord) for one in records)
    assert placed == (partitions if error is Error.NONE else 0)


@pytest.mark.parametrize(("live", "error"), [((1, 2, 3), 0), ((1, 2), 38)])
def test_new_partitions_need_as_many_live_brokers_as_they_have_replicas(
    live: tuple[int, ...], error: int
) -> None:
    fenced = tuple({1, 2, 3} - set(live))
    built = with_partition(image(live, fenced), isr=(1, 2), leader=1)
    asked = a.CreatePartitionsTopic(name="orders", count=2, assignments=None)
    records, result = topics.extend(built, asked, PlacementPolicies())
    assert result.error_code == error
    assert len(records) == (error == 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"process.roles": "zookeeper"}, "process.roles"),
        ({"process.roles": ""}, "process.roles"),
        ({"broker.id": "-1"}, "broker.id"),
        ({"broker.id": "101"}, "a controller's id"),
        ({"controller.connect": ""}, "names no controller"),
        ({"controller.connect": "controller-1"}, "id@host:port"),
        ({"controller.connect": "x,101@c:1,101@d:1"}, "id 101 twice"),
        ({"process.roles": "controller"}, "controller.id must be set"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "SASL mechanism"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users": "a"}, "name:password"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users": "a:b"}, "super.users"),
        ({"process.roles": "controller", "controller.id": "101"}, "controller.listeners"),
        ({"registration.lease.timeout.ms": "soon"}, "whole number"),
        ({"registration.heartbeat.interval.ms": "20000"}, "below the lease"),
        ({"controller.quorum.election.timeout.ms": "0"}, "must be at least 1"),
        ({"leader.imbalance.check.interval.ms": "0"}, "must be at least 1"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(change: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings.read({**BROKER, **change})


def test_kip_631_defaults() -> None:
    read = settings.read(BROKER)
    assert (read.heartbeat_ms, read.lease_ms) == (2000, 20000)


def test_a_shape_with_an_unknown_setting_or_defect_is_refused() -> None:
    system = ReferenceQuorum()
    with pytest.raises(UsageError, match=r"lease\.ms"):
        system.layout(Shape(settings={"lease.ms": "1"}))
    with pytest.raises(UsageError, match="no-such"):
        system.layout(Shape(defects=("no-such",)))


def leaves(policies: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every single policy by the path to it."""
    for part in fields(policies):  # type: ignore[arg-type]
        value = getattr(policies, part.name)
        if is_dataclass(value):
            yield from leaves(value, f"{path}{part.name}.")
        else:
            yield path + part.name, value


EVERY_DEFECT = (*POLICY_DEFECTS, *over_zookeeper.DEFECTS, *without_controller.DEFECTS)
SEVERAL = {"loser-still-counts": 6, "overwritten-fetch-counts": 2}
"""Which of two processes has an id is decided in several places, one before the other."""


@pytest.mark.parametrize("one", EVERY_DEFECT, ids=lambda one: one.defect.name)
def test_a_defect_replaces_one_policy(one: PolicyDefect) -> None:
    healthy = dict(leaves(Policies()))
    replaced = [path for path, value in leaves(one.replace(Policies())) if value != healthy[path]]
    assert len(replaced) == SEVERAL.get(one.defect.name, 1), replaced


def test_every_policy_is_replaced_by_a_defect() -> None:
    """Otherwise it need not be a policy."""
    healthy = dict(leaves(Policies()))
    replaced = {
        path
        for one in EVERY_DEFECT
        for path, value in leaves(one.replace(Policies()))
        if value != healthy[path]
    }
    assert replaced == set(healthy)


def test_names_of_defects_differ() -> None:
    assert len(DEFECTS) == 62
    assert len({one.defect.name for one in EVERY_DEFECT}) == len(EVERY_DEFECT)


@pytest.mark.parametrize(
    ("key_type", "error"),
    [(0, Error.NONE), (1, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)],
    ids=["group", "transaction"],
)
def test_a_broker_coordinates_groups_and_no_transactions(key_type: int, error: Error) -> None:
    built = Image()
    at = r.EndPoint(name="CLIENT", host="broker-1", port=9092)
    built.replay(
        r.BrokerRecord(
            broker_id=1,
            broker_epoch=0,
            end_points=(at,),
            fenced=False,
            incarnation_id=uuid.UUID(int=1),
        ),
        0,
    )
    asked = m.FindCoordinatorRequest(key="some", key_type=key_type)
    found = serving.find_coordinator(built, asked, 1)
    assert (found.error_code, found.port) == (error, 9092 if error is Error.NONE else -1)
    # Before it is registered, it has no address.
    assert serving.find_coordinator(Image(), asked, 1).error_code != Error.NONE


def named(built: Image, asked: m.MetadataRequestTopic) -> m.MetadataResponseTopic:
    """A topic in the answer to Metadata."""
    request = m.MetadataRequest(topics=(asked,))
    (topic,) = serving.metadata(built, request, 1, "fencepost", ServingPolicies()).topics
    return topic


def test_metadata_names_the_replicas_of_fenced_and_unknown_brokers_as_offline() -> None:
    built = with_partition(image(live=(1,), fenced=(2,)), isr=(1, 2), leader=1)
    (part,) = named(built, m.MetadataRequestTopic(name="orders")).partitions
    assert (part.replica_nodes, part.offline_replicas) == ((1, 2, 3), (2, 3))


@pytest.mark.parametrize(
    ("leader", "error"),
    [(1, Error.NONE), (0, Error.NONE), (-1, Error.LEADER_NOT_AVAILABLE)],
)
def test_metadata_tell_a_client_to_ask_again_for_a_partition_without_a_leader(
    leader: int, error: Error
) -> None:
    built = with_partition(image(live=(0, 1)), isr=(0, 1), leader=leader)
    (part,) = named(built, m.MetadataRequestTopic(name="orders")).partitions
    assert (part.leader_id, part.error_code) == (leader, error)


def test_metadata_names_a_topic_by_its_name_or_its_id() -> None:
    built = with_partition(image(), isr=(1, 2, 3), leader=1)
    by_name = named(built, m.MetadataRequestTopic(name="orders"))
    assert (by_name.name, by_name.topic_id, len(by_name.partitions)) == ("orders", TOPIC, 1)
    assert named(built, m.MetadataRequestTopic(name=None, topic_id=TOPIC)) == by_name
    nowhere = named(built, m.MetadataRequestTopic(name="nowhere"))
    assert (nowhere.error_code, nowhere.name) == (Error.UNKNOWN_TOPIC_OR_PARTITION, "nowhere")
    other = uuid.UUID(int=10)
    unknown = named(built, m.MetadataRequestTopic(name=None, topic_id=other))
    assert (unknown.error_code, unknown.topic_id) == (Error.UNKNOWN_TOPIC_ID, other)
    nameless = named(built, m.MetadataRequestTopic(name=None))
    assert nameless.error_code == Error.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a_b", Error.INVALID_TOPIC_EXCEPTION),
        ("a.b", Error.TOPIC_ALREADY_EXISTS),
        ("a.c", Error.NONE),
        ("ab", Error.NONE),
    ],
)
def test_a_name_that_differs_in_a_dot_or_an_underscore_alone_collides(
    name: str, error: Error
) -> None:
    """Both would be one name in the names of metrics."""
    built = image()
    built.replay(r.TopicRecord(name="a.b", topic_id=TOPIC), built.offset)
    asked = m.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    other = uuid.UUID(int=10)
    records, result = topics.create(built, asked, settings.read(BROKER), other, PlacementPolicies())
    assert result.error_code == error
    assert bool(records) == (error is Error.NONE)


def described(built: Image, kind: int, name: str) -> dict[str, tuple[str, int]]:
    """The value and the source of each setting of a resource."""
    resource = a.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    asked = a.DescribeConfigsRequest(resources=(resource,))
    (found,) = configs.describe(built, settings.read(BROKER), 1, asked).results
    return {one.name: (one.value or "", one.config_source) for one in found.configs}


def test_a_broker_shows_its_own_file_for_its_own_id_only() -> None:
    """Neither for another broker's, nor for a topic whose name is its id."""
    built = image()
    built.replay(r.TopicRecord(name="1", topic_id=TOPIC), built.offset)
    file = settings.read(BROKER)
    assert described(built, BROKERS, "1").keys() == file.numbers.keys()
    assert {source for _, source in described(built, TOPIC_RESOURCE, "1").values()} != {
        configs.OF_FILE
    }
    other = a.DescribeConfigsResource(
        resource_type=BROKERS, resource_name="2", configuration_keys=None
    )
    asked = a.DescribeConfigsRequest(resources=(other,))
    (found,) = configs.describe(built, file, 1, asked).results
    assert (found.error_code, found.configs) == (Error.INVALID_REQUEST, ())


def test_a_topic_shows_of_the_settings_of_all_brokers_those_that_a_topic_can_have() -> None:
    built = with_partition(image(), isr=(1,), leader=1)
    for name in ("min.insync.replicas", "log.cleaner.threads"):
        record = r.ConfigRecord(resource_type=BROKERS, resource_name="", name=name, value="2")
        built.replay(record, built.offset)
    of_brokers = ("2", configs.OF_BROKERS)
    shown = described(built, TOPIC_RESOURCE, "orders")
    assert shown["min.insync.replicas"] == of_brokers
    assert "log.cleaner.threads" not in shown
    assert described(built, BROKERS, "") == {
        "min.insync.replicas": of_brokers,
        "log.cleaner.threads": of_brokers,
    }


@pytest.mark.parametrize(("value", "source"), [("2", configs.OF_BROKERS), ("", configs.OF_FILE)])
def test_a_setting_without_a_value_is_as_one_that_was_not_changed(value: str, source: int) -> None:
    """As another program may have written in ZooKeeper."""
    built = with_partition(image(), isr=(1,), leader=1)
    built.broker_settings = {"min.insync.replicas": value}
    built.settings["orders"] = {"retention.ms": ""}
    assert described(built, BROKERS, "1")["min.insync.replicas"][1] == source
    assert ("min.insync.replicas" in described(built, BROKERS, "")) == bool(value)
    shown = described(built, TOPIC_RESOURCE, "orders")
    assert shown["min.insync.replicas"][1] == source
    assert shown["retention.ms"] == ("-1", configs.OF_DEFAULT)
