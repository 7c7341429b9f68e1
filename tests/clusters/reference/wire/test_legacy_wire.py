"""HB-26 and BE-01: the messages of the plane over ZooKeeper have the documents' fields, types and
order, and each topic's name once."""

from __future__ import annotations

import struct
from dataclasses import fields

import msgspec
import pytest

from fencepost_clusters.reference.wire import codec, guard, legacy
from fencepost_clusters.reference.wire import legacy_schemas as z
from fencepost_clusters.reference.wire.errors import Error

STATE = legacy.LeaderAndIsrPartition(
    partition_index=1,
    controller_epoch=2,
    leader=3,
    leader_epoch=4,
    isr=(3, 1),
    zk_version=5,
    replicas=(3, 1, 2),
    is_new=True,
)
REQUESTS = (
    legacy.MetadataHeartbeatRequest(
        broker_id=7, incarnation_id=1 << 40, target_state=legacy.BrokerState.ACTIVE
    ),
    legacy.IsrChangeRequest(
        broker_id=7,
        incarnation_id=1 << 40,
        topics=(
            legacy.IsrChangeTopic(
                topic_name="orders",
                partitions=(
                    legacy.IsrChangePartition(leader_epoch=4, partition_index=0, isr_nodes=(7, 8)),
                    legacy.IsrChangePartition(leader_epoch=5, partition_index=1, isr_nodes=()),
                ),
            ),
        ),
    ),
    legacy.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=1 << 33,
        topic_states=(legacy.LeaderAndIsrTopic(topic_name="orders", partition_states=(STATE,)),),
        live_leaders=(legacy.LiveLeader(broker_id=3, host_name="broker-3", port=9092),),
    ),
    legacy.UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=1 << 33,
        topic_states=(
            legacy.UpdateMetadataTopic(
                topic_name="orders",
                partition_states=(
                    legacy.UpdateMetadataPartition(
                        partition_index=1,
                        controller_epoch=2,
                        leader=3,
                        leader_epoch=4,
                        isr=(3,),
                        zk_version=5,
                        replicas=(3, 1),
                        offline_replicas=(1,),
                    ),
                ),
            ),
        ),
        live_brokers=(
            legacy.UpdateMetadataBroker(
                id=3,
                endpoints=(
                    legacy.UpdateMetadataEndpoint(
                        port=9092, host="broker-3", listener="CLIENT", security_protocol=0
                    ),
                ),
            ),
        ),
    ),
    legacy.StopReplicaRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=1 << 33,
        delete_partitions=False,
        topics=(legacy.StopReplicaTopic(topic_name="orders", partition_indexes=(0, 1)),),
    ),
    legacy.ControlledShutdownRequest(broker_id=3, broker_epoch=1 << 33),
)
ERROR = legacy.PartitionError(topic_name="orders", partition_index=1, error_code=Error.NONE)
RESPONSES = (
    legacy.MetadataHeartbeatResponse(
        error_code=Error.INVALID_INCARNATION_ID,
        error_string="an older incarnation",
        current_state=legacy.BrokerState.INACTIVE,
    ),
    legacy.IsrChangeResponse(
        top_level_error_code=Error.NONE,
        results=(
            legacy.IsrChangeResult(error_code=Error.NONE),
            legacy.IsrChangeResult(error_code=Error.INVALID_REQUEST, error_message="no member"),
        ),
    ),
    legacy.LeaderAndIsrResponse(error_code=Error.STALE_BROKER_EPOCH, partition_errors=(ERROR,)),
    legacy.UpdateMetadataResponse(error_code=Error.STALE_CONTROLLER_EPOCH),
    legacy.StopReplicaResponse(error_code=Error.NONE, partition_errors=(ERROR,)),
    legacy.ControlledShutdownResponse(
        error_code=Error.NONE,
        remaining_partitions=(legacy.RemainingPartition(topic_name="orders", partition_index=1),),
    ),
)


def frame_of(request: object) -> bytes:
    """The bytes of a request after its length."""
    return codec.encode_request("broker-7", 5, request, codec.LEGACY_CALLS)[4:]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_comes_back_as_it_was_sent(request_: object) -> None:
    header, read = codec.decode_request("REPLICATION", frame_of(request_), codec.LEGACY_LISTENERS)
    assert read == request_
    assert (header.correlation, header.client) == (5, "broker-7")


