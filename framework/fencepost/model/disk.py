"""Files that this machine does not take, or does not execute, as errors of the environment."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fencepost.model.errors import EnvironmentFailed

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors of a disk, or of a quota or a limit of the user's, that is used up."""

LEAST_BYTES = 64 * 1024
"""A process that dies while a disk has less left than this may have died of it."""


@contextmanager
def written_to(path: Path, needed: int | None = None) -> Iterator[None]:
    """Raises EnvironmentFailed for an OSError of the block, which writes to this file or folder.

    The sentence names the file. If the disk is full, it says how many bytes were `needed` and how
    many are free.
    """
    try:
        yield
    except OSError as failed:
        raise EnvironmentFailed(_sentence(failed, path, needed)) from failed


def disk_failure(failed: OSError) -> EnvironmentFailed | None:
    """The error of the environment that an OSError from anywhere stands for, if it does so by its
    number alone: a full disk, or a disk that fails."""
    if failed.errno not in FULL | {errno.EIO, errno.EROFS}:
        return None
    name = failed.filename
    place = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else None
    return EnvironmentFailed(_sentence(failed, place, None))


def _sentence(failed: OSError, path: Path | None, needed: int | None) -> str:
    where = "a file, or the standard output," if path is None else str(path)
    if failed.errno not in FULL:
        return f"{where} cannot be written: {failed.strerror}"
    how_much = "more space" if needed is None else f"{needed} bytes more"
    free = None if path is None else _free(path)
    left = "" if free is None else f", and {free} bytes are free there"
    return f"the disk is full: {where} needs {how_much}{left}"


def if_full(path: Path) -> str:
    """A clause that says that the disk of this folder is full, to add to a message; else empty."""
    free = _free(path)
    if free is None or free >= LEAST_BYTES:
        return ""
    return f"; the disk is full: {free} bytes are free at {path}"


def if_noexec(program: Path) -> str:
    """A clause that says that no program in this one's folder can be executed, to add to a message;
    else empty."""
    try:
        denied = program.is_absolute() and os.statvfs(program.parent).f_flag & os.ST_NOEXEC
    except OSError:
        denied = False
    if not denied:
        return ""
    return f"; {program.parent} is mounted noexec, so no program in it can be executed"


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)(i?)B")
NO_SIZE = "is no size such as 500MB, 5GB or 2GiB"
"""What a text is of which `size_of` is None."""


def size_of(text: str) -> int | None:
    """The bytes of a size such as 500MB, 5GB or 2GiB; None for another text."""
    found = _SIZE.fullmatch(text)
    if found is None or (found[3] and not found[2]):
        return None
    unit = _UNITS[found[2]]
    if found[3]:
        unit = 1 << 10 * list(_UNITS).index(found[2])
    return round(float(found[1]) * unit)


def in_bytes(size: int) -> str:
    """The size in words: `5 GB`, `1.5 MB`."""
    name, unit = next((n, u) for n, u in reversed(_UNITS.items()) if size >= u or u == 1)
    return f"{size / unit:.3g} {name}B"


def taken(folder: Path) -> int:
    """How many bytes of the disk the files below a folder take."""
    sizes = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                # In blocks of 512 bytes, whatever the file system's own are.
                sizes += os.lstat(os.path.join(place, name)).st_blocks * 512
    return sizes


def _free(path: Path) -> int | None:
    """How many bytes are free on the disk of a file that may not exist yet."""
    # The file may not exist yet: then the first folder above it that does tells whose disk it is.
    for place in (path, *path.parents):
        try:
            state = os.statvfs(place)
        except OSError:
            continue
        return state.f_bavail * state.f_frsize
    return None
