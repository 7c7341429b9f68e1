"""Which files of a disk a torn write damages, and what they hold then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath


def torn_files(paths: Iterable[str], files: str) -> Sequence[str]:
    """The files to damage: of each folder, the last by name of those that match.

    `paths` are relative to the disk. `files` is a pattern of pathlib's match, which compares from
    the right: orders-*/*.log.
    """
    newest: dict[PurePosixPath, PurePosixPath] = {}
    # In the order of names, so the last one of each folder stays: a log's newest file has the
    # largest name.
    for path in sorted(map(PurePosixPath, paths)):
        if path.match(files):
            newest[path.parent] = path
    return [str(path) for path in newest.values()]


def torn(data: bytes, last_bytes: int) -> bytes:
    """The content after a torn write: the file is as long as before, and ends in zeros."""
    kept = max(0, len(data) - last_bytes)
    return data[:kept] + bytes(len(data) - kept)