@pytest.mark.parametrize("response", RESPONSES, ids=lambda one: type(one).__name__)
def test_a_response_comes_back_as_it_was_sent(response: object) -> None:
    (api,) = (api for api in codec.LEGACY_APIS if api.response is type(response))
    frame = codec.encode_response(codec.Header(api, api.max_version, 5, ""), response)
    assert codec.decode_response(api.request, frame[4:], codec.LEGACY_CALLS) == (5, response)


UPDATED = (
    struct.pack(">iiii", 1, 2, 3, 4)
    + struct.pack(">ii", 1, 3)
    + struct.pack(">i", 5)
    + struct.pack(">iii", 2, 3, 1)
    + struct.pack(">ii", 1, 1)
    + struct.pack(">iiii", 1, 3, 1, 9092)
    + struct.pack(">h8sh6sh", 8, b"broker-3", 6, b"CLIENT", 0)
    + struct.pack(">h", -1)
)
"""A partition and a live broker of UpdateMetadata: one endpoint, and no rack."""


def test_the_bytes_are_those_of_the_documents() -> None:
    """Written by hand from the schemas: numbers big-endian, strings and arrays with lengths."""
    heartbeat, change, states, update, stop, shutdown = REQUESTS

    def header(key: int, version: int) -> bytes:
        return struct.pack(">hhih8s", key, version, 5, 8, b"broker-7")

    orders = struct.pack(">h6s", 6, b"orders")
    assert frame_of(heartbeat) == header(10_343, 0) + struct.pack(">iqb", 7, 1 << 40, 2)
    assert frame_of(change) == (
        header(10_344, 0)
        + struct.pack(">iq", 7, 1 << 40)
        + struct.pack(">i", 1)
        + orders
        + struct.pack(">i", 2)
        + struct.pack(">iiiii", 4, 0, 2, 7, 8)
        + struct.pack(">iii", 5, 1, 0)
    )
    assert frame_of(states) == (
        header(4, 2)
        + struct.pack(">iiq", 1, 2, 1 << 33)
        + struct.pack(">i", 1)
        + orders
        + struct.pack(">i", 1)
        + struct.pack(">iiii", 1, 2, 3, 4)
        + struct.pack(">iii", 2, 3, 1)
        + struct.pack(">i", 5)
        + struct.pack(">iiii", 3, 3, 1, 2)
        + b"\x01"
        + struct.pack(">iih8si", 1, 3, 8, b"broker-3", 9092)
    )
    assert frame_of(update) == (
        header(6, 5)
        + struct.pack(">iiq", 1, 2, 1 << 33)
        + struct.pack(">i", 1)
        + orders
        + struct.pack(">i", 1)
        + UPDATED
    )
    assert frame_of(stop) == (
        header(5, 1)
        + struct.pack(">iiq?", 1, 2, 1 << 33, False)
        + struct.pack(">i", 1)
        + orders
        + struct.pack(">iii", 2, 0, 1)
    )
    assert frame_of(shutdown) == header(7, 2) + struct.pack(">iq", 3, 1 << 33)


def test_the_bytes_of_answers_to_control_requests_are_kafkas() -> None:
    def bytes_of(response: object) -> bytes:
        (api,) = (api for api in codec.LEGACY_APIS if api.response is type(response))
        frame = codec.encode_response(codec.Header(api, api.max_version, 5, ""), response)
        correlation, body = frame[4:8], frame[8:]
        assert correlation == struct.pack(">i", 5)
        return body

    states, update, stop, shutdown = RESPONSES[2:]
    orders = struct.pack(">h6si", 6, b"orders", 1)
    one_partition = struct.pack(">i", 1) + orders + struct.pack(">h", Error.NONE)
    assert bytes_of(states) == struct.pack(">h", Error.STALE_BROKER_EPOCH) + one_partition
    assert bytes_of(update) == struct.pack(">h", Error.STALE_CONTROLLER_EPOCH)
    assert bytes_of(stop) == struct.pack(">h", Error.NONE) + one_partition
    assert bytes_of(shutdown) == struct.pack(">hi", Error.NONE, 1) + orders


