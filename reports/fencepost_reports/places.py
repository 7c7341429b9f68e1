"""Where run folders are read and reports are written: a path of this machine, or a URI.

A URI is opened by pyarrow, in the process that reads or writes it, so a worker needs no copy of the
folder. `s3a:` and `s3n:`, by which Spark knows S3, are S3 there too.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from fencepost import EnvironmentFailed, UsageError
from fencepost.reporting import (
    MOST_EVENTS_BYTES,
    MOST_FILES,
    MOST_JSON_BYTES,
    RunFolder,
    RunInfo,
    copied,
    event_files,
    is_merged,
    mode_below,
    write_whole,
)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_S3 = re.compile(r"^s3[an]?:", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^<>|`]")
_BLOCK = 1 << 20
_INFO = "run.json"
_EVENTS = ".ndjson"
_JUDGED = ("verdicts.json", "judged.json")
_FOLDED = "tables.json.gz"
_HISTORY = ("history.ndjson", "damage.json")
EVERY = "/*"
"""The end of a URI that stands for each folder there."""


def place(text: str) -> str:
    """A path made absolute, or a URI, without a slash at its end; raises UsageError for a text that
    no file can be named by."""
    if "\x00" in text or not text.isprintable():
        raise UsageError(f"{text!r} names no folder: it has characters that cannot be printed")
    path = local(text)
    return text.rstrip("/") if path is None else str(path.absolute())


def local(where: str) -> Path | None:
    """The path of a folder or file of this machine; None for a URI of another file system."""
    if not _SCHEME.match(where):
        return Path(where)
    parts = urlsplit(where)
    return Path(unquote(parts.path)) if parts.scheme.lower() == "file" else None


def name_of(where: str) -> str:
    """The last part of a path or URI."""
    path = local(where)
    return urlsplit(where).path.rpartition("/")[2] if path is None else path.name


def below(where: str, *parts: str) -> str:
    """A path or URI below another one; the query of a URI stays at its end."""
    head, mark, query = where.partition("?") if local(where) is None else (where, "", "")
    return "/".join((head, *parts)) + mark + query


def is_below(where: str, root: str) -> bool:
    """Whether a path or URI is below another one."""
    head = root.partition("?")[0] if local(root) is None else root
    return where.startswith(f"{head}/")


def file_name(text: str) -> str:
    """A text as the name of a file or of a partition, as Spark escapes the latter."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


@contextmanager
def reached(where: str) -> Iterator[tuple[Any, str]]:
    """The file system of a path or URI, and the path in it, for the block.

    Raises UsageError if nothing knows such file systems; EnvironmentFailed if it does not answer.
    """
    import pyarrow as pa  # noqa: PLC0415 - a plain installation reports on folders of this machine
    from pyarrow import fs  # noqa: PLC0415

    path = local(where)
    try:
        if path is not None:
            yield fs.LocalFileSystem(), str(path)
        else:
            yield fs.FileSystem.from_uri(_for_pyarrow(where))
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, ImportError) as unknown:
        raise UsageError(f"{where} cannot be opened: {_first_line(unknown)}") from unknown
    except OSError as failed:
        raise EnvironmentFailed(f"{where} does not answer: {_first_line(failed)}") from failed


def _for_pyarrow(where: str) -> str:
    """The URI by which pyarrow knows a place; in S3, a file is one request, whole or not there."""
    if not _S3.match(where):
        return where
    mark = "&" if "?" in where else "?"
    return f"{_S3.sub('s3:', where)}{mark}allow_delayed_open=true"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _seen(where: str) -> Sequence[Any]:
    """What is in a folder, by name: nothing if there is none."""
    from pyarrow import fs  # noqa: PLC0415

    with reached(where) as (files, path):
        found = files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(found, key=lambda one: one.path)


def expanded(given: Iterable[str]) -> Sequence[str]:
    """Each place once, in order; a URI that ends in `EVERY` is each folder there."""
    found: dict[str, None] = {}
    for one in map(place, given):
        if local(one) is None and one.endswith(EVERY):
            whole = one.removesuffix(EVERY)
            found.update((below(whole, i.base_name), None) for i in _seen(whole) if _is_folder(i))
        else:
            found[one] = None
    return sorted(found)


def _is_folder(info: Any) -> bool:
    from pyarrow import fs  # noqa: PLC0415

    return bool(info.type == fs.FileType.Directory)


def recorded(where: str) -> Mapping[str, tuple[int, int]]:
    """The files that a run's history is made of: name -> (bytes, when it was written, in ns)."""
    own = {i.base_name: i for i in _seen(where) if i.base_name in (_INFO, *_HISTORY)}
    events = {f"events/{i.base_name}": i for i in _seen(below(where, "events"))}
    return {
        name: (info.size, info.mtime_ns)
        for name, info in {**own, **events}.items()
        if name in own or name.endswith(_EVENTS)
    }


def mark(files: Mapping[str, tuple[int, int]]) -> str:
    """A digest of the names, sizes and times of the files that a run's history is made of: while it
    stays, so does the history."""
    digest = hashlib.sha256()
    for name, (size, mtime_ns) in files.items():
        digest.update(f"{name}\0{size}\0{mtime_ns}\n".encode())
    return digest.hexdigest()


