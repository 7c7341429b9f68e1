"""A run's folder: everything recorded of one run, readable however the run ended (layout v2).

    run.json          `RunInfo`: what was run, with what, when; written before anything is started
    schedule.json     every fault with its target and time, for replay
    events/           one file a process, `<process>.ndjson` ("/" in a name reads "."), appended
                      one whole event a write; what a killed process had written is there
    history.ndjson    all events in happens-before order, made of events/ (`history.merge`)
    damage.json       what making it found missing or unreadable: a list of sentences
    verdicts.json     the verdict of each clause, once the run was judged
    tables.json.gz    what a report needs of the events, folded when the run was judged
                      (`judging.tables`)
    judged.json       digests of what these were made of, of the tables, and of the columns
    columns/          events, findings, operations and verdicts as Parquet, where pyarrow is
                      installed (`judging.columnar`)
    logs/             one file a process: its standard output and errors
    work/             one folder a process: the files it was started with
    data/             one folder a slot: its disk; discarded unless the run failed
    report/           pages

No file in a folder contains the folder's own path, so the folder can be moved. Folders of layout 1
are read as well; a newer layout than this program knows is refused by name.
"""

from __future__ import annotations

import platform
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import final

import msgspec
from msgspec import Struct

from fencepost.events import SCHEMA_VERSION
from fencepost.history.files import content, decoded, write_whole
from fencepost.model.check import is_check
from fencepost.model.clock import wall_clock
from fencepost.model.disk import written_to
from fencepost.model.errors import EnvironmentFailed, FencepostError, UsageError
from fencepost.model.secrets import redacted
from fencepost.model.system.capabilities import SaysVersion, layout_of
from fencepost.model.system.subject import Subject
from fencepost.model.system.topology import NAME

LAYOUT_VERSION = 2
_PRIVATE = 0o700
_OF_THE_GROUP = 0o750


class RunSlot(Struct, frozen=True):
    """A slot of the run's layout."""

    name: str
    role: str
    node_id: int
    index: int
    duplicate: bool
    spare: bool = False
    also: tuple[tuple[str, int], ...] = ()
    app: str = ""


class RunInfo(Struct, frozen=True, kw_only=True):
    """run.json. `clock_origin_ns` is CLOCK_MONOTONIC at `started_at` (ISO 8601, UTC)."""

    layout: int = LAYOUT_VERSION
    events: int = SCHEMA_VERSION
    run: str
    system: str
    runtime: str
    seed: int
    counts: Mapping[str, int] = {}
    settings: Mapping[str, str]
    defects: tuple[str, ...]
    own: Mapping[str, Mapping[str, str]] = {}
    security: str = ""
    slots: tuple[RunSlot, ...]
    checks: Mapping[str, str] = {}
    """The user's own checks: id -> sentence."""
    versions: Mapping[str, str]
    started_at: str
    clock_origin_ns: int

    @property
    def apps(self) -> Mapping[str, int]:
        """The apps, each with the number of its instances."""
        return Counter(slot.app for slot in self.slots if slot.app)

    @property
    def release(self) -> str:
        """The system with its version, if it has one, for people. A build that is named otherwise,
        as by its folder, keeps that name."""
        family, _, named = self.system.partition("@")
        if not self.version:
            return self.system
        name = self.system if named not in ("", self.version) else family
        return f"{name} {self.version}"

    @property
    def version(self) -> str:
        """That of the system; empty if it says none."""
        return self.versions.get(self.system.partition("@")[0], "")


def info_of(
    run: str,
    subject: Subject,
    runtime: str,
    clock_origin_ns: int,
    *,
    tools: Mapping[str, str] | None = None,
) -> RunInfo:
    """The contents of run.json for a run that begins now, without secrets; `tools` are the versions
    of other programs."""
    system, shape = subject.system, subject.shape
    # The version of the system stands under its family's name: known findings are looked up by it.
    known = dict(tools or {})
    if isinstance(system, SaysVersion) and system.version:
        known[system.name.partition("@")[0]] = system.version
    return RunInfo(
        run=run,
        system=system.name,
        runtime=runtime,
        seed=subject.seed,
        counts=shape.counts,
        settings=redacted(shape.settings),
        defects=shape.defects,
        own={slot: redacted(settings) for slot, settings in shape.own.items()},
        security=shape.security,
        slots=tuple(
            RunSlot(
                name=s.name,
                role=str(s.role),
                node_id=s.node_id,
                index=s.index,
                duplicate=s.duplicate,
                spare=s.spare,
                also=s.also,
                app=s.app,
            )
            for s in layout_of(system, shape).slots
        ),
        checks=subject.checks,
        versions={
            "fencepost": version("fencepost"),
            "python": platform.python_version(),
            **known,
        },
        started_at=wall_clock().isoformat(timespec="milliseconds"),
        clock_origin_ns=clock_origin_ns,
    )


