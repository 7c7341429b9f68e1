"""`fencepost defects`: switches each defect of a system on in turn, and looks for it.

First with the suites' tests of the clauses it breaks, then with random schedules, seed by seed,
until one of its clauses is reported as violated or the budget is spent. Then as many random
schedules against the healthy system: whatever is reported there is a false alarm.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import msgspec
import pytest

from fencepost.events import Codec
from fencepost.history.merge import HARNESS
from fencepost.history.run_folder import RunFolder
from fencepost.judging.judge import Outcome, Verdict
from fencepost.model.clock import SECOND, now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError, no_such
from fencepost.model.shape import Shape
from fencepost.model.systems import Defect, HasDefects, System
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import Conducted, run_one
from fencepost.runs.run import RunSpec, new_folder
from fencepost.testing import test_run as testrun

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to look for one defect: this many seeds of this many milliseconds each, within a
    wall time that stops the search between two runs; and how many healthy runs to compare with."""

    seeds: int
    span_ms: int
    wall_s: float
    clean_seeds: int


BUDGETS: Mapping[str, Budget] = {
    "simulated": Budget(seeds=40, span_ms=30_000, wall_s=120, clean_seeds=200),
    "process": Budget(seeds=3, span_ms=30_000, wall_s=300, clean_seeds=3),
    "docker": Budget(seeds=3, span_ms=30_000, wall_s=300, clean_seeds=3),
}


@final
@dataclass(slots=True)
class Hunt:
    """What became of the search for one defect; `seeds` counts its random schedules."""

    defect: Defect
    reported_by: tuple[str, ...] = ()
    wall_s: float = 0.0
    virtual_s: float = 0.0
    seeds: int = 0
    not_ready: str = ""
    """Why the cluster of its last random schedule never got ready; nothing if it did."""

    @property
    def found(self) -> bool:
        """Whether a clause that the defect breaks was reported."""
        return bool(set(self.reported_by) & set(self.defect.breaks))

    def as_json(self) -> Mapping[str, object]:
        """One element of `defects` in the command's object."""
        return {
            "name": self.defect.name,
            "breaks": list(self.defect.breaks),
            "found": self.found,
            "reported_by": list(self.reported_by),
            "wall_s": round(self.wall_s, 2),
            "virtual_s": round(self.virtual_s, 1),
            "seeds": self.seeds,
        }


class FalseAlarm(msgspec.Struct, frozen=True):
    """A clause (or "recovery") that a healthy system was said to violate; `run` is its folder."""

    seed: int
    clause: str
    saying: str
    run: str


