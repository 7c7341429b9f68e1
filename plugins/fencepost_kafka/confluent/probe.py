"""A probe: one request, over one connection, to one broker, leader or not, without a retry.

No client library sends a request to a broker that does not lead by its metadata. So only a probe
gives a client's evidence of such a broker's answers.
"""

from __future__ import annotations

import io
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, final
from uuid import UUID

from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_batch
from kio.schema.add_raft_voter.v0 import request as add_request
from kio.schema.add_raft_voter.v0.response import AddRaftVoterResponse
from kio.schema.create_topics.v5 import request as create_request
from kio.schema.create_topics.v5.response import CreateTopicsResponse
from kio.schema.describe_quorum.v2 import request as describe_request
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import request as fetch_request
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.metadata.v8 import request as metadata_request
from kio.schema.metadata.v8.response import MetadataResponse
from kio.schema.produce.v7 import request as produce_request
from kio.schema.produce.v7.response import ProduceResponse
from kio.schema.remove_raft_voter.v0 import request as remove_request
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse
from kio.serial import entity_reader, entity_writer

from fencepost_kafka.clients.commands import (
    AddVoter,
    ProbeBytes,
    ProbeCommand,
    ProbeController,
    ProbeFetch,
    ProbeMetadata,
    ProbeMetrics,
    ProbeProduce,
    RemoveVoter,
)
from fencepost_kafka.confluent.session import Session
from fencepost_kafka.events import ProbeCompleted
from fencepost_kafka.events.values import ProbeOutcome
from fencepost_kafka.security import STRANGER, Access, access_of, connected

# kio's annotations give every number a type of its own, which its own coercion undoes: plain ints
# work.
_CREATE: Any = create_request
_ADD: Any = add_request
_REMOVE: Any = remove_request
_DESCRIBE: Any = describe_request
_FETCH: Any = fetch_request
_METADATA: Any = metadata_request
_PRODUCE: Any = produce_request
_RECORD: Any = Record
_BATCH: Any = NewRecordBatch

_DESCRIBE_METADATA = _DESCRIBE.DescribeQuorumRequest(
    topics=(
        _DESCRIBE.TopicData(
            topic_name="__cluster_metadata",
            partitions=(_DESCRIBE.PartitionData(partition_index=0),),
        ),
    )
)
MOST_BYTES = 1 << 20
_BATCH_HEADER = 61
_COUNT_AT = 57


Known = ProbeFetch | ProbeProduce | ProbeMetadata | ProbeController | AddVoter | RemoveVoter
"""The probes whose requests are built here."""


@dataclass(frozen=True, slots=True)
class ExchangeResult:
    """The answer, in the terms of `ProbeCompleted`."""

    outcome: ProbeOutcome
    error: str = ""
    records: int = 0
    base_offset: int = -1
    brokers: tuple[int, ...] = ()
    answer: str = ""


