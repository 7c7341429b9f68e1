"""A producer whose library has lost its sequence; a real one cannot be made to do so at will."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from fencepost import ClientFailed, Codec, Recorder, WorkerConfig
from fencepost_kafka import KINDS, ProduceCompleted, ProducerOptions
from fencepost_kafka.confluent import producer
from fencepost_kafka.confluent.session import Session

LOST_COUNT = KafkaException(KafkaError(KafkaError._INCONSISTENT, "unable to go on", fatal=True))


class GivesUp:
    """confluent-kafka's producer as far as it is asked: it takes two messages, then raises."""

    def __init__(self, settings: object) -> None:
        self.taken = 0

    def produce(self, *_: object, **__: object) -> None:
        self.taken += 1

    def poll(self, _: float) -> int:
        if self.taken == 2:
            raise LOST_COUNT
        return 0

    def flush(self, _: float) -> int:
        raise LOST_COUNT

    def purge(self) -> None:
        pass


def test_a_producer_whose_library_gives_up_records_it_and_the_outcomes_of_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "Producer", GivesUp)
    events = tmp_path / "events.ndjson"
    config = WorkerConfig(
        run="run", process="clients/producer-1#1", events=str(events), bootstrap=(), hosts={},
        client_port=0, options=msgspec.Raw(b"null"), own={},
    )  # fmt: skip
    session = Session(config, Recorder.open(events, "run", config.process, KINDS))
    options = ProducerOptions(partitions=(("orders", 0),), acks=-1, rate=1_000.0)
    producer.ProducerWork(session, options).run(time.monotonic)
    bodies = [Codec(KINDS).decode(line).body for line in events.read_bytes().splitlines()]
    assert all(body.fatal for body in bodies if isinstance(body, ClientFailed))
    assert any("_INCONSISTENT" in body.error for body in bodies if isinstance(body, ClientFailed))
    ended = [body for body in bodies if isinstance(body, ProduceCompleted)]
    assert [(body.operation[-2:], body.outcome) for body in ended] == [
        (":0", "unknown"),
        (":1", "unknown"),
    ]
