"""The snapshot with which a new quorum begins, compared with the one that Kafka's StorageTool
writes: `format --initial-controllers 101@controller-1:9093:AAAAAAAAAAAAAAAAAAAABQ`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import pytest
from kafka_samples import SAMPLES
from kio.records.readers import read_batch
from kio.schema.snapshot_header_record.v0 import SnapshotHeaderRecord
from kio.serial import entity_reader

from fencepost_clusters.apache_kafka.metadata.first_snapshot import Voter, first_snapshot

OURS = first_snapshot([Voter(101, UUID(int=5), "controller-1", 9093)], "CONTROLLER")
KAFKAS = (SAMPLES / "voters-4.3.1.checkpoint").read_bytes()
KAFKAS_OF_4_4 = (SAMPLES / "voters-4.4.0.checkpoint").read_bytes()
OURS_OF_4_4 = first_snapshot(
    [Voter(101, UUID(int=5), "controller-1", 9093)], "CONTROLLER", KAFKAS_OF_4_4
)
WRITTEN = pytest.mark.parametrize(
    ("ours", "kafkas"), [(OURS, KAFKAS), (OURS_OF_4_4, KAFKAS_OF_4_4)], ids=["4.3.1", "4.4.0"]
)


class Written(NamedTuple):
    """What a record says beside the time at which it was written."""

    epoch: int
    attributes: int
    offset: int
    key: bytes | None
    value: bytes | None


def written(data: bytes) -> list[Written]:
    found: list[Written] = []
    at = 0
    while at < len(data):
        batch, size = read_batch(data, at)
        at += size
        for record in batch.records:
            found.append(
                Written(
                    batch.partition_leader_epoch,
                    batch.attributes,
                    record.offset,
                    record.key,
                    record.value,
                )
            )
    return found


@WRITTEN
def test_it_has_the_records_that_kafka_writes(ours: bytes, kafkas: bytes) -> None:
    """From 4.4 on also those with which the metadata begins, at the offsets that Kafka gives."""
    assert len(ours) == len(kafkas)
    made, wanted = written(ours), written(kafkas)
    assert [one._replace(value=None) for one in made] == [
        one._replace(value=None) for one in wanted
    ]
    assert [one.value for one in made[1:]] == [one.value for one in wanted[1:]]


def test_its_header_names_the_time_of_its_records() -> None:
    """As Kafka's does: no record before it is newer."""
    for data in (OURS, KAFKAS, OURS_OF_4_4, KAFKAS_OF_4_4):
        batch, _ = read_batch(data, 0)
        header, _ = entity_reader(SnapshotHeaderRecord)(batch.records[0].value or b"", 0)
        assert 0 <= batch.base_timestamp - header.last_contained_log_timestamp < 1_000


def test_from_4_4_on_the_metadata_begins_in_it() -> None:
    kinds = [one.attributes for one in written(OURS_OF_4_4)]
    assert [one.offset for one in written(OURS_OF_4_4)] == list(range(10))
    assert kinds == [0x20] * 3 + [0] * 6 + [0x20]


def test_all_controllers_begin_with_the_same_bytes() -> None:
    voters = [Voter(node, UUID(int=node), f"controller-{node}", 9093) for node in (1, 2, 3)]
    assert first_snapshot(voters, "CONTROLLER") == first_snapshot(voters, "CONTROLLER")
