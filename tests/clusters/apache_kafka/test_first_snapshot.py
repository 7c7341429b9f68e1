"""The snapshot with which a new quorum begins, compared with the one that Kafka's StorageTool
writes: `format --initial-controllers 101@controller-1:9093:AAAAAAAAAAAAAAAAAAAABQ`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kafka_samples import SAMPLES
from kio.records.readers import read_batch
from kio.schema.snapshot_header_record.v0 import SnapshotHeaderRecord
from kio.serial import entity_reader

from fencepost_clusters.apache_kafka.metadata.first_snapshot import Voter, first_snapshot

OURS = first_snapshot([Voter(101, UUID(int=5), "controller-1", 9093)], "CONTROLLER")
KAFKAS = (SAMPLES / "voters-4.3.1.checkpoint").read_bytes()


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


def test_it_has_the_records_that_kafka_writes() -> None:
    ours, kafkas = written(OURS), written(KAFKAS)
    assert [one._replace(value=None) for one in ours] == [
        one._replace(value=None) for one in kafkas
    ]
    assert [one.value for one in ours[1:]] == [one.value for one in kafkas[1:]]
    assert len(OURS) == len(KAFKAS)


def test_its_header_names_the_time_of_its_records() -> None:
    """As Kafka's does: no record before it is newer."""
    for data in (OURS, KAFKAS):
        batch, _ = read_batch(data, 0)
        header, _ = entity_reader(SnapshotHeaderRecord)(batch.records[0].value or b"", 0)
        assert 0 <= batch.base_timestamp - header.last_contained_log_timestamp < 1_000


def test_all_controllers_begin_with_the_same_bytes() -> None:
    voters = [Voter(node, UUID(int=node), f"controller-{node}", 9093) for node in (1, 2, 3)]
    assert first_snapshot(voters, "CONTROLLER") == first_snapshot(voters, "CONTROLLER")