@final
@dataclass(slots=True)
class Results:
    """What the command prints."""

    hunts: list[Hunt] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)
    """Defects that this runtime cannot show -> why: nobody looked for them."""
    clean_seeds: int = 0
    false_alarms: list[FalseAlarm] = field(default_factory=list)
    not_ready: list[str] = field(default_factory=list)
    """Of the healthy clusters that never got ready, why."""

    def never_started(self) -> str:
        """Why no cluster ever got ready, broken or not; nothing if one did."""
        lacking = [*(hunt.not_ready for hunt in self.hunts), *self.not_ready]
        ready = any(hunt.found for hunt in self.hunts) or len(self.not_ready) < self.clean_seeds
        return lacking[0] if lacking and all(lacking) and not ready else ""

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost defects --json` prints."""
        alarms = [msgspec.to_builtins(alarm) for alarm in self.false_alarms]
        return {
            "defects": [hunt.as_json() for hunt in self.hunts],
            "unseen": [{"name": name, "reason": why} for name, why in self.unseen.items()],
            "clean": {"seeds": self.clean_seeds, "false_alarms": alarms},
        }


@final
@dataclass(frozen=True, slots=True)
class Hunter:
    """Looks for the defects of one system on one runtime, below `out`."""

    system: System
    runtime: str
    plugins: Plugins
    out: Path
    budget: Budget
    tell: Tell

    def chosen(self, only: Collection[str] = ()) -> Sequence[Defect]:
        """The defects to look for, all unless some are named; raises UsageError for a system or a
        name that has none."""
        if not isinstance(self.system, HasDefects):
            raise UsageError(f"{self.system.name} has no defects to switch on")
        defects = self.system.defects()
        names = [defect.name for defect in defects]
        for name in only:
            if name not in names:
                raise no_such("defect", name, names)
        return [defect for defect in defects if not only or defect.name in only]

    def hunt(self, defect: Defect) -> Hunt:
        """Looks for one defect until it is found or the budget is spent.

        Raises EnvironmentFailed when pytest itself breaks on the suites: what is found without them
        would hide that.
        """
        hunt = Hunt(defect)
        began_ns = now_ns()
        self._by_suites(hunt)
        for seed in range(1, self.budget.seeds + 1):
            hunt.wall_s = (now_ns() - began_ns) / SECOND
            if hunt.found or hunt.wall_s > self.budget.wall_s:
                break
            hunt.seeds = seed
            conducted = self._schedule(seed, (defect.name,))
            hunt.not_ready = conducted.trouble if conducted.result is None else ""
            self._take(hunt, conducted.folder)
        hunt.wall_s = (now_ns() - began_ns) / SECOND
        return hunt

    def clean(self, results: Results) -> None:
        """Runs the healthy system under as many random schedules; every report is an alarm."""
        for seed in range(1, self.budget.clean_seeds + 1):
            conducted = self._schedule(seed, ())
            folder = conducted.folder
            results.clean_seeds = seed
            if conducted.result is None:
                results.not_ready.append(conducted.trouble)
            alarms = [
                FalseAlarm(seed, clause, verdict.violations[0].saying, str(folder.path))
                for clause, verdict in verdicts_in(folder).items()
                if verdict.verdict is Outcome.VIOLATED
            ]
            if conducted.trouble:
                alarms.append(FalseAlarm(seed, "recovery", conducted.trouble, str(folder.path)))
            for alarm in alarms:
                self.tell(f"false alarm: seed {seed}, {alarm.clause}: {alarm.saying}")
            results.false_alarms += alarms
            if not alarms:
                shutil.rmtree(folder.path)

    # ---------------------------------------------------------------------------------- workings

    def _by_suites(self, hunt: Hunt) -> None:
        """The suites' tests of the clauses that it breaks, up to the first that reports one."""

        def reported(ran: testrun.Ran) -> bool:
            self._take(hunt, ran.folder)
            return hunt.found

        clauses = frozenset(hunt.defect.breaks)
        wanted = testrun.Wanted(
            self.system.name, self.runtime, self.out, 1, (hunt.defect.name,), clauses
        )
        ended = testrun.listen_quietly(wanted, testrun.Heard(clauses, reported))
        if ended in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            code = int(ended)
            raise EnvironmentFailed(f"the suites cannot be run: pytest ended with exit code {code}")

    def _schedule(self, seed: int, defects: tuple[str, ...]) -> Conducted:
        """One random schedule."""
        spec = RunSpec(self.system, Shape(defects=defects), self.runtime, seed, stormy=True)
        folder = new_folder(self.out, f"random-{seed}")
        return run_one(spec, self.plugins, folder, self.budget.span_ms, self.plugins.faults)

    @staticmethod
    def _take(hunt: Hunt, folder: RunFolder) -> None:
        """Takes in what a run came to, and forgets a run that found nothing."""
        violated = tuple(
            clause
            for clause, verdict in verdicts_in(folder).items()
            if verdict.verdict is Outcome.VIOLATED
        )
        hunt.virtual_s += _lasted_s(folder)
        hunt.reported_by = tuple(dict.fromkeys((*hunt.reported_by, *violated)))
        if not set(violated) & set(hunt.defect.breaks):
            shutil.rmtree(folder.path)


def verdicts_in(folder: RunFolder) -> Mapping[str, Verdict]:
    """The verdicts of a judged run; none for one that came to no judgement."""
    path = folder.path / "verdicts.json"
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Verdict])


def hunt_all(hunter: Hunter, only: Collection[str] = ()) -> Results:
    """Looks for each chosen defect, then for false alarms; raises UsageError as `chosen`."""
    results = Results()
    for defect in hunter.chosen(only):
        why = defect.unseen.get(hunter.runtime)
        if why is not None:
            hunter.tell(f"{defect.name}: not looked for on {hunter.runtime}: {why}")
            results.unseen[defect.name] = why
            continue
        hunt = hunter.hunt(defect)
        missed = f"NOT found ({hunt.not_ready})" if hunt.not_ready else "NOT found"
        word = f"found by {', '.join(hunt.reported_by)}" if hunt.found else missed
        hunter.tell(f"{defect.name}: {word} ({hunt.wall_s:.1f} s, {hunt.seeds} seeds)")
        results.hunts.append(hunt)
    hunter.clean(results)
    return results


def _lasted_s(folder: RunFolder) -> float:
    """From the harness's first event to its last one, by the clock of the run."""
    path = folder.events_of(HARNESS)
    if not path.exists():
        return 0.0
    codec = Codec()
    lines = path.read_bytes().splitlines()
    first, last = (codec.decode(line).at_ns for line in (lines[0], lines[-1]))
    return (last - first) / SECOND
