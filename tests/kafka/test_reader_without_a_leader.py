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

OPTIONS = ReaderOptions(partitions=(("orders", 0), ("orders", 1)), final=True)
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

    def headers(self) -> None:
        return None


class Library:
    """confluent-kafka's consumer as far as it is asked: orders-0 has three messages. orders-1 is
    empty, and has no leader until `led_from`. The library asks for leaders in `list_topics`
    alone."""

    clock = Clock()
    led_from = float("inf")

    def __init__(self, settings: object) -> None:
        self.stored = [Stored(at) for at in range(3)]
        self.led = False

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        if place.partition == 0:
            return 0, len(self.stored)
        if not self.led:
            raise NO_LEADER
        return 0, 0

    def list_topics(self, topic: str, timeout: float) -> None:
        assert topic == "orders"
        self.led = self.clock.seconds >= self.led_from

    def poll(self, timeout: float) -> None:
        self.clock.seconds += timeout

    def assign(self, places: list[TopicPartition]) -> None:
        assert [place.partition for place in places] == [0, 1][: 1 + self.led]

    def consume(self, most: int, timeout: float) -> list[Stored]:
        self.clock.seconds += timeout
        return [self.stored.pop(0)] if self.stored else []

    def close(self) -> None:
        pass


def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[int, ReadCompleted], float]:
    """The results by partition, and how many seconds it took."""
    monkeypatch.setattr(consumer, "Consumer", Library)
    monkeypatch.setattr(Library, "clock", clock := Clock())
    events = tmp_path / "events.ndjson"
    config = WorkerConfig(
        run="run", process="clients/reader-1#1", events=str(events), bootstrap=(), hosts={},
        client_port=0, options=msgspec.Raw(b"null"), own={},
    )  # fmt: skip
    session = Session(config, Recorder.open(events, "run", config.process, KINDS))
    ReaderWork(session, OPTIONS).run(lambda: clock.seconds)
    bodies = [Codec(KINDS).decode(line).body for line in events.read_bytes().splitlines()]
    found = {body.partition: body for body in bodies if isinstance(body, ReadCompleted)}
    return found, clock.seconds


def test_a_partition_without_a_leader_leaves_the_others_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, took_s = read(tmp_path, monkeypatch)
    assert (found[0].outcome, found[0].end) == ("ok", 3)
    assert found[1].outcome == "unknown"
    assert "_UNKNOWN_PARTITION" in found[1].error
    assert took_s < OPTIONS.limit_ms / 1000


def test_a_partition_is_read_soon_after_it_has_a_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Library, "led_from", 3.0)
    found, took_s = read(tmp_path, monkeypatch)
    assert [found[number].outcome for number in (0, 1)] == ["ok", "ok"]
    assert 3.0 <= took_s < 4.0
