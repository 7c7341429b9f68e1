"""A node's disk: written batches are there after a restart, damaged ones are cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.model.torn_files import torn, torn_files
from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.log.index import LogIndex
from fencepost_clusters.reference.shell.storage import Disk, Log
from fencepost_clusters.reference.simulation.disk import MemoryDisk
from fencepost_clusters.reference.wire import record_batch


def batch(base: int, count: int = 2, epoch: int = 1, size: int = 50) -> bytes:
    return record_batch.build([b"v" * size] * count, base, epoch, 1000 + base)


def filled(folder: Path, segment_bytes: int = 400) -> Log:
    log = Log(folder, segment_bytes)
    for base in range(0, 40, 2):
        log.append(batch(base))
    return log


def test_a_log_rolls_and_is_read_across_segments(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert len(list(tmp_path.glob("*.log"))) > 5
    whole = b"".join(batch(base) for base in range(0, 40, 2))
    assert log.read(0, 40) == whole
    assert log.read(10, 14) == batch(10) + batch(12)
    assert log.read(11, 12) == batch(10)  # the batch that holds the offset
    assert log.read(40, 40) == b""


def test_a_reopened_log_holds_the_written_batches(tmp_path: Path) -> None:
    filled(tmp_path).close()
    log = Log(tmp_path, 400)
    assert [e.base for e in log.entries] == list(range(0, 40, 2))
    assert log.read(0, 40) == b"".join(batch(base) for base in range(0, 40, 2))
    log.append(batch(40))
    assert log.read(38, 42) == batch(38) + batch(40)


def test_truncation_crosses_segments_and_survives(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncate(9)
    log.append(batch(8, epoch=2))
    log.close()
    again = Log(tmp_path, 400)
    assert [e.base for e in again.entries] == [0, 2, 4, 6, 8]
    assert again.entries[-1].epoch == 2


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_log_is_cut_off_at_the_first_damaged_batch(tmp_path: Path, damage: str) -> None:
    filled(tmp_path, segment_bytes=1 << 20).close()
    path = next(tmp_path.glob("*.log"))
    data = bytearray(path.read_bytes())
    size = len(batch(0))
    if damage == "cut":
        del data[5 * size + 30 :]
    else:
        data[5 * size + 70] ^= 0xFF
    path.write_bytes(data)
    log = Log(tmp_path, 1 << 20)
    assert [e.base for e in log.entries] == [0, 2, 4, 6, 8]
    assert log.cut_bytes > 0
    log.append(batch(10))
    log.close()
    assert [e.base for e in Log(tmp_path, 1 << 20).entries] == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("last_bytes", [1, 60, 61, 400, 5_000])
def test_torn_writes_leave_as_much_of_a_disk_in_memory_as_of_a_real_one(
    tmp_path: Path, last_bytes: int
) -> None:
    real, memory = Disk(tmp_path, 1 << 20), MemoryDisk()
    for name, batches in (("orders-0", 9), ("orders-1", 1), ("__kafka_metadata-0", 4)):
        for number in range(batches):
            real.log(name).append(batch(2 * number))
            memory.log(name).append(batch(2 * number))
        real.log(name).close()
    held = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.log")]
    changed: list[str] = []
    for path in torn_files(held, "[!_]*/*.log"):
        data = (tmp_path / path).read_bytes()
        (tmp_path / path).write_bytes(torn(data, last_bytes))
        changed += [path] if torn(data, last_bytes) != data else []
    assert len(changed) == (0 if last_bytes == 1 else 2), "a batch ends in a zero anyway"
    assert memory.damage("[!_]*/*.log", last_bytes) == changed
    again = Disk(tmp_path, 1 << 20)
    assert memory.recover().logs == again.recover().logs
    assert len(memory.log("__kafka_metadata-0").batches) == 4


def test_votes_and_checkpoints_survive(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 400)
    assert disk.vote() == (0, None)
    disk.store_vote(4, 102)
    disk.checkpoint({"orders-0": 7}, {"orders-0": 9})
    again = Disk(tmp_path, 400)
    assert again.vote() == (4, 102)
    assert again.watermarks() == {"orders-0": 7}


def test_a_deleted_log_is_gone(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 400)
    disk.log("orders-0").append(batch(0))
    disk.delete("orders-0")
    assert Disk(tmp_path, 400).recover().logs == {}


# ----------------------------------------------------------- the index against a naive duplicate of
# it

batches = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(-1, 2)), min_size=1, max_size=25
)


def built(shape: list[tuple[int, int, int]]) -> tuple[LogIndex, list[Entry]]:
    entries: list[Entry] = []
    end = epoch = 0
    for count, step, producer in shape:
        epoch += step
        entries.append(
            Entry(
                base=end,
                end=end + count,
                epoch=epoch,
                size=100 * count,
                max_timestamp=end,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=end,
            )
        )
        end += count
    return LogIndex(entries), entries


@given(batches, st.integers(0, 110))
def test_truncation_leaves_the_whole_batches_below(
    shape: list[tuple[int, int, int]], to: int
) -> None:
    index, entries = built(shape)
    index.truncate(to)
    kept = [e for e in entries if e.end <= to]
    assert index.end == (kept[-1].end if kept else 0)
    assert index.last_epoch == (kept[-1].epoch if kept else -1)
    for producer in range(3):
        assert list(index.producer(producer)) == [e for e in kept if e.producer_id == producer][-5:]


@given(batches, st.integers(0, 60))
def test_the_end_of_an_epoch_is_that_of_the_largest_not_above_it(
    shape: list[tuple[int, int, int]], epoch: int
) -> None:
    index, entries = built(shape)
    older = [e for e in entries if e.epoch <= epoch]
    assert index.end_for_epoch(epoch) == ((older[-1].epoch, older[-1].end) if older else (-1, 0))


@given(batches, st.integers(0, 100), st.integers(0, 100), st.integers(1, 900))
def test_a_span_is_whole_batches_from_the_offset_below_the_bound(
    shape: list[tuple[int, int, int]], offset: int, below: int, max_bytes: int
) -> None:
    index, entries = built(shape)
    wanted = [e for e in entries if e.end > offset]
    taken: list[Entry] = []
    for one in wanted:
        if one.end > below or (taken and sum(e.size for e in taken) + one.size > max_bytes):
            break
        taken.append(one)
    expected = (taken[0].base, taken[-1].end) if taken else (offset, offset)
    assert index.span(offset, below, max_bytes) == expected