@final
class ProbeWork:
    """One probe's work, until its commands end."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._correlation = 0

    def run(self) -> None:
        """Sends one request for every command as it comes."""
        for command in self._session.commands():
            if isinstance(command, ProbeCommand):
                self._ask(command)
            else:
                self._session.refuse(command)

    def _ask(self, probe: ProbeCommand) -> None:
        config = self._session.config
        if isinstance(probe, ProbeMetrics):
            sent_at_ns = time.monotonic_ns()
            address = (config.own[probe.slot], probe.port)
            self._record(probe, "Metrics", read_page(address, probe.limit_ms / 1000), sent_at_ns)
            return
        read: Callable[[bytes], ExchangeResult]
        if isinstance(probe, ProbeBytes):
            raw = bytes.fromhex(probe.frame)
            api, port, read = "Bytes", probe.port, _read_bytes
            frame = struct.pack(">i", len(raw)) + raw
        else:
            request, read = build(probe, self._directory(probe))
            api, port = type(request).__name__.removesuffix("Request"), config.client_port
            frame = frame_request(config.process, self._correlation, request)
        self._correlation += 1
        if isinstance(probe, ProbeController):
            port = probe.port
        address = (config.hosts[probe.slot], port)
        sent_at_ns = time.monotonic_ns()
        # What a controller is asked at its own endpoint, it is asked by somebody without rights.
        access = access_of(config, STRANGER if isinstance(probe, ProbeController) else "")
        answer = exchange(address, frame, probe.limit_ms / 1000, read, access)
        self._record(probe, api, answer, sent_at_ns)

    def _directory(self, probe: Known) -> UUID | None:
        """The id of the directory in which a controller keeps the metadata, by the quorum itself: a
        change of voters must name it. None: there is none, or no answer says it."""
        if not isinstance(probe, AddVoter | RemoveVoter):
            return None
        found: list[UUID | None] = []

        def read(body: bytes) -> ExchangeResult:
            found.extend(_directories(body, probe.node))
            return ExchangeResult("answered")

        config = self._session.config
        frame = frame_request(config.process, self._correlation, _DESCRIBE_METADATA)
        self._correlation += 1
        address = (config.hosts[probe.slot], config.client_port)
        exchange(address, frame, probe.limit_ms / 1000, read, access_of(config))
        return next(iter(found), None)

    def _record(
        self, probe: ProbeCommand, api: str, answer: ExchangeResult, sent_at_ns: int
    ) -> None:
        self._session.recorder.record(
            ProbeCompleted(
                operation=probe.operation,
                api=api,
                broker=probe.broker,
                slot=probe.slot,
                topic=getattr(probe, "topic", ""),
                partition=getattr(probe, "partition", -1),
                outcome=answer.outcome,
                error=answer.error,
                records=answer.records,
                base_offset=answer.base_offset,
                sent_at_ns=sent_at_ns,
                brokers=answer.brokers,
                answer=answer.answer,
                acks=getattr(probe, "acks", -1),
                voter=getattr(probe, "node", -1),
            )
        )


def exchange(
    address: tuple[str, int],
    frame: bytes,
    limit_s: float,
    read: Callable[[bytes], ExchangeResult],
    access: Access | None = None,
) -> ExchangeResult:
    """Sends the frame and reads one answer. A closed connection and a timeout are results, too."""
    try:
        with connected(access, address, limit_s) as connection:
            connection.sendall(frame)
            with connection.makefile("rb") as stream:
                size = int.from_bytes(stream.read(4))
                body = stream.read(size)
    except TimeoutError:
        return ExchangeResult("timeout")
    except OSError as failed:
        return ExchangeResult("closed", failed.strerror or str(failed))
    if not body or len(body) < size:
        return ExchangeResult("closed", "end of stream")
    return read(body)


def read_page(address: tuple[str, int], limit_s: float) -> ExchangeResult:
    """Gets the metrics page there; its body is the answer if its status is 200."""
    request = f"GET /metrics HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(address, timeout=limit_s) as connection:
            connection.settimeout(limit_s)
            connection.sendall(request.encode())
            with connection.makefile("rb") as stream:
                head, _, body = stream.read(MOST_BYTES).partition(b"\r\n\r\n")
    except TimeoutError:
        return ExchangeResult("timeout")
    except OSError as failed:
        return ExchangeResult("closed", failed.strerror or str(failed))
    if not head:
        return ExchangeResult("closed", "end of stream")
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    if status.split()[1:2] != ["200"]:
        return ExchangeResult("refused", status)
    return ExchangeResult("answered", answer=body.hex())


def frame_request(client: str, correlation: int, request: Any) -> bytes:
    """The bytes of a request, its length included."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation,
        client_id=client,
    )
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def _read_bytes(body: bytes) -> ExchangeResult:
    return ExchangeResult("answered", answer=body.hex())


def build(
    probe: Known, directory: UUID | None = None
) -> tuple[Any, Callable[[bytes], ExchangeResult]]:
    """The request of a probe, and how to read its answer. `directory` is that of a voter."""
    match probe:
        case ProbeFetch():
            return _fetch(probe), _read_fetch
        case ProbeProduce():
            return _produce(probe), _read_produce
        case ProbeMetadata():
            return _metadata(probe), _read_metadata
        case ProbeController():
            topic = _CREATE.CreatableTopic(
                name=probe.topic, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            limit = timedelta(milliseconds=probe.limit_ms)
            return _CREATE.CreateTopicsRequest(topics=(topic,), timeout=limit), _read_created
        case AddVoter():
            return _add_voter(probe, directory), _reader(AddRaftVoterResponse)
        case RemoveVoter():
            removed = _REMOVE.RemoveRaftVoterRequest(
                cluster_id=None, voter_id=probe.node, voter_directory_id=directory
            )
            return removed, _reader(RemoveRaftVoterResponse)


def _fetch(probe: ProbeFetch) -> Any:
    partition = _FETCH.FetchPartition(
        partition=probe.partition,
        fetch_offset=probe.offset,
        partition_max_bytes=MOST_BYTES,
    )
    topic = _FETCH.FetchTopic(topic=probe.topic, partitions=(partition,))
    return _FETCH.FetchRequest(
        max_wait=timedelta(milliseconds=100),
        min_bytes=1,
        max_bytes=MOST_BYTES,
        topics=(topic,),
        forgotten_topics_data=(),
    )


def _produce(probe: ProbeProduce) -> Any:
    now = datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)
    record = _RECORD(
        attributes=0,
        timestamp=now,
        offset=0,
        key=None,
        value=probe.operation.encode(),
        headers=(),
    )
    buffer = io.BytesIO()
    write_batch(
        buffer,
        _BATCH(
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            records=(record,),
            attributes=0,
        ),
    )
    data = _PRODUCE.PartitionProduceData(index=probe.partition, records=buffer.getvalue())
    topic = _PRODUCE.TopicProduceData(name=probe.topic, partition_data=(data,))
    return _PRODUCE.ProduceRequest(
        acks=probe.acks, timeout=timedelta(milliseconds=probe.limit_ms), topic_data=(topic,)
    )


