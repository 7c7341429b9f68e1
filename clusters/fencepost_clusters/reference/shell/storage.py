"""A node's disk: segmented logs of whole record batches, the quorum's vote, high watermarks.

    <data>/<log>/<base offset, 20 digits>.log   batches as they came, each with its own checksum
    <data>/<log>/<offset, 20 digits>-<epoch, 10 digits>.checkpoint
                                                the metadata's snapshot: replaced atomically, synced
    <data>/quorum-state.json                    {"epoch", "voted_for"}: replaced atomically, synced
    <data>/high-watermarks.json                 {log: offset}: replaced atomically
    <data>/flushed-offsets.json                 {log: offset}: each log is synced below its offset

Opening a log reads every batch and checks its checksum; the log is cut off at the first damaged
batch. A log is synced when a segment is full, and with each checkpoint that asks for it. An
acknowledgement waits for no sync (replication design).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.log.entry import Entry, entry
from fencepost_clusters.reference.core.node.effects import Recovered
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME, Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import record_batch

_QUORUM = "quorum-state.json"
_WATERMARKS = "high-watermarks.json"
_FLUSHED = "flushed-offsets.json"


@dataclass(slots=True)
class _Segment:
    base: int
    path: Path
    fd: int
    size: int


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a batch: `segment` is the base offset of its segment."""

    base: int
    end: int
    segment: int
    position: int
    size: int


class Log:
    """One log on disk, open for appending and reading."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self.entries: list[Entry] = []
        self.cut_bytes = 0
        """How many bytes of damage were cut off when it was opened."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._places: list[_Place] = []
        self._segments: list[_Segment] = []
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.log")):
            # Segments behind a damaged one are dropped: a log has no gaps.
            if self.cut_bytes:
                path.unlink()
                continue
            self._recover(path)
        if not self._segments:
            self._roll(0)

    def _recover(self, path: Path) -> None:
        base = int(path.stem)
        fd = os.open(path, os.O_RDWR)
        data = path.read_bytes()
        at = 0
        while at < len(data):
            try:
                header = record_batch.parse(data, at)
            except record_batch.CorruptBatch:
                self.cut_bytes += len(data) - at
                # A damaged batch and all behind it go, though some of these may be whole: their
                # offsets would not follow on what is left.
                os.ftruncate(fd, at)
                break
            self.entries.append(entry(header))
            self._places.append(
                _Place(header.base_offset, header.last_offset + 1, base, at, header.size)
            )
            at += header.size
        self._segments.append(_Segment(base, path, fd, at))

    def _roll(self, base: int) -> _Segment:
        if self._segments:
            os.fsync(self._segments[-1].fd)
        path = self._folder / f"{base:020d}.log"
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._segments.append(_Segment(base, path, fd, 0))
        return self._segments[-1]

    def append(self, data: bytes) -> None:
        """Writes one batch at the end."""
        header = record_batch.parse(data, verify=False)
        segment = self._segments[-1]
        # An empty segment takes a batch of any size: otherwise one that is larger than a segment
        # could never be stored.
        if segment.size and segment.size + len(data) > self._segment_bytes:
            segment = self._roll(header.base_offset)
        written = 0
        while written < len(data):  # a disk that is nearly full accepts a part, and then nothing
            written += os.pwrite(segment.fd, data[written:], segment.size + written)
        self._places.append(
            _Place(
                header.base_offset, header.last_offset + 1, segment.base, segment.size, len(data)
            )
        )
        segment.size += len(data)

    def sync(self) -> None:
        """Syncs the last segment to the disk; full segments are synced already."""
        os.fsync(self._segments[-1].fd)

    def truncate(self, to_offset: int) -> None:
        """Drops every batch that reaches past an offset."""
        while self._places and self._places[-1].end > to_offset:
            gone = self._places.pop()
            # Segments behind that of the batch are empty by then.
            while self._segments[-1].base != gone.segment:
                self._drop_last_segment()
            os.ftruncate(self._segments[-1].fd, gone.position)
            self._segments[-1].size = gone.position

    def _drop_last_segment(self) -> None:
        segment = self._segments.pop()
        os.close(segment.fd)
        segment.path.unlink()

    def read(self, start: int, end: int) -> bytes:
        """The whole batches from the one at `start` up to offset `end`, as bytes."""
        first = bisect_right(self._places, start, key=lambda p: p.end)
        last = bisect_left(self._places, end, key=lambda p: p.end)
        chunks: list[bytes] = []
        run: list[_Place] = []
        for place in self._places[first : last + 1]:
            # Batches of one segment lie one behind the other, so that one read gets them all.
            if run and run[-1].segment != place.segment:
                chunks.append(self._read_run(run))
                run = []
            run.append(place)
        if run:
            chunks.append(self._read_run(run))
        return b"".join(chunks)

    def _read_run(self, run: list[_Place]) -> bytes:
        at = bisect_right(self._segments, run[0].segment, key=lambda s: s.base) - 1
        size = run[-1].position + run[-1].size - run[0].position
        return os.pread(self._segments[at].fd, size, run[0].position)

    def drop_below(self, offset: int) -> None:
        """Drops the segments that end at or before an offset; the last segment stays."""
        while len(self._segments) > 1:
            first = self._segments[0]
            # A segment is a file, and goes as a whole or stays.
            if any(p.segment == first.base and p.end > offset for p in self._places):
                break
            self._places = [p for p in self._places if p.segment != first.base]
            os.close(first.fd)
            first.path.unlink()
            del self._segments[0]

    def batches(self) -> tuple[bytes, ...]:
        """Every batch, one by one."""
        return tuple(self.read(p.base, p.end) for p in self._places)

    def close(self) -> None:
        """Closes the segments' files."""
        for segment in self._segments:
            os.close(segment.fd)
        self._segments.clear()