WITHOUT_EPOCH = tuple(
    msgspec.structs.replace(one, broker_epoch=legacy.NO_EPOCH) for one in REQUESTS[2:]
)
EARLIER = {"LeaderAndIsr": 1, "UpdateMetadata": 4, "StopReplica": 0, "ControlledShutdown": 1}


@pytest.mark.parametrize("request_", WITHOUT_EPOCH, ids=lambda one: type(one).__name__)
def test_a_request_without_a_broker_epoch_is_sent_in_the_version_before(request_: object) -> None:
    """BE-10."""
    header, read = codec.decode_request("REPLICATION", frame_of(request_), codec.LEGACY_LISTENERS)
    assert read == request_
    assert header.version == EARLIER[header.api.name]


def test_the_bytes_without_a_broker_epoch_name_the_topic_with_each_partition() -> None:
    """Written by hand from Kafka's schemas of the versions before KIP-380."""
    states, update, stop, shutdown = WITHOUT_EPOCH

    def header(key: int, version: int) -> bytes:
        return struct.pack(">hhih8s", key, version, 5, 8, b"broker-7")

    orders = struct.pack(">h6s", 6, b"orders")
    assert frame_of(states) == (
        header(4, 1)
        + struct.pack(">iii", 1, 2, 1)
        + orders
        + struct.pack(">iiii", 1, 2, 3, 4)
        + struct.pack(">iii", 2, 3, 1)
        + struct.pack(">i", 5)
        + struct.pack(">iiii", 3, 3, 1, 2)
        + b"\x01"
        + struct.pack(">iih8si", 1, 3, 8, b"broker-3", 9092)
    )
    assert frame_of(update) == (header(6, 4) + struct.pack(">iii", 1, 2, 1) + orders + UPDATED)
    assert frame_of(stop) == (
        header(5, 0)
        + struct.pack(">ii?i", 1, 2, False, 2)
        + (orders + struct.pack(">i", 0))
        + (orders + struct.pack(">i", 1))
    )
    assert frame_of(shutdown) == header(7, 1) + struct.pack(">i", 3)


@pytest.mark.parametrize("request_", WITHOUT_EPOCH, ids=lambda one: type(one).__name__)
def test_the_answer_to_an_earlier_version_is_read_as_one_to_the_newest(request_: object) -> None:
    header, _ = codec.decode_request("REPLICATION", frame_of(request_), codec.LEGACY_LISTENERS)
    (response,) = (one for one in RESPONSES if isinstance(one, header.api.response))
    frame = codec.encode_response(header, response)[4:]
    assert codec.decode_response(type(request_), frame, codec.LEGACY_CALLS) == (5, response)


def test_a_topic_of_many_partitions_is_named_once() -> None:
    def size(partitions: int) -> int:
        topic = legacy.StopReplicaTopic(
            topic_name="orders", partition_indexes=tuple(range(partitions))
        )
        return len(
            frame_of(
                legacy.StopReplicaRequest(
                    controller_id=1,
                    controller_epoch=2,
                    broker_epoch=3,
                    delete_partitions=False,
                    topics=(topic,),
                )
            )
        )

    assert size(100) - size(1) == 99 * 4


def test_the_response_of_a_heartbeat_ends_with_the_current_state() -> None:
    """The header line of the document forgets the field, and its list of fields has it."""
    names = [one.name for one in fields(z.MetadataHeartbeatResponse)]
    assert names == ["error_code", "error_string", "current_state"]


@pytest.mark.parametrize(
    "request_", [*REQUESTS, *WITHOUT_EPOCH], ids=lambda one: type(one).__name__
)
def test_a_frame_that_is_cut_short_is_refused(request_: object) -> None:
    frame = frame_of(request_)
    for length in range(len(frame)):
        with pytest.raises(guard.Malformed):
            codec.decode_request("REPLICATION", frame[:length], codec.LEGACY_LISTENERS)


def test_no_other_listener_serves_them() -> None:
    for listener in ("CLIENT", "CONTROLLER", "REPLICATION"):
        with pytest.raises(codec.Unsupported):
            codec.decode_request(listener, frame_of(REQUESTS[0]))
