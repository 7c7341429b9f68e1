"""Run folders from anybody: a recorded run, with one to four things in it changed.

A file may be cut short, lose or gain bytes, or be something else than a file. A value in JSON may
have another type, be out of bounds, or be missing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random  # noqa: TID251 - seeded: always the same folders
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import sample_runs

from fencepost.judging.folder import judge_folder
from fencepost.model.errors import FencepostError
from fencepost.plugins.manager import Plugins, load
from fencepost.reporting import Promises, ReportRequest, RunFolder
from fencepost.runs import replay, schedule
from fencepost.runs.schedule import Injection, Schedule
from fencepost_reports.one_run.run import RunSource, run_tables
from fencepost_reports.report import report

OUTSIDE = ("/etc/passwd", "/dev/zero", "/proc/self/mem", "..", "nowhere")
HOSTILE: tuple[object, ...] = (
    *(None, True, -1, 0, 1 << 62, 1 << 63, 10**40, -(1 << 63), 1.5, 1e300, "", "x" * 5000),
    *("../../etc", "/etc/passwd", "a\x1b]0;x\x07", "\u202e", "\ud800", "[/x]", "<b>", "\x00"),
    *([], {}, [[]], {"a": {"b": []}}, ["a"], [1, "a"], "9999-99-99T99:99:99", "broker-1"),
)
LARGE = 20 << 20
DEEP = b"[" * 100_000


@final
@dataclass(frozen=True, slots=True)
class Foreign:
    """A recorded run, as the bytes of its files, and the plugins by which its like is read."""

    files: Mapping[str, bytes]
    promises: Promises
    plugins: Plugins

    @classmethod
    def recorded(cls, root: Path) -> Foreign:
        """A run with faults, verdicts and a schedule, recorded below `root`."""
        promises = sample_runs.promises()
        events = sample_runs.ended(sample_runs.fenced())
        folder = RunFolder(sample_runs.write(root, "fenced", events))
        one = Injection(at_ms=5, fault="isolate", arguments={"node": "broker-1"}, for_ms=9)
        schedule.write(folder.schedule, Schedule(injections=(one,)))
        folder.damage.write_bytes(b'["one event is missing"]')
        for number, event in enumerate(events):
            path = folder.events_of(event.process)
            with path.open("ab") as file:
                file.write(sample_runs.CODEC.encode(event))
            os.utime(path, (number, number))
        judge_folder(folder, promises)
        files = {
            str(path.relative_to(folder.path)): path.read_bytes()
            for path in sorted(folder.path.rglob("*"))
            if path.is_file()
        }
        return cls(files, promises, load())

    def write(self, folder: Path, draw: random.Random) -> None:
        """Writes the run with changes that are drawn."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if name.startswith("events/"):
                os.utime(path, (1, 1))
        names = list(self.files)
        for _ in range(draw.randint(1, 4)):
            path = folder / draw.choice(names)
            draw.choice((_as_bytes, _as_json, _as_json, _as_json, _as_file))(path, draw)
        if draw.random() < 0.2:  # the history is made anew, of the files of events
            with suppress(IsADirectoryError):
                (folder / "history.ndjson").unlink(missing_ok=True)

    def write_tables(self, folder: Path, draw: random.Random) -> None:
        """Writes the run with tables that are changed, and with the digest of these."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        run = RunFolder(folder)
        tables = json.loads(gzip.decompress(self.files["tables.json.gz"]))
        for _ in range(draw.randint(1, 4)):
            tables = _changed(tables, draw)
        run.tables.write_bytes(gzip.compress(json.dumps(tables).encode()))
        judged = json.loads(self.files["judged.json"])
        judged["tables"] = hashlib.sha256(run.tables.read_bytes()).hexdigest()
        (folder / "judged.json").write_text(json.dumps(judged))

    def read(self, folder: Path, out: Path | None = None) -> str:
        """Reads the folder as every command does: the error, if it was one of ours; else empty.

        With `out`, tables and a page are written there, too. Raises any other error.
        """
        run = RunFolder(folder)
        found: list[str] = []
        for attempt in (
            lambda: schedule.receipts(run.schedule),
            lambda: replay.read(run, self.plugins),
            lambda: judge_folder(run, self.promises),
            lambda: run_tables(RunSource("foreign", str(folder)), self.promises),
            lambda: out and report(ReportRequest.of([folder], out), self.plugins),
        ):
            try:
                attempt()
            except FencepostError as error:
                found.append(str(error) or repr(error))
        return "; ".join(found)


def _as_bytes(path: Path, draw: random.Random) -> None:
    """Cuts a file short, or removes, doubles, replaces or inserts some of its bytes."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGE:
        return
    content = path.read_bytes()
    at = draw.randrange(len(content) + 1)
    until = min(len(content), at + draw.choice((0, 1, 8, 300)))
    some = bytes(draw.randrange(256) for _ in range(draw.choice((1, 4))))
    put = draw.choice((b"", some, content[at:until] * 2, b"\n", b"\r", b"\xff", b'"', DEEP))
    rest = b"" if draw.random() < 0.1 else content[until:]
    path.write_bytes(content[:at] + put + rest)


def _as_json(path: Path, draw: random.Random) -> None:
    """Replaces a value in a JSON file, or in one line of a file of events, or leaves it out."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGE:
        return
    lines = path.read_bytes().split(b"\n") if path.suffix == ".ndjson" else [path.read_bytes()]
    number = draw.randrange(len(lines))
    try:
        value = json.loads(lines[number])
    except (ValueError, RecursionError):
        return
    lines[number] = json.dumps(_changed(value, draw)).encode()
    path.write_bytes(b"\n".join(lines))


def _changed(value: Any, draw: random.Random) -> Any:
    if draw.random() < 0.2 or not isinstance(value, list | dict) or not value:
        return draw.choice(HOSTILE)
    copy = value.copy()
    key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if draw.random() < 0.1:
        del copy[key]
    elif draw.random() < 0.1 and isinstance(copy, dict):
        copy[str(draw.choice(HOSTILE))] = copy.pop(key)
    else:
        copy[key] = _changed(value[key], draw)
    return copy


def _as_file(path: Path, draw: random.Random) -> None:
    """Puts something else in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        return
    path.unlink(missing_ok=True)
    what = draw.choice(("nothing", "folder", "pipe", "link", "link", "holes", "empty"))
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(draw.choice(OUTSIDE))
    elif what == "holes":
        with path.open("wb") as file:
            file.truncate(draw.choice((*[LARGE] * 40, 600 << 20)))
    elif what == "empty":
        path.touch()
