"""The codec: messages survive a round trip, and bytes that are no message are refused without
harm."""

from __future__ import annotations

import contextlib
import struct
import uuid
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from fencepost_clusters.reference.core.cluster.changes import CHANGES, Changes
from fencepost_clusters.reference.core.quorum.controller.changes import CHANGES as QUORUM_CHANGES
from fencepost_clusters.reference.wire import codec, guard, record_batch, records
from fencepost_clusters.reference.wire import messages as m

TOPIC = uuid.UUID(int=7)
FETCH = m.FetchRequest(
    max_wait=300,
    min_bytes=1,
    max_bytes=1000,
    topics=(
        m.FetchTopic(
            partitions=(
                m.FetchPartition(
                    partition=0,
                    fetch_offset=5,
                    partition_max_bytes=100,
                    current_leader_epoch=3,
                    last_fetched_epoch=2,
                ),
            ),
            topic="",
            topic_id=TOPIC,
        ),
    ),
    replica_state=m.ReplicaState(replica_id=2, replica_epoch=77),
)
HEARTBEAT = m.BrokerHeartbeatRequest(
    target_state=3,
    broker_id=1,
    broker_epoch=-1,
    lease_start_time_ms=5,
    cur_metadata_offset=6,
    listeners=(m.Listener(name="CLIENT", host="broker-1", port=40_000),),
    incarnation_id=TOPIC,
    current_state=2,
)
ALTER = m.AlterPartitionRequest(
    broker_id=1,
    broker_epoch=9,
    topics=(
        m.AlterPartitionTopic(
            topic_id=TOPIC,
            partitions=(
                m.AlterPartitionData(
                    partition_index=0,
                    leader_epoch=4,
                    new_isr_with_epochs=(m.IsrMember(broker_id=1, broker_epoch=9),),
                ),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("listeners", "changes", "deciding"),
    [
        (codec.LISTENERS, QUORUM_CHANGES, ("CONTROLLER",)),
        (codec.LEGACY_LISTENERS, CHANGES, ("REPLICATION",)),
        (codec.CLASSIC_LISTENERS, CHANGES, ()),
    ],
    ids=("quorum", "legacy", "classic"),
)
def test_what_a_plane_decides_for_clients_is_served_by_its_listeners(
    listeners: codec.Listeners, changes: Changes[Any], deciding: tuple[str, ...]
) -> None:
    forwarded = {kind for kind, row in changes.rows.items() if row.forwarded}
    for listener in ("CLIENT", *deciding):
        assert forwarded <= {api.request for api in listeners[listener].values()}


@pytest.mark.parametrize(
    ("listener", "request_"),
    [("REPLICATION", FETCH), ("CONTROLLER", HEARTBEAT), ("CONTROLLER", ALTER)],
)
def test_a_request_between_nodes_comes_back_as_it_went(listener: str, request_: m.Request) -> None:
    frame = codec.encode_request("broker-1#3", 7, request_)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, decoded = codec.decode_request(listener, frame[4:])
    assert decoded == request_
    assert (header.client, header.correlation) == ("broker-1#3", 7)


def test_a_fetch_answer_comes_back_with_where_the_logs_part() -> None:
    header, _ = codec.decode_request("REPLICATION", codec.encode_request("b", 1, FETCH)[4:])
    part = m.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=5,
        last_stable_offset=5,
        log_start_offset=0,
        diverging_epoch=m.EpochEndOffset(epoch=1, end_offset=2),
        current_leader=m.LeaderIdAndEpoch(leader_id=101, leader_epoch=3),
        records=b"abc",
    )
    answer = m.FetchResponse(
        error_code=0,
        responses=(m.FetchableTopicResponse(partitions=(part,), topic="", topic_id=TOPIC),),
    )
    frame = codec.encode_response(header, answer)
    assert codec.decode_response(m.FetchRequest, frame[4:]) == (1, answer)


def test_every_version_offered_can_be_read_and_answered() -> None:
    for listener in codec.LISTENERS.values():
        for api in listener.values():
            for version in range(api.min_version, api.max_version + 1):
                # Each raises when a plain message and a version of it do not fit.
                codec._from_entity(codec._request_schema(api.key, version), api.request)
                codec._to_entity(api.response, codec._response_schema(api.key, version))


@pytest.mark.parametrize(("key", "version"), [(1, 12), (2, 5), (3, 9), (3, 12), (19, 4), (19, 7)])
def test_clients_that_want_newer_versions_find_them(key: int, version: int) -> None:
    header = codec.Header(codec.LISTENERS["CLIENT"][18], 3, 1, "")
    (api,) = (x for x in codec.api_versions("CLIENT", header).api_keys if x.api_key == key)
    assert api.min_version <= version <= api.max_version


def test_librdkafkas_request_for_all_topics_is_read_in_the_newest_version() -> None:
    """It writes the null list of topics in four bytes, of which three are left over."""
    newest = codec.LISTENERS["CLIENT"][3].max_version
    head = struct.pack(">hhih", 3, newest, 7, 1) + b"x" + b"\0"
    _, request = codec.decode_request("CLIENT", head + b"\0\0\0\0" + b"\0\0\0")
    assert request == m.MetadataRequest(topics=None)


def test_heartbeats_of_kip_631_are_advertised_to_no_client() -> None:
    for listener in codec.LISTENERS:
        header = codec.Header(codec.LISTENERS[listener][18], 3, 1, "")
        keys = {api.api_key for api in codec.api_versions(listener, header).api_keys}
        assert not keys & {50, 51}


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_layout() -> None:
    frame = (18).to_bytes(2, "big") + (99).to_bytes(2, "big") + (5).to_bytes(4, "big") + b"\0\0"
    header, request = codec.decode_request("CLIENT", frame)
    assert isinstance(request, m.ApiVersionsRequest)
    answer = codec.api_versions("CLIENT", header)
    assert answer.error_code == 35
    assert len(codec.encode_response(header, answer)) == 4 + 4 + 2 + 4 + 6 * len(answer.api_keys)


def test_an_api_of_another_listener_is_refused() -> None:
    with pytest.raises(codec.Unsupported, match="API 50"):
        codec.decode_request("CLIENT", codec.encode_request("b", 1, HEARTBEAT)[4:])


@given(st.data())
def test_altered_bytes_are_a_message_or_malformed_and_nothing_else(data: st.DataObject) -> None:
    request = data.draw(st.sampled_from([("REPLICATION", FETCH), ("CONTROLLER", ALTER)]))
    frame = bytearray(codec.encode_request("broker-1#3", 7, request[1])[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    with contextlib.suppress(guard.Malformed):
        codec.decode_request(request[0], bytes(frame[:cut]))


def test_a_length_that_would_exhaust_memory_is_refused_before_it_is_believed() -> None:
    frame = codec.encode_request("b", 1, FETCH)[4:]
    at = frame.index(TOPIC.bytes) - 1  # the compact count of topics
    broken = frame[:at] + b"\xff\xff\xff\xff\x0f" + frame[at + 1 :]
    with pytest.raises(guard.Malformed, match="array"):
        codec.decode_request("REPLICATION", broken)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.integers(0, 1 << 40))
def test_a_built_batch_is_read_back(values: list[bytes], base: int) -> None:
    batch = record_batch.build(values, base, 3, 1_700_000_000_000)
    header = record_batch.parse(batch)
    assert (header.base_offset, header.last_offset) == (base, base + len(values) - 1)
    assert record_batch.values(batch) == tuple(values)
    stamped = record_batch.stamp(batch, 17, 9)
    assert record_batch.parse(stamped).crc == header.crc  # the stamp is outside the checksum
    assert (record_batch.parse(stamped).base_offset, record_batch.parse(stamped).leader_epoch) == (
        17,
        9,
    )


@given(st.integers(0, 200), st.integers(1, 255))
def test_one_altered_byte_of_a_batch_is_noticed(at: int, flip: int) -> None:
    batch = bytearray(record_batch.build([b"x" * 200], 5, 3, 1))
    where = record_batch.CRC_FROM + at
    batch[where] ^= flip
    with pytest.raises(record_batch.CorruptBatch):
        record_batch.parse(bytes(batch))
    assert crc32c(bytes(batch[record_batch.CRC_FROM :])) != 0


RECORDS = [
    records.BrokerRecord(
        broker_id=1,
        broker_epoch=5,
        end_points=(records.EndPoint(name="CLIENT", host="x", port=40_000),),
        fenced=True,
        incarnation_id=TOPIC,
    ),
    records.TopicRecord(name="orders", topic_id=TOPIC),
    records.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(1, 2), isr=(1,), leader=1, leader_epoch=0
    ),
    records.IsrChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,), leader=1, leader_epoch=2),
    records.ConfigRecord(resource_type=2, resource_name="orders", name="a", value="b"),
    records.DeleteTopicRecord(name=TOPIC),
    records.DeleteBrokerRecord(id=3),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_a_metadata_record_begins_with_its_type_and_version(record: records.Record) -> None:
    value = records.encode(record)
    assert value[0] == records.TYPE_OF[type(record)]
    assert value[1] == 0
    assert records.decode(value) == record


@pytest.mark.parametrize("value", [b"\x08\x00", b"\x00\x01", b"", b"\xff\xff\xff\xff\xff\xff"])
def test_an_unknown_metadata_record_is_refused(value: bytes) -> None:
    with pytest.raises(records.UnknownRecord):
        records.decode(value)
