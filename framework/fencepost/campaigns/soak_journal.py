"""What a soak has found so far, on the disk: `soak-<UTC time>-<seed>.ndjson` beside its run
folders.

A soak lasts for hours, deletes the folders of clean runs, and may be killed. So it notes each run
as soon as that was judged, one JSON object a line, and `fencepost report` over the folder says of a
soak without an end what it would have said itself. The name begins with no time, so that `2026*`
names run folders only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Self, final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fencepost.campaigns.soaked import Soaked, SoakPlan, SoakRun
from fencepost.history.files import content
from fencepost.history.run_folder import mode_below
from fencepost.model.disk import written_to
from fencepost.model.errors import UsageError

FORMAT = 1


class Began(Struct, frozen=True, kw_only=True, tag="began"):
    """The first line."""

    format: int = FORMAT
    plan: SoakPlan


class Ran(Struct, frozen=True, kw_only=True, tag="ran"):
    """A run was judged, so many seconds after the soak began."""

    run: SoakRun
    took_s: float


class Deleted(Struct, frozen=True, kw_only=True, tag="deleted"):
    """The folder of a clean run was deleted, for a limit of the disk."""

    seed: int


class Ended(Struct, frozen=True, kw_only=True, tag="ended"):
    """The soak has ended, and has said what it found; `spent`: its budget had no time for more."""

    spent: bool
    took_s: float


Line = Began | Ran | Deleted | Ended


@final
class Journal:
    """The file of a soak that goes on."""

    def __init__(self, file: FileIO, path: Path) -> None:
        self._file = file
        self._path = path

    @classmethod
    def open(cls, folder: Path, plan: SoakPlan, now: datetime) -> Self:
        """A new file in the folder of a soak's runs, which is there. Raises EnvironmentFailed if it
        cannot be made."""
        name = f"soak-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{plan.seed}"
        # Its readers are those of the runs.
        flags, mode = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, mode_below(folder) & 0o640
        with written_to(folder):
            for number in range(1, 10_000):
                path = folder / (f"{name}.ndjson" if number == 1 else f"{name}-{number}.ndjson")
                try:
                    descriptor = os.open(path, flags, mode)
                except FileExistsError:
                    continue
                break
        journal = cls(FileIO(descriptor, "w"), path)
        journal.note(Began(plan=plan))
        return journal

    def note(self, line: Line) -> None:
        """Adds a line, in one write: what was written stays if this process is killed."""
        with written_to(self._path):
            self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Nothing more is noted."""
        self._file.close()


@final
@dataclass(frozen=True, slots=True)
class Told:
    """What a journal tells. `ended`: its soak came to its end, and has said so itself. `unfinished`
    are the folders of runs that had begun, and were not judged."""

    plan: SoakPlan
    soaked: Soaked
    took_s: float
    ended: bool
    unfinished: tuple[Path, ...]


def is_of_soaks(folder: Path) -> bool:
    """Whether it is a folder below which soaks made runs, and not that of one run."""
    return not (folder / "run.json").exists() and bool(_journals(folder))


def read_last(folder: Path) -> Told:
    """What the soak has found that began last in this folder, wherever the folder is now. Raises
    UsageError for a file that is no journal."""
    folder = folder.absolute()
    path = _journals(folder)[-1]
    # What follows the last end of a line is a line that was cut off.
    lines = content(folder, path).split(b"\n")[:-1]
    try:
        told = [_LINES.decode(line) for line in lines]
    except msgspec.DecodeError as wrong:
        raise UsageError(f"{path} is no journal of a soak: {wrong}") from wrong
    if not told or not isinstance(told[0], Began) or told[0].format != FORMAT:
        raise UsageError(f"{path} is no journal of a soak that this version reads")
    plan = told[0].plan
    soaked = Soaked(with_faults=plan.with_faults, states=plan.states)
    took_s, ended = 0.0, False
    for line in told:
        match line:
            case Ran():
                took_s = line.took_s
                run = replace(line.run, run=str(folder / Path(line.run.run).name))
                soaked.runs.append(run)
            case Deleted():
                soaked.deleted.append(line.seed)
            case Ended():
                took_s, ended, soaked.spent = line.took_s, True, line.spent
    soaked.runs.sort(key=lambda run: run.seed)
    unfinished = () if ended else _unfinished(folder, path, plan, soaked)
    return Told(plan, soaked, took_s, ended, unfinished)


def _journals(folder: Path) -> list[Path]:
    return sorted(folder.glob("soak-*.ndjson"))


def _unfinished(folder: Path, journal: Path, plan: SoakPlan, soaked: Soaked) -> tuple[Path, ...]:
    """By their names: `<UTC time>-soak-<seed>`, from the time of the journal on."""
    began = journal.name.removeprefix("soak-")[: len("20261129-230336")]
    known = {Path(run.run).name for run in soaked.runs}
    seeds = [f"-soak-{plan.seed + number}" for number in range(plan.runs)]
    return tuple(
        path
        for path in sorted(folder.glob("*-soak-*"))
        if path.name >= began
        and path.name not in known
        and any(path.name.endswith(seed) for seed in seeds)
    )


_LINES: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