def mode_below(parent: Path) -> int:
    """The mode of a folder for records of runs, which is made in `parent`: only its owner opens it.

    Runs hold what clients wrote and a system's settings. A parent with the set-group-ID bit says
    that its group shares what is in it: then the group may read.
    """
    try:
        # The bit passes to folders that are made in a folder with it, so a project that is shared
        # with a group would share its runs as well. `new_folder` takes it from the folder of runs
        # that it makes.
        shared = parent.stat().st_mode & stat.S_ISGID
    except OSError:
        shared = 0
    return _OF_THE_GROUP if shared else _PRIVATE


class _Layout(Struct, frozen=True):
    layout: int
    events: int = 1


class _RunSlot1(Struct, frozen=True):
    """A slot in layout 1."""

    name: str
    role: str
    node_id: int
    index: int
    twin: bool
    spare: bool = False
    controller_id: int = -1


class _RunInfo1(Struct, frozen=True, kw_only=True):
    """run.json in layout 1, which had only controllers and brokers."""

    run: str
    system: str
    runtime: str
    seed: int
    controllers: int
    brokers: int
    settings: Mapping[str, str]
    defects: tuple[str, ...]
    combined: int = 0
    own: Mapping[str, Mapping[str, str]] = {}
    slots: tuple[_RunSlot1, ...]
    versions: Mapping[str, str]
    started_at: str
    clock_origin_ns: int

    def now(self) -> RunInfo:
        """The same in the present layout."""
        counts = {
            "controller": self.controllers, "broker": self.brokers, "combined": self.combined
        }  # fmt: skip
        slots = tuple(
            RunSlot(
                name=s.name,
                role=s.role,
                node_id=s.node_id,
                index=s.index,
                duplicate=s.twin,
                spare=s.spare,
                also=() if s.controller_id < 0 else (("controller", s.controller_id),),
            )
            for s in self.slots
        )
        return RunInfo(
            layout=1, events=1, run=self.run, system=self.system, runtime=self.runtime,
            seed=self.seed, counts=counts, settings=self.settings, defects=self.defects,
            own=self.own, slots=slots, versions=self.versions, started_at=self.started_at,
            clock_origin_ns=self.clock_origin_ns,
        )  # fmt: skip


_LONGEST_NAME = 100
_MOST_OF_A_KIND = 1000
_LATEST_NS = 1 << 62


def _check(info: RunInfo) -> None:
    """Raises ValueError for what no run has: names that are no words, since they become those of
    files, and absurd numbers and times."""
    for slot in info.slots:
        also = [role for role, _ in slot.also]
        # These become names of files: one with `..` or `/` in it would lead out of the folder.
        for name in (slot.name, slot.role, *also):
            if len(name) > _LONGEST_NAME or not NAME.fullmatch(name):
                raise ValueError(f"the name {name!r} of a slot is not words joined by '-'")
        ids = [node_id for _, node_id in slot.also]
        if not all(-1 <= node_id < 1 << 31 for node_id in (slot.node_id, *ids)):
            raise ValueError(f"an id of the slot {slot.name} is out of bounds")
    for check in info.checks:
        # The ids of clauses: a foreign folder must not put a check in the place of one.
        if len(check) > _LONGEST_NAME or not is_check(check):
            raise ValueError(f"{check!r} is not the id of a check")
    # A replay lays out as many nodes as this says: a foreign folder must not ask for a million.
    numbers = {**info.counts, **{slot.name: slot.index for slot in info.slots}}
    for name, number in numbers.items():
        if not 0 <= number <= _MOST_OF_A_KIND:
            raise ValueError(f"{name} has the number {number}, not 0 to {_MOST_OF_A_KIND}")
    if not 0 <= info.clock_origin_ns <= _LATEST_NS:
        raise ValueError(f"clock_origin_ns is {info.clock_origin_ns}, not 0 to {_LATEST_NS}")
    try:
        # A time may have the form of one, and lie outside of what the calendar of UTC can express.
        datetime.fromisoformat(info.started_at).astimezone(UTC)
    except (ValueError, OverflowError) as wrong:
        raise ValueError(f"started_at is no time in UTC: {wrong}") from wrong


