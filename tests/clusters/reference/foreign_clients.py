"""Foreign clients of Kafka, each behind the same methods: libraries for Python.

Those that are programs of their own are in `foreign_programs.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar, cast

import aiokafka
import pytest
from aiokafka import admin as aioadmin
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType
from confluent_kafka.cimpl import NewTopic

kafka = pytest.importorskip("kafka")
"""Its import warns; this way of importing takes no warning for an error."""
LIMIT_S = 30.0
LIMIT_MS = int(LIMIT_S * 1000)
LINGER_MS = 50
"""So that the records of a call are in one batch."""
Described = tuple[int, Mapping[str, str]]
"""A topic's number of partitions, and its settings."""
Result = TypeVar("Result")


class Client(Protocol):
    """What each client can do; partition 0 is meant where none is named. An error is an exception
    of the client's own."""

    @property
    def codecs(self) -> Sequence[str]:
        """The compressions that a test asks it for."""
        ...

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None: ...
    def extend(self, topic: str, partitions: int) -> None: ...
    def delete(self, topic: str) -> None: ...
    def topics(self) -> set[str]: ...
    def described(self, topic: str) -> Described: ...
    def produce(self, topic: str, codec: str, values: Sequence[str]) -> None: ...
    def read(self, topic: str, count: int) -> Sequence[str]: ...
    def offsets_at(self, topics: Sequence[str], time_ms: int) -> Sequence[int]:
        """The offset of the first record of a time, in each topic."""
        ...

    def largest_fetch(self, topic: str, partitions: int, count: int, max_bytes: int) -> int | None:
        """Reads so many records of all partitions; returns the most bytes of one answer, or None
        if this client does not show them."""
        ...

    def refusal(self, topic: str) -> str:
        """The error upon joining a group."""
        ...


