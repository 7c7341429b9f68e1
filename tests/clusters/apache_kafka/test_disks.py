"""What is read of the disks of Kafka's nodes, after bytes that Kafka 4.3.1 wrote."""

from __future__ import annotations

from pathlib import Path

from fencepost import Slot
from fencepost_clusters.apache_kafka.disks import segments, stored_batches
from fencepost_kafka import Role, SegmentFound

SEGMENT = (Path(__file__).parent / "samples" / "4.3.1-segment.log").read_bytes()
"""The first three batches of a log, each with one message of a producer that is not idempotent."""
BATCH = len(SEGMENT) // 3
FIRST = "00000000000000000000.log"


def slot(number: int) -> Slot:
    return Slot(name=f"broker-{number}", role=Role.BROKER, node_id=number, index=number)


def log(disk: Path, name: str, data: bytes = SEGMENT, first: str = FIRST) -> None:
    (disk / name).mkdir(parents=True, exist_ok=True)
    (disk / name / first).write_bytes(data)


def read(*disks: Path) -> list[SegmentFound]:
    slots = [slot(number) for number in range(1, len(disks) + 1)]
    return list(segments({one.name: disk for one, disk in zip(slots, disks, strict=True)}, slots))


def test_the_batches_of_a_segment() -> None:
    found = list(stored_batches(SEGMENT))
    assert [(one.base_offset, one.end, one.leader_epoch) for one in found] == [
        (0, 1, 0),
        (1, 2, 0),
        (2, 3, 0),
    ]
    assert {(one.producer_id, one.producer_epoch, one.base_sequence) for one in found} == {
        (-1, -1, -1)
    }
    assert len({one.digest for one in found}) == 3


def test_a_batch_that_was_cut_short_is_not_read() -> None:
    for size in (0, 1, 16, BATCH - 1, BATCH):
        assert len(list(stored_batches(SEGMENT[:size]))) == (size == BATCH)
    assert len(list(stored_batches(SEGMENT[: 2 * BATCH + 61]))) == 2


def test_zeros_after_the_last_batch_are_no_batch() -> None:
    """A segment may be longer than its batches."""
    assert len(list(stored_batches(SEGMENT + bytes(200)))) == 3


def test_each_byte_of_a_batch_counts() -> None:
    (first, *_) = stored_batches(SEGMENT)
    for at in (12, 17, 21, 60, BATCH - 1):
        damaged = bytearray(SEGMENT)
        damaged[at] ^= 1
        (other, *_) = stored_batches(bytes(damaged))
        assert other.digest != first.digest


def test_the_segments_of_a_disk_with_what_is_checkpointed(tmp_path: Path) -> None:
    log(tmp_path, "orders-0", SEGMENT[: 2 * BATCH])
    log(tmp_path, "orders-0", SEGMENT[2 * BATCH :], "00000000000000000002.log")
    (tmp_path / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: Xxow5Q4L\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\norders 1 9\norders 0 2\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    one, two = read(tmp_path)
    assert (one.slot, one.node_id, one.topic, one.partition) == ("broker-1", 1, "orders", 0)
    assert (one.topic_id, one.log_start, one.high_watermark) == ("Xxow5Q4L", 1, 2)
    assert (one.base_offsets, one.log_end) == ((0, 1), 2)
    assert (two.base_offsets, two.log_end) == ((2,), 3)


def test_an_empty_log_has_one_segment_without_batches(tmp_path: Path) -> None:
    log(tmp_path, "orders-0", b"", "00000000000000000007.log")
    (one,) = read(tmp_path)
    assert (one.base_offsets, one.log_end, one.topic_id) == ((), 7, "")
    assert (one.log_start, one.high_watermark) == (-1, -1)


def test_a_disk_that_was_never_used_has_no_segments(tmp_path: Path) -> None:
    assert read(tmp_path / "missing") == []


def test_internal_topics_and_logs_that_are_deleted_or_moved_are_left_out(tmp_path: Path) -> None:
    for name in (
        *("orders-0", "__cluster_metadata-0", "__consumer_offsets-0"),
        *("orders-1.0f3c-delete", "orders-2.0f3c-future", "orders-3.0f3c-stray"),
    ):
        log(tmp_path, name)
    (tmp_path / "not-a-log-0").write_text("a file")
    assert [one.topic for one in read(tmp_path)] == ["__cluster_metadata", "orders"]


def test_a_log_that_any_broker_has_cleaned_is_left_out_everywhere(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for disk in (first, second):
        log(disk, "orders-0")
        log(disk, "audit-0")
    (second / "cleaner-offset-checkpoint").write_text("0\n1\naudit 0 2\n")
    assert [one.topic for one in read(first, second)] == ["orders", "orders"]


def test_a_checkpoint_that_is_cut_short_has_the_lines_it_has(tmp_path: Path) -> None:
    log(tmp_path, "orders-0")
    log(tmp_path, "orders-1")
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"0\n2\norders 0 2\norders 1")
    assert [one.high_watermark for one in read(tmp_path)] == [2, -1]
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"\xff\x00")
    assert [one.high_watermark for one in read(tmp_path)] == [-1, -1]
