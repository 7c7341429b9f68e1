"""The client workers by themselves: with a cluster that is mute, gone, or talks nonsense."""

from __future__ import annotations

import io
import json
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from kafka_worker import HOST, WORKER, Worker
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import response as fetch_response
from kio.serial import entity_writer
from msgspec import Struct

from fencepost import ClientFailed, ClientStarted, NodeStopped
from fencepost_kafka import (
    AdminCompleted,
    AdminOptions,
    ClientOptions,
    ConsumerOptions,
    ConsumerPositioned,
    CreateTopic,
    ProbeCompleted,
    ProbeFetch,
    ProbeOptions,
    ProbeProduce,
    ProduceCompleted,
    ProduceInvoked,
    ProducerOptions,
    ReadCompleted,
    ReaderOptions,
)
from fencepost_kafka.confluent import outcomes
from fencepost_kafka.confluent.consumer import operation_in
from fencepost_kafka.confluent.probe import ExchangeResult, build, count_records, exchange
from fencepost_kafka.confluent.reader import Progress

Start = Callable[[ClientOptions, int], Worker]


@contextmanager
def mute_listener() -> Iterator[int]:
    """A port that accepts connections and never answers, as behind a cut link."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def one_answer(answer: bytes) -> Iterator[int]:
    """A port that reads one request and gives this answer, then closes."""

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as stream:
            stream.read(struct.unpack(">i", stream.read(4))[0])
            connection.sendall(answer)

    with socket.create_server((HOST, 0)) as server:
        thread = Thread(target=serve, args=(server,))
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.fixture
def start(tmp_path: Path, real: None) -> Iterator[Start]:
    """Starts workers; those still alive at the end of a test are killed."""
    started: list[Worker] = []

    def start_one(options: ClientOptions, port: int) -> Worker:
        started.append(Worker(tmp_path, options, port))
        return started[-1]

    yield start_one
    for worker in started:
        worker.process.kill()
        worker.process.wait()
        if worker.process.stdin is not None:
            worker.process.stdin.close()


def open_operations(bodies: list[Struct]) -> set[str]:
    invoked = {b.operation for b in bodies if isinstance(b, ProduceInvoked)}
    return invoked - {b.operation for b in bodies if isinstance(b, ProduceCompleted)}


@pytest.mark.parametrize("how", ["SIGTERM", "end of input"])
def test_a_stopped_producer_records_open_operations_as_unknown(start: Start, how: str) -> None:
    with mute_listener() as port:
        options = ProducerOptions(
            partitions=(("orders", 0), ("orders", 1)), rate=1000, flush_ms=300
        )
        worker = start(options, port)
        worker.wait_for(ProduceInvoked, count=2)
        if how == "SIGTERM":
            worker.process.send_signal(signal.SIGTERM)
        else:
            worker.close_input()
        assert worker.wait() == 0
    bodies = worker.bodies()
    assert isinstance(bodies[0], ClientStarted)
    assert bodies[-1] == NodeStopped(reason="stopped")
    assert open_operations(bodies) == set()
    completed = [b for b in bodies if isinstance(b, ProduceCompleted)]
    assert {b.outcome for b in completed} == {"unknown"}
    assert {b.partition for b in completed} == {0, 1}


def test_a_killed_producer_leaves_whole_events_and_open_operations(start: Start) -> None:
    with mute_listener() as port:
        worker = start(ProducerOptions(partitions=(("orders", 0),)), port)
        worker.wait_for(ProduceInvoked)
        worker.process.kill()
        assert worker.wait() == -signal.SIGKILL
    assert open_operations(worker.bodies()) != set()


def test_a_counted_producer_ends_by_itself(start: Start) -> None:
    with mute_listener() as port:
        options = ProducerOptions(partitions=(("orders", 0),), count=3, flush_ms=200)
        worker = start(options, port)
        assert worker.wait() == 0
    bodies = worker.bodies()
    assert len([b for b in bodies if isinstance(b, ProduceInvoked)]) == 3
    assert bodies[-1] == NodeStopped(reason="done")


def test_an_interrupt_is_left_to_the_harness(start: Start) -> None:
    with mute_listener() as port:
        worker = start(ConsumerOptions(partitions=(("orders", 0),)), port)
        worker.wait_for(ConsumerPositioned)
        worker.process.send_signal(signal.SIGINT)
        worker.close_input()
        assert worker.wait() == 0
    assert worker.bodies()[-1] == NodeStopped(reason="stopped")


def test_a_reader_that_gets_no_answer_records_unknown_in_time(start: Start) -> None:
    with mute_listener() as port:
        places = (("orders", 0), ("orders", 1))
        worker = start(ReaderOptions(partitions=places, final=True, limit_ms=500), port)
        assert worker.wait() == 0
    read = [b for b in worker.bodies() if isinstance(b, ReadCompleted)]
    assert [(b.topic, b.partition) for b in read] == list(places)
    assert {b.outcome for b in read} == {"unknown"}
    assert all(b.error for b in read)


def test_an_administrator_that_gets_no_answer_does_not_know(start: Start) -> None:
    with mute_listener() as port:
        worker = start(AdminOptions(limit_ms=500), port)
        worker.tell(CreateTopic(operation="op-1", topic="orders", partitions=1, replication=1))
        worker.wait_for(AdminCompleted)
        worker.close_input()
        assert worker.wait() == 0
    (completed,) = [b for b in worker.bodies() if isinstance(b, AdminCompleted)]
    assert (completed.operation, completed.api) == ("op-1", "create_topic")
    assert completed.outcome == "unknown"


def test_a_probe_records_its_answer(start: Start) -> None:
    fetched = fetch_answer(ErrorCode.not_leader_or_follower, b"")
    with one_answer(fetched) as port:
        worker = start(ProbeOptions(), port)
        worker.tell(fetch_probe())
        worker.wait_for(ProbeCompleted)
        worker.close_input()
        assert worker.wait() == 0
    (completed,) = [b for b in worker.bodies() if isinstance(b, ProbeCompleted)]
    assert (completed.api, completed.slot, completed.broker) == ("Fetch", "broker-1", 1)
    assert (completed.outcome, completed.error) == ("refused", "NOT_LEADER_OR_FOLLOWER")
    assert completed.sent_at_ns > 0


def test_a_client_that_fails_records_it(start: Start) -> None:
    with mute_listener() as port:
        settings = {"no.such.setting": "1"}
        worker = start(ConsumerOptions(partitions=(("orders", 0),), settings=settings), port)
        assert worker.wait() == 1
    failed, stopped = worker.bodies()[-2:]
    assert isinstance(failed, ClientFailed)
    assert "no.such.setting" in failed.error
    assert stopped == NodeStopped(reason="failed")


@pytest.mark.tool
def test_an_unknown_option_is_refused_by_name(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    options = {"kind": "consumer", "partitions": [], "ofset": 3}
    config.write_text(
        json.dumps(
            {
                "run": "r",
                "process": "p",
                "events": str(tmp_path / "e"),
                "bootstrap": [],
                "hosts": {},
                "client_port": 1,
                "options": options,
            }
        )
    )
    done = subprocess.run([*WORKER, str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "ofset" in done.stderr


# ---------------------------------------------------------------------------- what answers prove


def test_no_acknowledgement_proves_nothing() -> None:
    assert outcomes.of_produce(-1, None) == "ok"
    assert outcomes.of_produce(1, None) == "ok"
    assert outcomes.of_produce(0, None) == "unknown"


def test_an_error_after_retries_proves_nothing() -> None:
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    refused = KafkaError(KafkaError.NOT_ENOUGH_REPLICAS)
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    assert outcomes.of_produce(-1, timed_out) == "unknown"
    assert outcomes.of_produce(-1, refused) == "unknown"
    assert outcomes.of_produce(-1, too_large) == "failed"


def test_an_administrative_call_fails_only_by_a_brokers_answer() -> None:
    assert outcomes.of_admin(None) == "ok"
    assert outcomes.of_admin(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)) == "failed"
    assert outcomes.of_admin(KafkaError(KafkaError._TIMED_OUT)) == "unknown"
    assert outcomes.of_admin(KafkaError(KafkaError.REQUEST_TIMED_OUT)) == "unknown"


# ------------------------------------------------------------------------------------- the probe


def fetch_probe(limit_ms: int = 5_000) -> ProbeFetch:
    return ProbeFetch(
        operation="op-1", slot="broker-1", broker=1, topic="orders", partition=0, limit_ms=limit_ms
    )


def batch_of(messages: int) -> bytes:
    """A record batch as a client sends one; its records repeated by count only in the header."""
    request, _ = build(
        ProbeProduce(operation="op-1", slot="broker-1", broker=1, topic="orders", partition=0)
    )
    raw = bytes(request.topic_data[0].partition_data[0].records)
    return raw[:57] + struct.pack(">i", messages) + raw[61:]


def fetch_answer(error: ErrorCode, records: bytes) -> bytes:
    kinds: Any = fetch_response
    partition = kinds.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted_transactions=(),
        preferred_read_replica=-1,
        records=records,
    )
    topic = kinds.FetchableTopicResponse(topic="orders", partitions=(partition,))
    answer = kinds.FetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        session_id=0,
        responses=(topic,),
    )
    buffer = io.BytesIO()
    header = type(answer).__header_schema__
    entity_writer(header)(buffer, header(correlation_id=0))
    entity_writer(type(answer))(buffer, answer)
    return struct.pack(">i", len(buffer.getvalue())) + buffer.getvalue()


def test_an_answer_with_records_counts_them() -> None:
    _, read = build(fetch_probe())
    with one_answer(fetch_answer(ErrorCode.none, batch_of(2) + batch_of(3))) as port:
        answer = exchange((HOST, port), b"\0\0\0\1x", 5, read)
    assert answer == ExchangeResult("answered", records=5)


def test_no_answer_is_an_answer_too() -> None:
    _, read = build(fetch_probe())
    with mute_listener() as port:
        assert exchange((HOST, port), b"\0\0\0\1x", 0.2, read) == ExchangeResult("timeout")
    with socket.socket() as unused:  # bound, otherwise another process might listen there
        unused.bind((HOST, 0))
        assert exchange(unused.getsockname(), b"\0\0\0\1x", 5, read).outcome == "closed"
    with one_answer(b"") as port:
        closed = exchange((HOST, port), b"\0\0\0\1x", 5, read)
    assert closed == ExchangeResult("closed", "end of stream")
    with one_answer(b"\0\0\0\x09short") as port:
        cut_short = exchange((HOST, port), b"\0\0\0\1x", 5, read)
    assert cut_short == ExchangeResult("closed", "end of stream")


@given(st.lists(st.integers(1, 50), max_size=4), st.integers(0, 80))
def test_a_batch_cut_short_counts_for_nothing(counts: list[int], missing: int) -> None:
    whole = b"".join(batch_of(count) for count in counts)
    size = len(batch_of(1))
    kept = max(0, len(whole) - missing)
    assert count_records(whole[:kept]) == sum(counts[: kept // size])


# ------------------------------------------------------------------------------------ the reader


@given(st.integers(0, 5), st.sets(st.integers(0, 12)))
def test_a_reading_is_whole_when_every_offset_was_seen(start_at: int, seen: set[int]) -> None:
    progress = Progress(start=start_at, end=10)
    for offset in seen:
        progress.see(offset)
    assert progress.missing == len(set(range(start_at, 10)) - seen)


def test_the_operation_is_the_head_of_a_payload() -> None:
    assert operation_in(b"clients/one#1:7 ......") == "clients/one#1:7"
    assert operation_in(b"clients/one#1:7") == "clients/one#1:7"
    assert operation_in(None) == ""
    assert operation_in(b"\xff\xfe of another client") == "\ufffd\ufffd"
