"""How the files of a run folder are read and written: nothing outside the folder, and bounded.

A run folder may come from anybody. Each file must be a regular file within the folder: a link, a
pipe, a device or a folder in its place is refused, and so is a file that is larger than any run's.

See docs/decisions/08-run-folder-files.md.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from fencepost.events.integers import check_width
from fencepost.model.disk import written_to
from fencepost.model.errors import UsageError

MOST_JSON_BYTES = 16 << 20
"""The largest run.json, schedule.json, damage.json, verdicts.json or judged.json that is read."""
MOST_EVENTS_BYTES = 8 << 30
"""The largest history, or file of events, that is read."""
MOST_LINE_BYTES = 4 << 20
"""The longest line of such a file."""
MOST_FILES = 20_000
"""The most files of events in one run."""
_BLOCK = 1 << 16
# O_NONBLOCK: to open a pipe without a writer would wait for ever. O_NOCTTY: a terminal that is
# opened must not become this program's own. Both are harmless for a regular file.
_SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}

Value = TypeVar("Value")


_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
"""To name a folder without reading it; a kernel without this flag opens it."""


def opened(folder: Path, path: Path, most: int) -> BinaryIO:
    """A file below `folder`, to be read, without a buffer.

    Raises FileNotFoundError if there is none; UsageError if it is no regular file, lies outside the
    folder or is larger than `most` bytes, or cannot be read.
    """
    fd = _within(folder, path, _SAFELY)
    try:
        # Asked of the open file, not of its path: the file at the path may be replaced between the
        # question and the opening.
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "something else")
            raise UsageError(f"{path} is {kind}, and not a file")
        if seen.st_size > most:
            raise UsageError(f"{path} has {seen.st_size} bytes; at most {most} are read")
        return io.FileIO(fd, closefd=True)
    except BaseException:
        os.close(fd)
        raise


def content(folder: Path, path: Path, most: int = MOST_JSON_BYTES) -> bytes:
    """The whole of such a file; raises as `opened`."""
    with opened(folder, path, most) as file:
        # One byte more than allowed: a file may grow while it is read, or tell a size of 0, as
        # those of /proc do.
        found = file.read(most + 1)
    if len(found) > most:
        raise UsageError(f"{path} has more than {most} bytes")
    return found


def copied(folder: Path, path: Path, to: Path) -> None:
    """Copies such a file; raises as `opened`, and EnvironmentFailed if it cannot be written."""
    with opened(folder, path, MOST_EVENTS_BYTES) as file, written_to(to), created(to) as copy:
        shutil.copyfileobj(file, copy, _BLOCK)


def decoded(data: bytes, kind: type[Value]) -> Value:
    """The value of a JSON text; raises msgspec.DecodeError if it is none of this kind, or has an
    integer of more than 64 bits."""
    try:
        check_width(data)
        return msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError as wrong:
        raise msgspec.DecodeError(f"the text is not UTF-8: {wrong.reason}") from wrong
    except RecursionError:
        raise msgspec.DecodeError("the text is nested too deeply") from None


def lines(folder: Path, path: Path) -> Iterator[bytes]:
    """The lines of a file of events, each with its end; the last may have none.

    They are read in blocks, so that a thousand files can be read side by side. A line of more than
    `MOST_LINE_BYTES` is the last, and is cut off there.
    """
    offset = 0
    # The file is opened for each block and closed again: a run may have more processes than this
    # program may have open files.
    while True:
        with opened(folder, path, MOST_EVENTS_BYTES) as file:
            file.seek(offset)
            block = file.read(_BLOCK)
            # A block is given out up to its last whole line; the next one begins behind that line.
            last = block.rfind(b"\n") + 1
            # A line longer than a block: it is read to its end, but no further than the bound.
            if block and not last:
                block += file.read(MOST_LINE_BYTES - len(block))
                last = block.find(b"\n") + 1 or len(block)
        if not block:
            return
        offset += last
        yield from io.BytesIO(block[:last])
        if not block[:last].endswith(b"\n"):
            return


def changed_ns(folder: Path, path: Path) -> int | None:
    """When the file last changed; None if there is none. Raises as `opened`."""
    try:
        with opened(folder, path, MOST_EVENTS_BYTES) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None


def listed(folder: Path, below: Path, suffix: str) -> list[Path]:
    """The files of a folder within `folder` whose names end so, in order; none if there is no such
    folder. Raises UsageError if it is no folder, or has more than `MOST_FILES`."""
    try:
        fd = _within(folder, below, _SAFELY)
    except FileNotFoundError:
        return []
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise UsageError(f"{below} is not a folder")
        names = [name for name in os.listdir(fd) if name.endswith(suffix)]
    finally:
        os.close(fd)
    if len(names) > MOST_FILES:
        raise UsageError(f"{below} has {len(names)} files; at most {MOST_FILES} are read")
    return [below / name for name in sorted(names)]


def write_whole(path: Path, data: bytes) -> None:
    """Replaces a file atomically: a reader, or a crash, sees the old content or the new one.

    Raises EnvironmentFailed if the disk does not take it.
    """
    # In the same folder, since only within one file system a rename is atomic. With the process id,
    # since two processes may write the same file.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with written_to(path, len(data)):
        try:
            with created(beside) as file:
                file.write(data)
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise


def created(path: Path) -> BinaryIO:
    """A new file, to be written. What was in its place, such as a link, is removed first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # Removed and made anew, never opened: through a link that somebody put there, another file
    # would be overwritten.
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def _within(folder: Path, path: Path, flags: int) -> int:
    """A descriptor of a path below a folder, with no link on the way."""
    parts = path.relative_to(folder).parts
    try:
        # The folder itself may be reached through links: the user named it. From here on each part
        # is opened relative to the part before it, so nobody can replace a part that was checked.
        at = os.open(folder, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except NotADirectoryError:
        raise UsageError(f"{folder} is not a folder") from None
    try:
        for part in parts[:-1]:
            step = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            at, above = os.open(part, step, dir_fd=at), at
            os.close(above)
        return os.open(parts[-1], flags, dir_fd=at)
    except FileNotFoundError:
        raise
    except OSError as failed:
        link = failed.errno in (errno.ELOOP, errno.ENOTDIR)
        why = "it is a link, or lies behind one" if link else failed.strerror
        raise UsageError(f"{path} is not read: {why}") from failed
    finally:
        os.close(at)
