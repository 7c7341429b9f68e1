"""Six foreign clients of Kafka on one cluster, each with the same cases: librdkafka, kafka-python,
aiokafka, franz-go, sarama, and the tools that come with Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer
from direct_nodes import LIMIT_S, Nodes, create, eventually, nodes_in, quietly
from foreign_clients import Aiokafka, Client, Confluent, KafkaPython, apart
from foreign_programs import Missing, go_client, java_tools

pytestmark = pytest.mark.real

NAMES = ("confluent-kafka", "kafka-python", "aiokafka", "franz-go", "sarama", "java")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMED = tuple(f"timed-{codec}" for codec in CODECS)
BASE_MS = 1_700_000_000_000
RECORDS = 10
"""Each is a second after the one before; all are in one batch."""
SETTINGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "86400000"}
LARGE, PARTITIONS, BATCHES, BATCH_BYTES = "large", 4, 3, 15_000
MAX_BYTES = 40_000
"""Two batches, and not a third one."""
GROUP_IS_UNKNOWN = re.compile(r"group.?id.*(does not exist|not.?found)", re.IGNORECASE | re.DOTALL)


def _fill(nodes: Nodes) -> None:
    for codec, topic in zip(CODECS, TIMED, strict=True):
        create(nodes, topic)
        producer = Producer(quietly(nodes, linger_ms=1000, compression_type=codec))
        for number in range(RECORDS):
            at_ms = BASE_MS + 1000 * number
            producer.produce(topic, b"%d" % number * 100, partition=0, timestamp=at_ms)
        assert producer.flush(LIMIT_S) == 0
    create(nodes, LARGE, PARTITIONS)
    producer = Producer(quietly(nodes, linger_ms=0, batch_num_messages=1))
    for number in range(PARTITIONS * BATCHES):
        producer.produce(LARGE, b"." * BATCH_BYTES, partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A controller and an active broker, with records of known times, and with large batches."""
    with nodes_in(tmp_path_factory.mktemp("cluster")) as made:
        made.start_both()
        _fill(made)
        yield made


@pytest.fixture(scope="module")
def clients(cluster: Nodes) -> Iterator[Mapping[str, Client]]:
    """Those clients that can be started here."""
    with ExitStack() as finish:
        at = cluster.bootstrap
        found: dict[str, Client] = {
            "confluent-kafka": finish.enter_context(apart(Confluent(at))),
            "kafka-python": KafkaPython(at),
            "aiokafka": Aiokafka(at),
        }
        try:
            for name in ("franz-go", "sarama"):
                found[name] = finish.enter_context(go_client(name, at))
            found["java"] = java_tools(at)
        except Missing:
            pass
        yield found


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, clients: Mapping[str, Client]) -> Client:
    """Each client; skips one that cannot be started here."""
    if request.param not in clients:
        pytest.skip(f"{request.param} cannot be started here")
    return clients[request.param]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic's name for this test alone."""
    return re.sub(r"[^a-z-]+", ".", request.node.name.removeprefix("test_"))


def test_a_topic_is_created_extended_listed_described_and_deleted(
    client: Client, topic: str
) -> None:
    client.create(topic, 2, SETTINGS)
    client.extend(topic, 3)
    eventually(lambda: topic in client.topics(), "the broker knows the topic")
    count, settings = client.described(topic)
    assert count == 3
    assert {name: settings[name] for name in SETTINGS} == SETTINGS
    client.delete(topic)
    eventually(lambda: topic not in client.topics(), "the broker knows of the deletion")


def test_records_come_back_in_each_compression(cluster: Nodes, client: Client, topic: str) -> None:
    create(cluster, topic)
    written: list[str] = []
    for codec in client.codecs:
        values = [f"{codec}-{number}-{'.' * 200}" for number in range(5)]
        client.produce(topic, codec, values)
        written += values
    assert client.read(topic, len(written)) == written


def test_a_time_is_that_of_a_record_in_each_compression(client: Client) -> None:
    assert client.offsets_at(TIMED, BASE_MS + 3500) == [4] * len(TIMED)


def test_an_answer_has_no_more_bytes_than_the_client_asked_for(client: Client) -> None:
    largest = client.largest_fetch(LARGE, PARTITIONS, PARTITIONS * BATCHES, MAX_BYTES)
    if largest is None:
        pytest.skip("this client does not show the size of an answer")
    assert BATCH_BYTES <= largest <= MAX_BYTES + 512


def test_a_group_is_refused_as_one_that_does_not_exist(client: Client) -> None:
    assert GROUP_IS_UNKNOWN.search(client.refusal(LARGE))
