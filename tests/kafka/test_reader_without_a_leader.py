"""A reading of partitions of which one has no leader; time passes in calls of the library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost import Codec, Recorder, WorkerConfig
from fencepost_kafka import KINDS, ReadCompleted, ReaderOptions
from fencepost_kafka.confluent import consumer
from fencepost_kafka.confluent.reader import ReaderWork
from fencepost_kafka.confluent.session import Session

NO_LEADER = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


@dataclass
class Clock:
    seconds: float = 0.0


@dataclass
class Stored:
    """A message of orders-0, as far as it is asked."""

    at: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return b"operation"


class Library:
    """confluent-kafka's consumer as far as it is asked: orders-0 has three messages, and orders-1
    no leader."""

    clock = Clock()

    def __init__(self, settings: object) -> None:
        self.stored = [Stored(at) for at in range(3)]

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        if place.partition == 1:
            raise NO_LEADER
        return 0, len(self.stored)

    def poll(self, timeout: float) -> None:
        self.clock.seconds += timeout

    def assign(self, places: list[TopicPartition]) -> None:
        assert [place.partition for place in places] == [0]

    def consume(self, most: int, timeout: float) -> list[Stored]:
        self.clock.seconds += timeout
        return [self.stored.pop(0)] if self.stored else []

    def close(self) -> None:
        pass


def test_a_partition_without_a_leader_leaves_the_others_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "Consumer", Library)
    monkeypatch.setattr(Library, "clock", clock := Clock())
    events = tmp_path / "events.ndjson"
    config = WorkerConfig(
        run="run", process="clients/reader-1#1", events=str(events), bootstrap=(), hosts={},
        client_port=0, options=msgspec.Raw(b"null"), own={},
    )  # fmt: skip
    session = Session(config, Recorder.open(events, "run", config.process, KINDS))
    options = ReaderOptions(partitions=(("orders", 0), ("orders", 1)), final=True)
    ReaderWork(session, options).run(lambda: clock.seconds)
    bodies = [Codec(KINDS).decode(line).body for line in events.read_bytes().splitlines()]
    read = {body.partition: body for body in bodies if isinstance(body, ReadCompleted)}
    assert (read[0].outcome, read[0].end) == ("ok", 3)
    assert read[1].outcome == "unknown"
    assert "_UNKNOWN_PARTITION" in read[1].error
    assert clock.seconds < options.limit_ms / 1000