@contextmanager
def apart(client: Client) -> Iterator[Client]:
    """The client in a process of its own. If a thread of its library aborts, the process ends, and
    one test fails; in this process pytest would end, and another test would be blamed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield cast("Client", _Apart(client, pool))


class _Apart:
    def __init__(self, client: Client, pool: Executor) -> None:
        self._client, self._pool = client, pool
        self.codecs = client.codecs

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: self._pool.submit(_called, self._client, name, given).result()


def _called(client: Client, name: str, given: Sequence[object]) -> object:
    return getattr(client, name)(*given)


# ------------------------------------------------------------------------------------ librdkafka


@dataclass(frozen=True)
class Confluent:
    """confluent-kafka: librdkafka, which kcat is made of, too."""

    bootstrap: str
    codecs: Sequence[str] = ("gzip", "snappy", "lz4", "zstd")

    def _with(self, **own: object) -> dict[str, Any]:
        quietly = {"log_level": 0, "error_cb": lambda error: None}
        named = {name.replace("_", "."): value for name, value in own.items()}
        return {"bootstrap.servers": self.bootstrap, **quietly, **named}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, config=dict(settings))
        admin = AdminClient(self._with())
        admin.create_topics([new])[topic].result(LIMIT_S)

    def topics(self) -> set[str]:
        return set(AdminClient(self._with()).list_topics(timeout=LIMIT_S).topics)

    def described(self, topic: str) -> Described:
        admin = AdminClient(self._with())
        known = admin.list_topics(topic, timeout=LIMIT_S).topics[topic]
        (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        settings = {name: one.value for name, one in found.result(LIMIT_S).items()}
        return len(known.partitions), settings

    def extend(self, topic: str, partitions: int) -> None:
        more = NewPartitions(topic, partitions)
        admin = AdminClient(self._with())
        admin.create_partitions([more])[topic].result(LIMIT_S)

    def delete(self, topic: str) -> None:
        admin = AdminClient(self._with())
        admin.delete_topics([topic])[topic].result(LIMIT_S)

    def produce(self, topic: str, codec: str, values: Sequence[str]) -> None:
        producer = Producer(self._with(compression_type=codec, linger_ms=LINGER_MS))
        for value in values:
            producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(LIMIT_S) == 0

    def _read(self, topic: str, partitions: int, count: int, **own: object) -> list[Message]:
        consumer = Consumer(self._with(group_id="g", enable_auto_commit=False, **own))
        with closing(consumer):
            consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
            found: list[Message] = []
            while len(found) < count:
                message = consumer.poll(LIMIT_S)
                assert message is not None, f"{len(found)} of {count} records"
                assert message.error() is None, message.error()
                found.append(message)
        return found

    def read(self, topic: str, count: int) -> Sequence[str]:
        return [(one.value() or b"").decode() for one in self._read(topic, 1, count)]

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> Sequence[int]:
        asked = [TopicPartition(topic, 0, time_ms) for topic in topics]
        with closing(Consumer(self._with(group_id="g", enable_auto_commit=False))) as consumer:
            return [one.offset for one in consumer.offsets_for_times(asked, timeout=LIMIT_S)]

    def largest_fetch(self, topic: str, partitions: int, count: int, max_bytes: int) -> int:
        """librdkafka takes no answer that is larger, so it fails if one is."""
        most = {"fetch_max_bytes": max_bytes, "message_max_bytes": max_bytes}
        received = max_bytes + 512
        self._read(topic, partitions, count, receive_message_max_bytes=received, **most)
        return received

    def refusal(self, topic: str) -> str:
        with closing(Consumer(self._with(group_id="g"))) as consumer:
            consumer.subscribe([topic])
            message = consumer.poll(LIMIT_S)
        assert message is not None
        return str(message.error())


# ---------------------------------------------------------------------------------- kafka-python


@dataclass(frozen=True)
class KafkaPython:
    """kafka-python; its other compressions need packages that are not installed here."""

    bootstrap: str
    codecs: Sequence[str] = ("gzip",)

    def _admin(self) -> Any:
        return closing(kafka.KafkaAdminClient(bootstrap_servers=self.bootstrap))

    def _consumer(self, *topics: str, **own: object) -> Any:
        given = {"group_id": None, "enable_auto_commit": False, **own}
        return closing(kafka.KafkaConsumer(*topics, bootstrap_servers=self.bootstrap, **given))

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        with self._admin() as admin:
            admin.create_topics(
                [kafka.admin.NewTopic(topic, partitions, -1, topic_configs=dict(settings))]
            )

    def topics(self) -> set[str]:
        with self._admin() as admin:
            return set(admin.list_topics())

    def described(self, topic: str) -> Described:
        kind = kafka.admin.ConfigResourceType.TOPIC
        with self._admin() as admin:
            (known,) = admin.describe_topics([topic])
            settings = admin.describe_configs([kafka.admin.ConfigResource(kind, topic)])
        found = settings["topic"][topic]
        return len(known["partitions"]), {name: one["value"] for name, one in found.items()}

    def extend(self, topic: str, partitions: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: kafka.admin.NewPartitions(partitions)})

    def delete(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def produce(self, topic: str, codec: str, values: Sequence[str]) -> None:
        given = {"compression_type": codec, "linger_ms": LINGER_MS}
        with closing(kafka.KafkaProducer(bootstrap_servers=self.bootstrap, **given)) as producer:
            sent = [producer.send(topic, one.encode(), partition=0) for one in values]
            producer.flush(LIMIT_S)
            for one in sent:
                one.get(LIMIT_S)

    @staticmethod
    def _read(consumer: Any, topic: str, partitions: int, count: int) -> list[Any]:
        places = [kafka.TopicPartition(topic, one) for one in range(partitions)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found: list[Any] = []
        while len(found) < count:
            polled = consumer.poll(timeout_ms=LIMIT_MS)
            assert polled, found
            for records in polled.values():
                found += records
        return found

    def read(self, topic: str, count: int) -> Sequence[str]:
        with self._consumer() as consumer:
            return [one.value.decode() for one in self._read(consumer, topic, 1, count)]

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> Sequence[int]:
        asked = {kafka.TopicPartition(topic, 0): time_ms for topic in topics}
        with self._consumer() as consumer:
            found = consumer.offsets_for_times(asked)
        return [found[place].offset for place in asked]

    def largest_fetch(self, topic: str, partitions: int, count: int, max_bytes: int) -> int:
        with self._consumer(fetch_max_bytes=max_bytes) as consumer:
            self._read(consumer, topic, partitions, count)
            metrics = consumer.metrics()["consumer-fetch-manager-metrics"]
            return int(metrics["fetch-size-max"])

    def refusal(self, topic: str) -> str:
        with self._consumer(topic, group_id="g") as consumer:
            try:
                consumer.poll(timeout_ms=LIMIT_MS)
            except kafka.errors.KafkaError as error:
                return str(error)
        raise AssertionError("the group was joined")


# -------------------------------------------------------------------------------------- aiokafka


@dataclass(frozen=True)
class Aiokafka:
    """aiokafka."""

    bootstrap: str
    codecs: Sequence[str] = ("gzip", "snappy", "lz4", "zstd")

    def _administer(self, ask: Callable[[Any], Awaitable[Result]]) -> Result:
        return self._run(lambda: aioadmin.AIOKafkaAdminClient(**self._given), "close", ask)

    def _consume(self, ask: Callable[[Any], Awaitable[Result]], **own: object) -> Result:
        return self._run(lambda: aiokafka.AIOKafkaConsumer(**self._given, **own), "stop", ask)

    @property
    def _given(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap}

    @staticmethod
    def _run(make: Callable[[], Any], end: str, ask: Callable[[Any], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            made = make()
            await made.start()
            try:
                return await asyncio.wait_for(ask(made), LIMIT_S)
            finally:
                await getattr(made, end)()

        return asyncio.run(run())

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = aioadmin.NewTopic(topic, partitions, 1, topic_configs=dict(settings))
        self._administer(lambda admin: admin.create_topics([new]))

    def extend(self, topic: str, partitions: int) -> None:
        more = {topic: aioadmin.NewPartitions(partitions)}
        self._administer(lambda admin: admin.create_partitions(more))

    def delete(self, topic: str) -> None:
        self._administer(lambda admin: admin.delete_topics([topic]))

    def topics(self) -> set[str]:
        return set(self._administer(lambda admin: admin.list_topics()))

    def described(self, topic: str) -> Described:
        async def ask(admin: Any) -> Described:
            (known,) = await admin.describe_topics([topic])
            resource = AioResource(AioResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([resource])
            (settings,) = answer.to_object()["resources"]
            found = settings["config_entries"]
            named = {one["config_names"]: one["config_value"] for one in found}
            return len(known["partitions"]), named

        return self._administer(ask)

    def produce(self, topic: str, codec: str, values: Sequence[str]) -> None:
        async def ask(producer: Any) -> None:
            sent = [await producer.send(topic, one.encode(), partition=0) for one in values]
            await asyncio.gather(*sent)

        given = {"compression_type": codec, "linger_ms": LINGER_MS, **self._given}
        self._run(lambda: aiokafka.AIOKafkaProducer(**given), "stop", ask)

    @staticmethod
    async def _fetches(consumer: Any, topic: str, partitions: int, count: int) -> list[list[Any]]:
        """The records of each answer: the consumer hands out one before it asks for another."""
        places = [aiokafka.TopicPartition(topic, one) for one in range(partitions)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        found: list[list[Any]] = []
        while sum(map(len, found)) < count:
            polled = await consumer.getmany(timeout_ms=LIMIT_MS)
            found.append([one for records in polled.values() for one in records])
        return found

    def read(self, topic: str, count: int) -> Sequence[str]:
        found = self._consume(lambda consumer: self._fetches(consumer, topic, 1, count))
        return [one.value.decode() for fetch in found for one in fetch]

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> Sequence[int]:
        asked = {aiokafka.TopicPartition(topic, 0): time_ms for topic in topics}
        found = self._consume(lambda consumer: consumer.offsets_for_times(asked))
        return [found[place].offset for place in asked]

    def largest_fetch(self, topic: str, partitions: int, count: int, max_bytes: int) -> int | None:
        found = self._consume(
            lambda consumer: self._fetches(consumer, topic, partitions, count),
            fetch_max_bytes=max_bytes,
        )
        return max(sum(len(one.value) for one in fetch) for fetch in found)

    def refusal(self, topic: str) -> str:
        async def ask(consumer: Any) -> None:
            consumer.subscribe([topic])
            await consumer.getone()

        try:
            self._consume(ask, group_id="g")
        except aiokafka.errors.KafkaError as error:
            return str(error)
        raise AssertionError("the group was joined")
