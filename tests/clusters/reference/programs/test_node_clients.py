"""Unmodified clients of Kafka against one controller and one broker, through kill -9 as well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from direct_nodes import (
    LIMIT_S,
    PORTS,
    Nodes,
    create,
    end,
    eventually,
    nodes_in,
    produce,
    quietly,
    read,
)

pytestmark = pytest.mark.real

OUT_OF_SCOPE_S = 30.0
"""A client that is not refused waits up to its limit; a slow machine takes less than this."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Nothing started yet."""
    with nodes_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A controller and an active broker that many tests share."""
    with nodes_in(tmp_path_factory.mktemp("cluster")) as made:
        made.start_both()
        yield made


PRODUCERS: dict[str, dict[str, object]] = {
    "zero": {"acks": "0"},
    "one": {"acks": "1"},
    "all": {"acks": "all"},
    "idempotent": {"acks": "all", "enable_idempotence": True},
}


def test_topics_and_messages_survive_kill_9(nodes: Nodes) -> None:
    nodes.start_both()
    written: dict[str, list[str]] = {}
    for name, own in PRODUCERS.items():
        create(nodes, name)
        written[name] = [f"{name}-{number}".ljust(300, ".") for number in range(40)]
        offsets = produce(nodes, name, written[name], **own)
        assert offsets == ([-1] * 40 if name == "zero" else list(range(40)))
    for name, values in written.items():  # acks=0 is acknowledged by being read
        assert read(nodes, name, len(values)) == values
    for node in ("controller-1", "broker-1"):
        end(nodes.processes[node])
        nodes.start(node)
    nodes.await_active()
    metadata = AdminClient(quietly(nodes)).list_topics(timeout=LIMIT_S)
    assert set(metadata.topics) == set(written)
    for name, values in written.items():
        assert read(nodes, name, len(values)) == values
    assert produce(nodes, "idempotent", ["after"], **PRODUCERS["idempotent"]) == [40]


def test_confluent_kafka_administers(cluster: Nodes) -> None:
    admin = AdminClient(quietly(cluster))
    create(cluster, "administered", partitions=3)
    assert len(admin.list_topics(timeout=LIMIT_S).topics["administered"].partitions) == 3
    with pytest.raises(KafkaException) as twice:
        create(cluster, "administered")
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    described = admin.describe_cluster(request_timeout=LIMIT_S).result(LIMIT_S)
    assert [(n.id, n.host, n.port) for n in described.nodes] == [
        (1, cluster.address("broker-1"), PORTS["CLIENT"])
    ]
    assert described.cluster_id == "fencepost"
    admin.delete_topics(["administered"], request_timeout=LIMIT_S)["administered"].result(LIMIT_S)
    eventually(
        lambda: "administered" not in admin.list_topics(timeout=LIMIT_S).topics,
        "the broker has heard of the deletion",
    )


def test_confluent_kafka_reads_from_any_offset(cluster: Nodes) -> None:
    create(cluster, "seeks")
    values = [f"{number}" for number in range(30)]
    produce(cluster, "seeks", values)
    assert read(cluster, "seeks", 5, start=25) == values[25:]
    consumer = Consumer(quietly(cluster, group_id="g", enable_auto_commit=False))
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("seeks", 0), timeout=LIMIT_S)
        assert (low, high) == (0, 30)
    finally:
        consumer.close()


def test_kafka_python_works_unmodified(cluster: Nodes) -> None:
    kafka = pytest.importorskip("kafka")
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.create_topics([kafka.admin.NewTopic("python", 1, 1)])
        eventually(lambda: "python" in admin.list_topics(), "the broker to list the topic")
        described = admin.describe_cluster()
        assert [broker["broker_id"] for broker in described["brokers"]] == [1]
        values = [f"{acks}-{number}".encode() for acks in (0, 1, "all") for number in range(5)]
        for acks in (0, 1, "all"):
            producer = kafka.KafkaProducer(
                bootstrap_servers=cluster.bootstrap, acks=acks, enable_idempotence=acks == "all"
            )
            for number in range(5):
                producer.send("python", f"{acks}-{number}".encode(), partition=0)
            producer.flush(LIMIT_S)
            producer.close(LIMIT_S)
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id=None, enable_auto_commit=False
        )
        place = kafka.TopicPartition("python", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        read_back: list[bytes] = []
        deadline = time.monotonic() + LIMIT_S
        while len(read_back) < len(values):
            assert time.monotonic() < deadline, read_back
            for records in consumer.poll(timeout_ms=500).values():
                read_back += [record.value for record in records]
        consumer.close(autocommit=False)
        assert read_back == values
        admin.delete_topics(["python"])
        eventually(lambda: "python" not in admin.list_topics(), "the broker has heard of its end")
    finally:
        admin.close()


def test_a_consumer_group_is_refused_in_time(cluster: Nodes) -> None:
    create(cluster, "grouped")
    began = time.monotonic()
    consumer = Consumer(quietly(cluster, group_id="g"))
    consumer.subscribe(["grouped"])
    message = consumer.poll(OUT_OF_SCOPE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition("grouped", 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    consumer.close()
    assert time.monotonic() - began < OUT_OF_SCOPE_S


def test_a_transaction_is_refused_in_time(cluster: Nodes) -> None:
    producer = Producer(quietly(cluster, transactional_id="t"))
    began = time.monotonic()
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(OUT_OF_SCOPE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert time.monotonic() - began < OUT_OF_SCOPE_S


def test_kafka_python_is_refused_a_group_in_time(cluster: Nodes) -> None:
    kafka = pytest.importorskip("kafka")
    create(cluster, "python-grouped")
    began = time.monotonic()
    consumer = kafka.KafkaConsumer(
        "python-grouped", bootstrap_servers=cluster.bootstrap, group_id="g"
    )
    try:
        with pytest.raises(kafka.errors.GroupIdNotFoundError):
            consumer.poll(timeout_ms=int(OUT_OF_SCOPE_S * 1000))
    finally:
        consumer.close(autocommit=False)
    assert time.monotonic() - began < OUT_OF_SCOPE_S