def is_folder(where: str) -> bool:
    """Whether there is a folder; an object store has one where there is something below it."""
    with reached(where) as (files, path):
        return _is_folder(files.get_file_info(path))


def folders_in(where: str) -> Sequence[str]:
    """The folders in a folder, by name; none if it is not there."""
    return [below(where, info.base_name) for info in _seen(where) if _is_folder(info)]


def runs_in(where: str, done: Collection[str], but: str) -> Iterator[tuple[str, bool]]:
    """The run folders in a folder, and in the folders in it: the place of each, and whether it is
    judged. Those that are `done` are left out, and so is the folder `but`."""
    for one in folders_in(where):
        if one in done or one == but:
            continue
        names = {info.base_name for info in _seen(one)}
        if _INFO in names:
            yield one, names.issuperset(_JUDGED)
            continue
        for each in folders_in(one):
            if each not in done and each != but:
                names = {info.base_name for info in _seen(each)}
                if _INFO in names:
                    yield each, names.issuperset(_JUDGED)


def info_of(where: str) -> RunInfo:
    """The run.json of a run; raises UsageError if there is none, or it is of a later version."""
    path = local(where)
    if path is not None:
        return RunFolder(path).info()
    with _scratch(where) as folder:
        if _INFO in [info.base_name for info in _seen(where)]:
            _fetch(where, folder.path, [_INFO])
        return folder.info()


@contextmanager
def run_folder(where: str) -> Iterator[RunFolder]:
    """The folder of a run, to be read in the block; nothing is written into it.

    It is the folder itself, if that is on this machine and its history is merged. Else it is a copy
    of what is read, in a folder of its own, which is removed afterwards. Raises UsageError for what
    is no run, EnvironmentFailed for a file system that does not answer.
    """
    path = local(where)
    if path is not None:
        own = RunFolder(path)
        if is_merged(own):
            yield own
            return
    with _scratch(where) as folder:
        if path is None:
            _fetch_run(where, folder)
        else:
            _copy(own, folder)
        yield folder


@contextmanager
def _scratch(where: str) -> Iterator[RunFolder]:
    """A folder of the run's name; an error about it names the run's own place instead."""
    with TemporaryDirectory(prefix="fencepost-run-") as scratch:
        folder = RunFolder(Path(scratch) / name_of(where))
        folder.path.mkdir()
        try:
            yield folder
        except UsageError as refused:
            raise UsageError(str(refused).replace(str(folder.path), where)) from refused


def _copy(run: RunFolder, to: RunFolder) -> None:
    """Copies run.json and the events: the history is to be made of them."""
    copied(run.path, run.path / _INFO, to.path / _INFO)
    to.events.mkdir()
    for file in event_files(run):
        copied(run.path, file, to.events / file.name)


def _fetch_run(where: str, to: RunFolder) -> None:
    """Fetches the history and what was made of it, or the events if there is none."""
    there = [info.base_name for info in _seen(where)]
    _fetch(where, to.path, [n for n in there if n in (_INFO, *_HISTORY, *_JUDGED, _FOLDED)])
    part, ending = ("columns", ".parquet") if _HISTORY[0] in there else ("events", _EVENTS)
    names = [i.base_name for i in _seen(below(where, part)) if i.base_name.endswith(ending)]
    if len(names) > MOST_FILES:
        raise UsageError(f"{where} has {len(names)} files of events; at most {MOST_FILES} are read")
    if part in there:
        (to.path / part).mkdir()
        _fetch(below(where, part), to.path / part, names)


def _fetch(where: str, to: Path, names: Iterable[str]) -> None:
    for name in names:
        with reached(below(where, name)) as (files, path):
            size = files.get_file_info(path).size or 0
            if size > MOST_EVENTS_BYTES:
                raise UsageError(f"{path} has {size} bytes; at most {MOST_EVENTS_BYTES} are read")
            with files.open_input_stream(path) as source, (to / name).open("wb") as copy:
                shutil.copyfileobj(source, copy, _BLOCK)


def read(where: str, most: int = MOST_JSON_BYTES) -> bytes | None:
    """The contents of a file; None if there is none, or it has more than `most` bytes."""
    with reached(where) as (files, path):
        size = files.get_file_info(path).size
        if size is None or size > most:
            return None
        with files.open_input_stream(path) as source:
            return bytes(source.read())


def write(where: str, data: bytes) -> None:
    """Replaces a file; its folder is made if it is missing. Raises EnvironmentFailed.

    On this machine, and in an object store, a reader sees the old content or the new one.
    """
    path = local(where)
    if path is not None:
        try:
            path.parent.mkdir(mode_below(path.parent.parent), parents=True, exist_ok=True)
        except OSError as failed:
            raise EnvironmentFailed(f"the folder {path.parent}: {failed.strerror}") from failed
        write_whole(path, data)
        return
    with reached(where) as (files, target):
        files.create_dir(target.rpartition("/")[0], recursive=True)
        with files.open_output_stream(target) as out:
            out.write(data)


def remove(where: str) -> None:
    """Removes a folder and everything in it, if it is there."""
    with reached(where) as (files, path):
        if _is_folder(files.get_file_info(path)):
            files.delete_dir(path)
