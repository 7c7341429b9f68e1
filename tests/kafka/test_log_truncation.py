"""A consumer whose library reports that its log was truncated: a broker has the last word."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from kafka_worker import HOST, LIMIT_S, Worker

from fencepost.model.clock import poll
from fencepost_clusters.reference.core.node.settings import CLIENT_LISTENER
from fencepost_clusters.reference.wire import codec, record_batch
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ConsumerOptions, ConsumerPositioned, Polled

TOPIC = "orders"
CONSUMER = ConsumerOptions(partitions=((TOPIC, 0),), offset=0)


class OneBroker:
    """A broker of one partition that answers as it is set: its leader epoch, the end that it names
    for any earlier epoch, and the number of its messages."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.epoch = 1
        self.messages = 3
        self.named_end = 3
        self.questions = 0

    def answer(self, request: m.Request) -> m.Response:
        """The answer to a request of a consumer without a group."""
        match request:
            case m.MetadataRequest():
                return self._metadata()
            case m.ListOffsetsRequest():
                found = m.ListOffsetsPartitionResponse(
                    partition_index=0, error_code=Error.NONE, offset=0, leader_epoch=1
                )
                listed = m.ListOffsetsTopicResponse(name=TOPIC, partitions=(found,))
                return m.ListOffsetsResponse(topics=(listed,))
            case m.OffsetForLeaderEpochRequest():
                self.questions += 1
                end = m.OffsetForLeaderResult(
                    error_code=Error.NONE, partition=0, leader_epoch=1, end_offset=self.named_end
                )
                asked = m.OffsetForLeaderTopicResult(topic=TOPIC, partitions=(end,))
                return m.OffsetForLeaderEpochResponse(topics=(asked,))
            case m.FetchRequest():
                (part,) = request.topics[0].partitions if request.topics else (None,)
                parts = () if part is None else (self._fetched(part),)
                topics = (m.FetchableTopicResponse(topic=TOPIC, partitions=parts),)
                return m.FetchResponse(error_code=Error.NONE, responses=topics if parts else ())
            case m.FindCoordinatorRequest():
                return m.FindCoordinatorResponse(
                    error_code=Error.NONE, node_id=1, host=HOST, port=self.port
                )
        raise AssertionError(request)

    def _metadata(self) -> m.MetadataResponse:
        part = m.MetadataResponsePartition(
            error_code=Error.NONE,
            partition_index=0,
            leader_id=1,
            leader_epoch=self.epoch,
            replica_nodes=(1,),
            isr_nodes=(1,),
        )
        topic = m.MetadataResponseTopic(error_code=Error.NONE, name=TOPIC, partitions=(part,))
        broker = m.MetadataResponseBroker(node_id=1, host=HOST, port=self.port)
        return m.MetadataResponse(
            brokers=(broker,), cluster_id="one", controller_id=1, topics=(topic,)
        )

    def _fetched(self, asked: m.FetchPartition) -> m.PartitionData:
        error, records = Error.NONE, b""
        if 0 <= asked.current_leader_epoch < self.epoch:
            error = Error.FENCED_LEADER_EPOCH
        elif asked.fetch_offset > self.messages:
            error = Error.OFFSET_OUT_OF_RANGE
        elif asked.fetch_offset < self.messages:
            values = [b"op-%d x" % n for n in range(asked.fetch_offset, self.messages)]
            records = record_batch.build(values, asked.fetch_offset, 1, 1_700_000_000_000)
        return m.PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=self.messages,
            last_stable_offset=self.messages,
            log_start_offset=0,
            records=records,
        )

    def serve(self, connection: socket.socket) -> None:
        """Answers the requests of one connection until its client closes it."""
        # A client that stops closes its connection, whatever it has asked.
        with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
            while length := stream.read(4):
                frame = stream.read(struct.unpack(">i", length)[0])
                header, request = codec.decode_request(CLIENT_LISTENER, frame)
                if isinstance(request, m.ApiVersionsRequest):
                    answer: m.Response = codec.api_versions(CLIENT_LISTENER, header)
                else:
                    answer = self.answer(request)
                connection.sendall(codec.encode_response(header, answer))


@contextmanager
def one_broker() -> Iterator[OneBroker]:
    with socket.create_server((HOST, 0)) as server:
        broker = OneBroker(server.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                Thread(target=broker.serve, args=(connection,), daemon=True).start()

        thread = Thread(target=accept, daemon=True)
        thread.start()
        yield broker
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def polled(worker: Worker) -> list[int]:
    """The offsets that a consumer got, in order."""
    return [offset for b in worker.bodies() if isinstance(b, Polled) for offset in b.offsets]


def positions(worker: Worker) -> list[tuple[bool, int]]:
    """Where a consumer was placed: whether out of range, and by which broker that was found."""
    return [
        (b.out_of_range, b.refused_by) for b in worker.bodies() if isinstance(b, ConsumerPositioned)
    ]


def stop(worker: Worker) -> None:
    worker.close_input()
    assert worker.wait() == 0


@pytest.mark.tool
def test_a_consumer_stays_at_its_position_while_no_broker_refuses_it(tmp_path: Path) -> None:
    """librdkafka compares the answer for an earlier epoch with a later position: it then reports a
    truncation that never was."""
    with one_broker() as broker:
        consumer = Worker(tmp_path, CONSUMER, broker.port)
        assert poll(lambda: polled(consumer) == [0, 1, 2], LIMIT_S)
        broker.named_end = 2
        broker.epoch = 2
        assert poll(lambda: broker.questions > 0, LIMIT_S)
        broker.messages = 4
        assert poll(lambda: len(polled(consumer)) > 3, LIMIT_S)
        stop(consumer)
    assert polled(consumer) == [0, 1, 2, 3]
    assert positions(consumer) == [(False, -1)]


@pytest.mark.tool
def test_a_consumer_whose_position_is_gone_begins_anew(tmp_path: Path) -> None:
    with one_broker() as broker:
        consumer = Worker(tmp_path, CONSUMER, broker.port)
        assert poll(lambda: polled(consumer) == [0, 1, 2], LIMIT_S)
        broker.messages = broker.named_end = 2
        broker.epoch = 2
        assert poll(lambda: len(polled(consumer)) > 3, LIMIT_S)
        stop(consumer)
    assert polled(consumer) == [0, 1, 2, 0, 1]
    assert positions(consumer) == [(False, -1), (True, 1)]