@final
@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths below one run's folder; its name is the run's."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Makes the folder; raises UsageError when it is not empty."""
        folder = cls(path.absolute())
        with written_to(path):
            path.mkdir(mode_below(path.parent), parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UsageError(f"{path} is not empty: each run needs a folder of its own")
            for part in (folder.events, folder.logs, folder.work, folder.data, folder.report):
                part.mkdir()
        return folder

    @classmethod
    def create_below(cls, root: Path, label: str, now: datetime) -> RunFolder:
        """Makes a folder `<UTC time>-<label>` below `root`, with a number if that exists."""
        name = f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{label.replace('/', '-')}"
        for number in range(1, 10_000):
            path = root / (name if number == 1 else f"{name}-{number}")
            with written_to(path):
                try:
                    path.mkdir(mode_below(root), parents=True)
                except FileExistsError:
                    continue
            return cls.create(path)
        raise EnvironmentFailed(f"{root} holds ten thousand runs named {name}")

    @property
    def run(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def schedule(self) -> Path:
        """The record of the injected faults."""
        return self.path / "schedule.json"

    @property
    def events(self) -> Path:
        """The folder of the events, a file for each process."""
        return self.path / "events"

    @property
    def history(self) -> Path:
        """The merged history."""
        return self.path / "history.ndjson"

    @property
    def damage(self) -> Path:
        """What the merge found damaged."""
        return self.path / "damage.json"

    @property
    def tables(self) -> Path:
        """What was folded of the history when it was judged."""
        return self.path / "tables.json.gz"

    @property
    def logs(self) -> Path:
        """The folder of what the processes printed."""
        return self.path / "logs"

    @property
    def work(self) -> Path:
        """The folder of the processes' configurations."""
        return self.path / "work"

    @property
    def data(self) -> Path:
        """The folder of the slots' disks."""
        return self.path / "data"

    @property
    def sockets(self) -> Path:
        """The folder of the toxiproxies' API sockets; it exists while the run lasts."""
        return self.path / "sockets"

    @property
    def report(self) -> Path:
        """The folder of tables and pages."""
        return self.path / "report"

    def events_of(self, process: str) -> Path:
        """The events file of a process."""
        return self.events / f"{_as_file(process)}.ndjson"

    def log_of(self, process: str) -> Path:
        """The log of a process."""
        return self.logs / f"{_as_file(process)}.log"

    def socket_of(self, process: str) -> Path:
        """The Unix socket of a process."""
        return self.sockets / _as_file(process)

    def work_of(self, process: str) -> Path:
        """The folder a process is started in."""
        return self.work / _as_file(process)

    def data_of(self, slot: str) -> Path:
        """The disk of a slot."""
        return self.data / slot

    def write_info(self, info: RunInfo) -> None:
        """Writes run.json, whole or not at all."""
        write_whole(self.path / "run.json", msgspec.json.format(msgspec.json.encode(info)))

    def info(self) -> RunInfo:
        """The contents of run.json; raises UsageError when this is not a run folder, or a newer
        one."""
        path = self.path / "run.json"
        try:
            text = content(self.path, path)
            # The version first, alone: a newer folder is refused by name, and not for a field that
            # is unknown here.
            known = decoded(text, _Layout)
            for what, found, newest in (
                ("layout", known.layout, LAYOUT_VERSION),
                ("events", known.events, SCHEMA_VERSION),
            ):
                if not 1 <= found <= newest:
                    raise UsageError(
                        f"{path} has {what} {found}; this Fencepost knows 1 to {newest}"
                    )
            info = decoded(text, _RunInfo1).now() if known.layout == 1 else decoded(text, RunInfo)
            _check(info)
            return info
        except FileNotFoundError:
            raise UsageError(f"{self.path} is not a run folder: it has no run.json") from None
        except (msgspec.DecodeError, ValueError) as broken:
            raise UsageError(f"{path} cannot be read: {broken}") from broken

    def discard_data(self) -> None:
        """Removes the slots' disks, which are needed only after a failure."""
        shutil.rmtree(self.data, ignore_errors=True)


def _as_file(process: str) -> str:
    return process.replace("/", ".")


def system_of(runs: Iterable[str]) -> str:
    """The system of these runs if all of them are folders here, and of one system; else empty."""
    systems = set()
    for run in runs:
        try:
            systems.add(RunFolder(Path(run)).info().system)
        except (FencepostError, OSError, ValueError):
            return ""
    return systems.pop() if len(systems) == 1 else ""
