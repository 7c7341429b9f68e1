"""Snapshots as controllers stored them, sent in pieces."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from kafka_samples import SAMPLES, VERSIONS, schemas
from kio.schema.errors import ErrorCode
from kio.schema.fetch_snapshot.v0 import response as kio_response
from kio.schema.fetch_snapshot.v0.request import FetchSnapshotRequest
from kio.serial import entity_reader, entity_writer

from fencepost_clusters.apache_kafka.metadata.observer import frame
from fencepost_clusters.apache_kafka.metadata.records import Metadata
from fencepost_clusters.apache_kafka.metadata.snapshot import Snapshot
from fencepost_kafka import BrokerCommitted, FeatureFinalized, PartitionCommitted, TopicCommitted

RESPONSE: Any = kio_response


def stored(version: str) -> bytes:
    return (SAMPLES / f"snapshot-{version}.checkpoint").read_bytes()


def answered(
    data: bytes, size: int, position: int, error: ErrorCode = ErrorCode.none, at: str = "partition"
) -> bytes:
    """A controller's answer, without its length; an error is of the whole answer, or of the
    partition."""
    part = RESPONSE.PartitionSnapshot(
        index=0,
        error_code=error if at == "partition" else ErrorCode.none,
        snapshot_id=RESPONSE.SnapshotId(end_offset=40, epoch=7),
        current_leader=RESPONSE.LeaderIdAndEpoch(leader_id=101, leader_epoch=7),
        size=size,
        position=position,
        unaligned_records=data,
    )
    answer = RESPONSE.FetchSnapshotResponse(
        throttle_time=timedelta(0),
        error_code=error if at == "all" else ErrorCode.none,
        topics=(RESPONSE.TopicSnapshot(name="__cluster_metadata", partitions=(part,)),),
    )
    header = answer.__header_schema__(correlation_id=1)
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(answer))(buffer, answer)
    return buffer.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_a_snapshot_is_read_piece_by_piece(version: str, piece: int) -> None:
    data = stored(version)
    snapshot = Snapshot(40, 7)
    for at in range(0, len(data), piece):
        assert not snapshot.whole
        asked = snapshot.request(leader_epoch=7)
        assert asked.topics[0].partitions[0].position == at
        assert snapshot.take(answered(data[at : at + piece], len(data), at))
    assert snapshot.whole
    restored = Metadata().restore(39, snapshot.records(schemas(version)))
    brokers = {one.broker_id: one.fenced for one in restored if isinstance(one, BrokerCommitted)}
    assert set(brokers) == {1, 2, 3}
    topics = {one.topic for one in restored if isinstance(one, TopicCommitted)}
    partitions = [one for one in restored if isinstance(one, PartitionCommitted)]
    assert topics == {one.topic for one in partitions} == {"many", "orders"}
    assert len(partitions) == 12 + 3
    assert "metadata.version" in {
        one.feature for one in restored if isinstance(one, FeatureFinalized)
    }


@pytest.mark.parametrize("at", ["all", "partition"])
def test_an_answer_with_an_error_adds_nothing(at: str) -> None:
    snapshot = Snapshot(40, 7)
    assert not snapshot.take(answered(b"x", 1, 0, ErrorCode.snapshot_not_found, at))
    assert (snapshot.data, snapshot.whole) == (b"", False)


def test_a_piece_at_another_position_adds_nothing() -> None:
    snapshot = Snapshot(40, 7)
    assert snapshot.take(answered(b"abc", 9, 0))
    assert not snapshot.take(answered(b"abc", 9, 0))
    assert (snapshot.data, snapshot.whole) == (b"abc", False)


def test_a_request_is_decoded_as_kafka_decodes_it() -> None:
    sent = frame("me", 3, Snapshot(40, 7).request(5))
    asked: Any = Snapshot(40, 7).request(5)
    header, at = entity_reader(asked.__header_schema__)(sent, 4)
    read, end = entity_reader(FetchSnapshotRequest)(sent, 4 + at)
    assert (header.request_api_key, header.request_api_version) == (59, 0)
    assert 4 + at + end == len(sent)
    wanted = read.topics[0].partitions[0]
    assert (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch) == (40, 7)
    assert (wanted.current_leader_epoch, wanted.position) == (5, 0)