class DamagedFile(ValueError):
    """A file that a node wrote and can no longer read; the message names it."""


class _Vote(msgspec.Struct, frozen=True):
    epoch: int
    voted_for: int | None


class Disk:
    """All of a node's files; see the module."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._segment_bytes = segment_bytes
        self.logs: dict[str, Log] = {}

    def stored(self) -> DiskContents:
        """The contents that a starting process reads, before it recovers the logs of partitions."""
        epoch, voted_for = self.vote()
        metadata = self.log(LOG_NAME).batches() if (self.folder / LOG_NAME).exists() else ()
        return DiskContents(metadata, Vote(epoch, voted_for), self.snapshot(LOG_NAME))

    def recover(self) -> Recovered:
        """Opens every log but the metadata's, and returns their contents."""
        names = sorted(path.name for path in self.folder.iterdir() if path.is_dir())
        logs = {name: tuple(self.log(name).entries) for name in names if name != LOG_NAME}
        return Recovered(logs, self.watermarks())

    def snapshot(self, log: str) -> Snapshot | None:
        """The newest snapshot of a log; raises DamagedFile for one of another form."""
        paths = sorted((self.folder / log).glob("*.checkpoint"))
        if not paths:
            return None
        named = re.fullmatch(r"(\d{20})-(\d{10}|-1)", paths[-1].stem)
        if named is None:
            raise DamagedFile(f"{paths[-1].name} is not named as a snapshot is")
        return Snapshot(int(named[1]), int(named[2]), paths[-1].read_bytes())

    def store_snapshot(self, log: str, offset: int, epoch: int, data: bytes) -> None:
        """Stores a snapshot, synced; then drops older snapshots, and the part of the log that it
        replaces."""
        folder = self.folder / log
        number = "-1" if epoch < 0 else f"{epoch:010d}"
        path = folder / f"{offset:020d}-{number}.checkpoint"
        # The snapshot is on the disk before anything that it replaces is dropped: a crash in
        # between leaves both.
        self._replace(path, data, sync=True)
        for older in folder.glob("*.checkpoint"):
            if older != path:
                older.unlink()
        self.log(log).drop_below(offset)

    def log(self, name: str) -> Log:
        """A log by name; creates it if it does not exist."""
        if name not in self.logs:
            self.logs[name] = Log(self.folder / name, self._segment_bytes)
        return self.logs[name]

    def read(self, log: str, start: int, end: int) -> bytes:
        """The whole batches of a log from the one at `start` up to offset `end`."""
        return self.log(log).read(start, end)

    def delete(self, name: str) -> None:
        """Removes a log and its data."""
        known = self.logs.pop(name, None)
        if known is not None:
            known.close()
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def vote(self) -> tuple[int, int | None]:
        """The stored epoch and vote; (0, None) on a new disk. Raises DamagedFile."""
        path = self.folder / _QUORUM
        if not path.exists():
            return 0, None
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_Vote)
        except msgspec.MsgspecError as error:
            raise DamagedFile(f"{_QUORUM} cannot be read: {error}") from error
        return stored.epoch, stored.voted_for

    def store_vote(self, epoch: int, voted_for: int | None) -> None:
        """Stores epoch and vote so that they survive a loss of power."""
        self._store(_QUORUM, {"epoch": epoch, "voted_for": voted_for}, sync=True)

    def watermarks(self) -> Mapping[str, int]:
        """The checkpointed high watermarks, by log."""
        path = self.folder / _WATERMARKS
        return json.loads(path.read_text()) if path.exists() else {}

    def checkpoint(self, watermarks: Mapping[str, int], flushed: Mapping[str, int]) -> None:
        """Stores the high watermarks, and the flushed offset of each log."""
        self._store(_WATERMARKS, watermarks, sync=False)
        self._store(_FLUSHED, flushed, sync=False)

    def _store(self, name: str, value: object, sync: bool) -> None:
        self._replace(self.folder / name, json.dumps(value).encode(), sync)

    @staticmethod
    def _replace(path: Path, data: bytes, sync: bool) -> None:
        path.parent.mkdir(exist_ok=True)
        # The file is written under another name and then renamed: a crash leaves the old file or
        # the new one, and no half of one.
        temporary = path.with_name(f"{path.name}.new")
        with temporary.open("wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if sync:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # syncs the new name, too
            finally:
                os.close(folder)
