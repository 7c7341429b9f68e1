"""The cost of a link: one client against one broker, through its link and without one.

    ./dev bench links [--json] [--runs N]

Two clusters of one controller and one broker run at once and differ in one thing: what the broker
tells clients to dial, their end of the link or its own address. Turn by turn a confluent-kafka
producer (acks=all, warmed up) sends messages of 1 KiB as fast as it can, a consumer reads them
back, and another producer sends one message at a time, from `produce` to its report.
One broker, so that only the broker and the link are measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from report import parse, percentile, show, summary

from fencepost import Command, Place, Shape
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec, new_folder
from fencepost_clusters.reference.cluster import PORTS, ReferenceQuorum
from fencepost_kafka import Role, kafka_shape

TOPIC = "bench"
MESSAGES, MESSAGE_BYTES = 20_000, 1024
SINGLES, SINGLE_BYTES = 500, 100
LIMIT_S = 60.0
SETTINGS = {
    "min.insync.replicas": "1",
    "default.replication.factor": "1",
    "log.segment.bytes": str(64 * 1024 * 1024),
}


@dataclass(frozen=True)
class Direct:
    """A system whose brokers give clients their own addresses, without a link."""

    inner: ReferenceQuorum

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def command(self, place: Place, shape: Shape) -> Command:
        return self.inner.command(replace(place, advertised=place.address), shape)


class Client:
    """Producers and a consumer of one cluster, connected and warm."""

    def __init__(self, bootstrap: str) -> None:
        # Errors about brokers that are gone are ignored: brokers end only after the measurement.
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None}
        produces = {**common, "acks": "all"}
        self._bulk = Producer({**produces, "queue.buffering.max.messages": 2 * MESSAGES})
        self._single = Producer({**produces, "linger.ms": 0})
        self._consumer = Consumer(
            {
                **common,
                "group.id": "bench",
                "enable.auto.commit": False,
                "queued.min.messages": 1_000_000,
            }
        )
        self._delivered = 0
        self._end = 0
        for producer in (self._bulk, self._single):
            self._send(producer, b"warm")
        self._read(0, self._end)

    def produce(self) -> float:
        """Messages a second, from the first to the last one's report."""
        value = b"x" * MESSAGE_BYTES
        wanted = self._delivered + MESSAGES
        began = time.perf_counter()
        for _ in range(MESSAGES):
            self._bulk.produce(TOPIC, value, partition=0, on_delivery=self._reported)
        self._bulk.flush(LIMIT_S)
        took = time.perf_counter() - began
        assert self._delivered == wanted, "a message was lost: this measures the wrong thing"
        return MESSAGES / took

    def consume(self) -> float:
        """Messages a second of the last `count` messages, from the first fetch to the last
        message."""
        began = time.perf_counter()
        self._read(self._end - MESSAGES, self._end)
        return MESSAGES / (time.perf_counter() - began)

    def one_at_a_time(self) -> list[float]:
        """Microseconds from each message to its report."""
        value = b"x" * SINGLE_BYTES
        took = []
        for _ in range(SINGLES):
            began = time.perf_counter()
            self._send(self._single, value)
            took.append((time.perf_counter() - began) * 1e6)
        return took

    def close(self) -> None:
        self._consumer.close()

    def _read(self, start: int, end: int) -> None:
        self._consumer.assign([TopicPartition(TOPIC, 0, start)])
        left = end - start
        while left:
            messages = self._consumer.consume(min(left, 10_000), timeout=LIMIT_S)
            assert messages, "nothing came: this measures the wrong thing"
            for message in messages:
                assert message.error() is None, message.error()
            left -= len(messages)
        self._consumer.unassign()

    def _send(self, producer: Producer, value: bytes) -> None:
        wanted = self._delivered + 1
        producer.produce(TOPIC, value, partition=0, on_delivery=self._reported)
        producer.flush(LIMIT_S)
        assert self._delivered == wanted, "the message was not delivered"

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self._delivered += 1
        offset = message.offset()
        assert offset is not None
        self._end = offset + 1


@contextmanager
def cluster(plugins: Plugins, out: Path, linked: bool) -> Iterator[Client]:
    """A cluster at work, and the client that reaches its broker one way or the other."""
    shape = kafka_shape(controllers=1, brokers=1, settings=SETTINGS)
    reference = ReferenceQuorum()
    system: Any = reference if linked else Direct(reference)
    with Run.start(RunSpec(system, shape), plugins, new_folder(out, "bench")) as run:
        run.clients.create_topic(TOPIC, partitions=1)
        place = run.runtime.place(run.runtime.layout.of(Role.BROKER)[0])
        host = place.advertised if linked else place.address
        client = Client(f"{host}:{PORTS.client}")
        try:
            yield client
        finally:
            client.close()


def main() -> None:
    options = parse(__doc__, runs=5)
    plugins = load()
    ways = ("direct", "linked")
    found: Mapping[str, Mapping[str, list[float]]] = {
        way: {"produce": [], "consume": [], "latency": []} for way in ways
    }
    with tempfile.TemporaryDirectory() as out, ExitStack() as finish:
        clients = {
            way: finish.enter_context(cluster(plugins, Path(out), way == "linked")) for way in ways
        }
        for _ in range(options.runs):
            for way, client in clients.items():
                found[way]["produce"].append(client.produce())
                found[way]["consume"].append(client.consume())
                found[way]["latency"] += client.one_at_a_time()
    show(
        options,
        {
            "bench": "links",
            "runs": options.runs,
            "client": "confluent-kafka, acks=all",
            "message_bytes": MESSAGE_BYTES,
            **{way: figures(found[way]) for way in ways},
            "ratio": {
                **{
                    what: round(median(found["linked"][what]) / median(found["direct"][what]), 2)
                    for what in ("produce", "consume")
                },
                "latency_p99": round(
                    percentile(found["linked"]["latency"], 0.99)
                    / percentile(found["direct"]["latency"], 0.99),
                    2,
                ),
            },
        },
    )


def figures(found: Mapping[str, list[float]]) -> dict[str, object]:
    """The figures of one way."""
    return {
        "produce_messages_per_s": summary(found["produce"]),
        "consume_messages_per_s": summary(found["consume"]),
        "produce_one_us": {
            f"p{round(share * 100)}": round(percentile(found["latency"], share), 1)
            for share in (0.5, 0.99)
        },
        "samples": {
            what: [round(figure) for figure in found[what]] for what in ("produce", "consume")
        },
    }


if __name__ == "__main__":
    main()
