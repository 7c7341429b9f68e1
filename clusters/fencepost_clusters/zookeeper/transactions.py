"""ZooKeeper's transaction log: each change of a znode that a server has stored, with its data.

A server appends a transaction to its newest file `version-2/log.<zxid>` before it takes effect. So
its disk has every state of a znode, those included that were replaced before any client read them.
The format is ZooKeeper's own (FileTxnLog; jute, big-endian), the same from 3.4 to 3.9. A file is
longer than its transactions: zeros follow, or after a kill a part of one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct as Layout
from typing import NamedTuple, final
from zlib import adler32

_MAGIC = b"ZKLG"
_FILE_HEADER = Layout(">4siq")
_INT, _LONG = Layout(">i"), Layout(">q")
_HEADER = Layout(">qiqqi")
"""A transaction's session, its number there, zxid, time in milliseconds, and type."""
_END = b"B"
_ERROR, _CREATE, _SET_DATA, _MULTI, _CREATE_2 = -1, 1, 5, 14, 15
_FOLDER = "version-2"


class Change(NamedTuple):
    """A znode's data as one transaction created or set it; `at_ns` is of the wall clock, in whole
    milliseconds. `version` is 0 for a znode that was created."""

    zxid: int
    at_ns: int
    path: str
    version: int
    data: bytes


class _CutShort(Exception):
    """The bytes end before the value does."""


@final
class _Bytes:
    """Reads values of jute one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise _CutShort
        taken = self._data[self._at : end]
        self._at = end
        return bytes(taken)

    def number(self) -> int:
        return int(_INT.unpack(self.take(_INT.size))[0])

    def long(self) -> int:
        return int(_LONG.unpack(self.take(_LONG.size))[0])

    def buffer(self) -> bytes:
        """Bytes after their length; a length of -1 stands for none."""
        return self.take(max(0, self.number()))


def changes(log: bytes) -> Iterator[Change]:
    """The changes in one file of the log, in order, up to its first incomplete transaction.

    Raises ValueError for bytes that are no transaction log.
    """
    read = _Bytes(log)
    try:
        magic, _, _ = _FILE_HEADER.unpack(read.take(_FILE_HEADER.size))
        if magic != _MAGIC:
            raise ValueError(f"a transaction log begins with {_MAGIC!r}, not {magic!r}")
        while True:
            checksum, transaction = read.long(), read.buffer()
            if not transaction or adler32(transaction) != checksum or read.take(1) != _END:
                return
            yield from _changes(transaction)
    except _CutShort:
        return


def _changes(transaction: bytes) -> Iterator[Change]:
    read = _Bytes(transaction)
    _, _, zxid, at_ms, kind = _HEADER.unpack(read.take(_HEADER.size))
    parts = [(kind, read)]
    if kind == _MULTI:
        parts = [(read.number(), _Bytes(read.buffer())) for _ in range(read.number())]
    if any(kind_of_part == _ERROR for kind_of_part, _ in parts):
        return  # it was refused, and has no effect
    for kind_of_part, part in parts:
        if kind_of_part in (_CREATE, _CREATE_2, _SET_DATA):
            path, data = part.buffer().decode(), part.buffer()
            version = part.number() if kind_of_part == _SET_DATA else 0
            yield Change(zxid, at_ms * 1_000_000, path, version, data)


def logged(disk: Path) -> Iterator[Change]:
    """The changes in all log files of a server's disk, by their zxid. A file that is no log ends
    them, since what follows would have a gap; a disk without logs has none."""
    named: list[tuple[int, Path]] = []
    for path in (disk / _FOLDER).glob("log.*"):
        try:
            named.append((int(path.suffix[1:], 16), path))
        except ValueError:
            continue  # not one of the server's files
    for _, path in sorted(named):
        try:
            yield from changes(path.read_bytes())
        except ValueError:
            return
