"""The ordinary settings of topics: accepted, shown, and applied where they say what is stored."""

from __future__ import annotations

import pytest
from world import World

from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error

BROKER = "broker-1"
TOPIC, BROKERS = 2, 4
SET, DELETE = 0, 1
OF_TOPIC, OF_BROKERS, OF_FILE, OF_DEFAULT = 1, 3, 4, 5
ORDINARY = {"cleanup.policy": "delete", "retention.ms": "86400000", "max.message.bytes": "300"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A healthy cluster with a topic of ordinary settings."""
    made = World(tmp_path_factory.mktemp("settings") / "run")
    assert made.until(made.healthy, 20)
    created = create(made, "orders", ORDINARY)
    assert created.error_code == Error.NONE, created
    assert {one.name: one.value for one in created.configs} == ORDINARY
    made.run(2)
    return made


def create(world: World, name: str, settings: dict[str, str]) -> m.CreatableTopicResult:
    own = tuple(m.CreatableTopicConfig(name=key, value=value) for key, value in settings.items())
    topic = m.CreatableTopic(name=name, num_partitions=1, replication_factor=3, configs=own)
    answer = world.answer(BROKER, m.CreateTopicsRequest(topics=(topic,), timeout=2000))
    assert isinstance(answer, m.CreateTopicsResponse)
    (result,) = answer.topics
    return result


def described(world: World, kind: int, name: str) -> dict[str, tuple[str | None, int, bool]]:
    """Each setting with its value, its source, and whether it is read-only."""
    asked = a.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    answer = world.answer(BROKER, a.DescribeConfigsRequest(resources=(asked,)))
    assert isinstance(answer, a.DescribeConfigsResponse)
    (result,) = answer.results
    assert result.error_code == Error.NONE, result
    return {one.name: (one.value, one.config_source, one.read_only) for one in result.configs}


def alter(
    world: World,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> int:
    """The error with which settings of one resource are set or deleted."""
    configs = tuple(a.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes)
    asked = a.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = world.answer(
        BROKER, a.IncrementalAlterConfigsRequest(resources=(asked,), validate_only=validate_only)
    )
    assert isinstance(answer, a.IncrementalAlterConfigsResponse)
    (result,) = answer.responses
    world.run(1)
    return result.error_code


def test_a_topic_has_no_settings_of_a_deleted_one_of_its_name(world: World) -> None:
    create(world, "refunds", ORDINARY)
    world.certain(BROKER, m.DeleteTopicsRequest(topic_names=("refunds",), timeout=2000))
    world.run(2)
    assert create(world, "refunds", {}).error_code == Error.NONE
    world.run(2)
    shown = described(world, TOPIC, "refunds")
    assert [name for name, (_, source, _) in shown.items() if source == OF_TOPIC] == []


def test_a_topic_shows_its_own_settings_and_the_defaults(world: World) -> None:
    shown = described(world, TOPIC, "orders")
    for name, value in ORDINARY.items():
        assert shown[name] == (value, OF_TOPIC, False)
    assert shown["retention.bytes"] == ("-1", OF_DEFAULT, False)
    assert shown["segment.bytes"][1] == OF_FILE
    assert shown["min.insync.replicas"][1] == OF_FILE
    assert shown["unclean.leader.election.enable"] == ("false", OF_DEFAULT, False)


def test_a_request_that_only_asks_changes_no_setting(world: World) -> None:
    before = described(world, TOPIC, "orders")
    change = ("retention.bytes", SET, "5000")
    assert alter(world, TOPIC, "orders", change, validate_only=True) == Error.NONE
    assert described(world, TOPIC, "orders") == before


def test_a_setting_is_changed_and_deleted(world: World) -> None:
    assert alter(world, TOPIC, "orders", ("retention.bytes", SET, "5000")) == Error.NONE
    assert described(world, TOPIC, "orders")["retention.bytes"] == ("5000", OF_TOPIC, False)
    assert alter(world, TOPIC, "orders", ("retention.bytes", DELETE, None)) == Error.NONE
    assert described(world, TOPIC, "orders")["retention.bytes"] == ("-1", OF_DEFAULT, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "LogAppendTime"),
        ("unclean.leader.election.enable", "true"),
        ("retention.ms", "-2"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "many"),
        ("no.such.setting", "1"),
    ],
)
def test_what_the_cluster_cannot_keep_to_is_refused(world: World, name: str, value: str) -> None:
    before = described(world, TOPIC, "orders")
    assert alter(world, TOPIC, "orders", (name, SET, value)) == Error.INVALID_CONFIG
    assert described(world, TOPIC, "orders") == before
    refused = create(world, "refused", {name: value})
    assert refused.error_code == Error.INVALID_CONFIG
    assert name in (refused.error_message or "")


def test_max_message_bytes_of_a_topic_is_applied(world: World) -> None:
    def produced(size: int) -> int:
        batch = record_batch.build([b"." * size], 0, -1, 1)
        data = m.PartitionProduceData(index=0, records=batch)
        topics = (m.TopicProduceData(name="orders", partition_data=(data,)),)
        request = m.ProduceRequest(acks=-1, timeout=2000, topic_data=topics)
        answer = world.answer(world.leader("orders"), request)
        assert isinstance(answer, m.ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code

    assert produced(200) == Error.NONE
    assert produced(300) == Error.MESSAGE_TOO_LARGE


def test_a_setting_of_all_brokers_is_changed_and_deleted(world: World) -> None:
    """It is none of a single broker: its deletion there deletes nothing."""
    name = "min.insync.replicas"
    of_file = described(world, BROKERS, "1")[name]
    assert alter(world, BROKERS, "", (name, SET, "2")) == Error.NONE
    assert alter(world, BROKERS, "1", (name, DELETE, None)) == Error.NONE
    assert described(world, BROKERS, "1")[name][:2] == ("2", OF_BROKERS)
    assert described(world, TOPIC, "orders")[name][:2] == ("2", OF_BROKERS)
    assert alter(world, BROKERS, "", (name, DELETE, None)) == Error.NONE
    assert described(world, BROKERS, "1")[name] == of_file


def test_all_brokers_have_no_setting_of_a_topic_alone(world: World) -> None:
    assert alter(world, BROKERS, "", ("retention.ms", SET, "5")) == Error.INVALID_CONFIG


def test_a_brokers_switch_is_shown_as_true_or_false(world: World) -> None:
    shown = described(world, BROKERS, "1")
    assert shown["auto.leader.rebalance.enable"][0] in ("true", "false")
    assert shown["replica.lag.time.max.ms"][0] not in ("true", "false")
    assert shown["replica.lag.time.max.ms"][2], "read-only"


THROTTLE = "leader.replication.throttled.rate"
THROTTLED = "leader.replication.throttled.replicas"


def test_a_throttle_that_was_never_set_can_be_deleted(world: World) -> None:
    """Kafka's tool does so when it verifies a reassignment, and when it calls one off."""
    before = described(world, BROKERS, "1")
    assert alter(world, BROKERS, "1", (THROTTLE, DELETE, None)) == Error.NONE
    assert alter(world, BROKERS, "2", (THROTTLE, DELETE, None)) == Error.NONE
    assert alter(world, TOPIC, "orders", (THROTTLED, DELETE, "")) == Error.NONE
    assert described(world, BROKERS, "1") == before


def test_a_throttle_cannot_be_set(world: World) -> None:
    assert alter(world, BROKERS, "1", (THROTTLE, SET, "1000")) == Error.INVALID_REQUEST
    assert alter(world, BROKERS, "9", (THROTTLE, DELETE, None)) == Error.INVALID_REQUEST
    assert alter(world, TOPIC, "orders", (THROTTLED, SET, "0:1")) == Error.INVALID_CONFIG
    assert alter(world, TOPIC, "nowhere", (THROTTLED, DELETE, "")) != Error.NONE