def _metadata(probe: ProbeMetadata) -> Any:
    topic = _METADATA.MetadataRequestTopic(name=probe.topic)
    return _METADATA.MetadataRequest(
        topics=(topic,),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _read(schema: Any, body: bytes) -> Any:
    _, at = entity_reader(schema.__header_schema__)(body, 0)
    answer, _ = entity_reader(schema)(body, at)
    return answer


def _read_fetch(body: bytes) -> ExchangeResult:
    answer: FetchResponse = _read(FetchResponse, body)
    if answer.error_code is not ErrorCode.none or not answer.responses:
        return _refused(answer.error_code)
    part = answer.responses[0].partitions[0]
    if part.error_code is not ErrorCode.none:
        return _refused(part.error_code)
    return ExchangeResult("answered", records=count_records(part.records or b""))


def _read_produce(body: bytes) -> ExchangeResult:
    answer: ProduceResponse = _read(ProduceResponse, body)
    part = answer.responses[0].partition_responses[0]
    if part.error_code is not ErrorCode.none:
        return _refused(part.error_code)
    return ExchangeResult("answered", base_offset=part.base_offset)


def _read_metadata(body: bytes) -> ExchangeResult:
    answer: MetadataResponse = _read(MetadataResponse, body)
    for topic in answer.topics:
        if topic.error_code is not ErrorCode.none:
            return _refused(topic.error_code)
    return ExchangeResult("answered", brokers=tuple(broker.node_id for broker in answer.brokers))


def _read_created(body: bytes) -> ExchangeResult:
    code: ErrorCode = _read(CreateTopicsResponse, body).topics[0].error_code
    return ExchangeResult("answered") if code is ErrorCode.none else _refused(code)


def _directories(body: bytes, node: int) -> Iterator[UUID | None]:
    """The directories of a voter or observer in an answer to DescribeQuorum."""
    answer: DescribeQuorumResponse = _read(DescribeQuorumResponse, body)
    for topic in answer.topics:
        for one in topic.partitions:
            for replica in (*one.current_voters, *one.observers):
                if replica.replica_id == node:
                    yield replica.replica_directory_id


def _add_voter(probe: AddVoter, directory: UUID | None) -> Any:
    listener = _ADD.Listener(name="CONTROLLER", host=probe.host, port=probe.port)
    return _ADD.AddRaftVoterRequest(
        cluster_id=None,
        timeout=timedelta(milliseconds=probe.limit_ms),
        voter_id=probe.node,
        voter_directory_id=directory,
        listeners=(listener,),
    )


def _reader(schema: Any) -> Callable[[bytes], ExchangeResult]:
    """Reads an answer that is one error code."""

    def read(body: bytes) -> ExchangeResult:
        code: ErrorCode = _read(schema, body).error_code
        return ExchangeResult("answered") if code is ErrorCode.none else _refused(code)

    return read


def _refused(code: ErrorCode) -> ExchangeResult:
    return ExchangeResult("refused", code.name.upper())


def count_records(data: bytes) -> int:
    """How many messages are in whole record batches; a fetch may end in the middle of one."""
    count = at = 0
    while len(data) - at >= _BATCH_HEADER:
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if len(data) - at < size:
            break
        count += struct.unpack_from(">i", data, at + _COUNT_AT)[0]
        at += size
    return count
