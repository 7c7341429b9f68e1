"""`fencepost defects`: switches on each defect of a system in turn, and searches for it.

The search begins with the suites' tests of the clauses it breaks, and goes on with random
schedules, seed by seed, until one of its clauses is reported as violated or the budget is spent.
Then as many random schedules run against the healthy system: every report there is a false alarm.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import msgspec
import pytest

from fencepost.campaigns.endings import counted, few
from fencepost.campaigns.jobs import done
from fencepost.events import Codec
from fencepost.history.run_end import HARNESS
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome, Verdict
from fencepost.model.clock import SECOND, now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError, no_such
from fencepost.model.system.capabilities import Defect, HasDefects, System
from fencepost.model.system.shape import DEFAULT_SHAPE, Shape
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import Conducted, run_one
from fencepost.runs.run import RunSpec, check_spec, new_folder
from fencepost.testing import test_run as testrun

ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to search for one defect: this many seeds of this many milliseconds each, and a wall
    time after which no further run starts; and how many healthy runs to compare with."""

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
class Search:
    """The result of the search for one defect; `seeds` counts its random schedules."""

    defect: Defect
    reported_by: tuple[str, ...] = ()
    wall_s: float = 0.0
    virtual_s: float = 0.0
    seeds: int = 0
    not_ready: str = ""
    """Why the cluster of its last random schedule did not get ready; empty if it did."""
    run: RunFolder | None = None
    """The run in which it was found."""

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
    """A clause (or "recovery") that was reported as violated on a healthy system; `run` is its
    folder."""

    seed: int
    clause: str
    message: str
    run: str


@final
@dataclass(frozen=True, slots=True)
class Clean:
    """The result of a random schedule on a healthy system; `not_ready` says why its cluster did not
    get ready, and is empty if it did. `forfeited` says why the run was not judged to its end."""

    not_ready: str
    alarms: tuple[FalseAlarm, ...]
    forfeited: str = ""
    verdicts: Mapping[str, Outcome] = field(default_factory=dict)
    """The outcome of each clause; none if the run was not judged."""


@final
@dataclass(slots=True)
class Results:
    """What the command prints."""

    searches: list[Search] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)
    """Defects that this runtime cannot show -> why; they were not searched for."""
    clean_seeds: int = 0
    false_alarms: list[FalseAlarm] = field(default_factory=list)
    forfeited: dict[int, str] = field(default_factory=dict)
    """Healthy seed -> why its run was not judged to its end."""
    healthy: list[Mapping[str, Outcome]] = field(default_factory=list)
    """The outcome of each clause in each healthy run that was judged."""
    not_ready: list[str] = field(default_factory=list)
    """Why healthy clusters did not get ready, one sentence each."""
    left: list[str] = field(default_factory=list)
    """The defects for which the search has not ended: none, unless it was interrupted."""

    def never_started(self) -> str:
        """Why no cluster ever got ready, broken or not; empty if one did."""
        lacking = [*(search.not_ready for search in self.searches), *self.not_ready]
        ready = (
            any(search.found for search in self.searches) or len(self.not_ready) < self.clean_seeds
        )
        return lacking[0] if lacking and all(lacking) and not ready else ""

    @property
    def lost(self) -> Sequence[str]:
        """The defects that were searched for, and not found."""
        return [search.defect.name for search in self.searches if not search.found]

    def lines(self) -> Iterator[str]:
        """What `fencepost defects` prints: counts, what was not found, and false alarms."""
        found = len(self.searches) - len(self.lost)
        if self.searches or not self.left:
            yield f"{found} of {counted(len(self.searches), 'defect')} found by a clause they break"
        for name in self.lost:
            yield f"  not found: {name}"
        if self.left:
            names = few(self.left)
            yield f"{counted(len(self.left), 'defect')} not searched for to the end: {names}"
        if self.clean_seeds or not self.left:
            alarms = counted(len(self.false_alarms), "false alarm")
            yield f"{alarms} over {counted(self.clean_seeds, 'seed')}"
        for alarm in self.false_alarms:
            yield f"  seed {alarm.seed}, {alarm.clause}: {alarm.message} ({alarm.run})"
        if self.forfeited:
            first = min(self.forfeited)
            yield (
                f"{len(self.forfeited)} of these seeds were not judged to the end of their runs; "
                f"seed {first}: {self.forfeited[first]}"
            )

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost defects --json` prints."""
        alarms = [msgspec.to_builtins(alarm) for alarm in self.false_alarms]
        return {
            "defects": [search.as_json() for search in self.searches],
            "unfinished": self.left,
            "unseen": [{"name": name, "reason": why} for name, why in self.unseen.items()],
            "clean": {
                "seeds": self.clean_seeds,
                "false_alarms": alarms,
                "forfeited": [
                    {"seed": seed, "reason": why} for seed, why in sorted(self.forfeited.items())
                ],
            },
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """Searches for the defects of one system on one runtime, below `out`."""

    system: System
    runtime: str
    plugins: Plugins
    out: Path
    budget: Budget
    report: ReportProgress
    """Gets a line for each defect and for each false alarm."""
    detail: ReportProgress = lambda line: None
    """Gets a line for each step: a search that begins, a random schedule that found nothing."""

    def chosen(self, only: Collection[str] = ()) -> Sequence[Defect]:
        """The defects to search for: all unless some are named; raises UsageError for a system
        without defects or an unknown name."""
        if not isinstance(self.system, HasDefects):
            raise UsageError(f"{self.system.name} has no defects to switch on")
        defects = self.system.defects()
        for defect in defects:
            for clause in defect.breaks:
                self.plugins.clause(clause, self.system.plane)
        names = [defect.name for defect in defects]
        for name in only:
            if name not in names:
                raise no_such("defect", name, names)
        return [defect for defect in defects if not only or defect.name in only]

    def search(self, defect: Defect) -> Search:
        """Searches for one defect until it is found or the budget is spent.

        Raises EnvironmentFailed if pytest cannot run the suites: a result without them would hide
        that.
        """
        search = Search(defect)
        began_ns = now_ns()
        budget = self.budget
        self.detail(
            f"{defect.name}: searched for, in the suites and in at most "
            f"{counted(budget.seeds, 'random schedule')} of {budget.span_ms // 1000} s"
        )
        # The suites' tests of its clauses first: they are made to exercise them.
        self._by_suites(search)
        for seed in range(1, self.budget.seeds + 1):
            search.wall_s = (now_ns() - began_ns) / SECOND
            # Before a run, never within one: a run that is cut short would show nothing.
            if search.found or search.wall_s > self.budget.wall_s:
                break
            search.seeds = seed
            conducted = self._schedule(seed, (defect.name,))
            search.not_ready = conducted.trouble if conducted.result is None else ""
            self._take(search, conducted.folder)
            if not search.found:
                self.detail(f"{defect.name}: nothing in random schedule {seed}")
        search.wall_s = (now_ns() - began_ns) / SECOND
        return search

    def clean(self, seed: int) -> Clean:
        """Runs a random schedule on the healthy system; every reported violation is a false
        alarm."""
        conducted = self._schedule(seed, ())
        folder = conducted.folder
        alarms = [
            FalseAlarm(seed, clause, verdict.violations[0].message, str(folder.path))
            for clause, verdict in verdicts_in(folder).items()
            if verdict.verdict is Outcome.VIOLATED
        ]
        if conducted.trouble:
            alarms.append(FalseAlarm(seed, "recovery", conducted.trouble, str(folder.path)))
        if not alarms:
            shutil.rmtree(folder.path)
        if conducted.result is None:
            return Clean(conducted.trouble, tuple(alarms))
        judgement = conducted.result.judgement
        return Clean(
            "",
            tuple(alarms),
            judgement.in_part(conducted.result.end),
            {clause: one.verdict for clause, one in judgement.verdicts.items()},
        )

    # ---------------------------------------------------------------------------------- workings

    def _by_suites(self, search: Search) -> None:
        """Runs the suites' tests of the clauses it breaks, up to the first that reports one."""

        def reported(ran: testrun.Ran) -> bool:
            self._take(search, ran.folder)
            return search.found

        clauses = frozenset(search.defect.breaks)
        wanted = testrun.Wanted(
            self.system.name,
            self.runtime,
            self.out,
            seed=1,
            shape=Shape(defects=(search.defect.name,)),
            clauses=clauses,
            suite=testrun.suite_of(self.system),
        )
        collected = testrun.ResultCollector(clauses, reported)
        ended = testrun.listen_quietly(wanted, collected)
        for why in collected.uncollected.values():
            raise UsageError(why)
        if ended in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            code = int(ended)
            raise EnvironmentFailed(f"the suites cannot be run: pytest ended with exit code {code}")

    def _schedule(self, seed: int, defects: tuple[str, ...]) -> Conducted:
        """One random schedule."""
        spec = RunSpec(self.system, Shape(defects=defects), self.runtime, seed, lossy=True)
        folder = new_folder(self.out, f"random-{seed}")
        return run_one(spec, self.plugins, folder, self.budget.span_ms, self.plugins.faults)

    @staticmethod
    def _take(search: Search, folder: RunFolder) -> None:
        """Adds the verdicts of a run; deletes the folder of a run that found nothing."""
        violated = tuple(
            clause
            for clause, verdict in verdicts_in(folder).items()
            if verdict.verdict is Outcome.VIOLATED
        )
        search.virtual_s += _lasted_s(folder)
        search.reported_by = tuple(dict.fromkeys((*search.reported_by, *violated)))
        # Only a clause that the defect breaks finds it: others may be violated by what follows from
        # it.
        if set(violated) & set(search.defect.breaks):
            search.run = folder
        else:
            shutil.rmtree(folder.path)


def verdicts_in(folder: RunFolder) -> Mapping[str, Verdict]:
    """The verdicts of a judged run; none if the run was not judged."""
    path = folder.path / "verdicts.json"
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Verdict])


def search_all(
    searcher: Searcher,
    only: Collection[str] = (),
    jobs: int = 1,
    into: Results | None = None,
) -> Results:
    """Searches for each chosen defect, then for false alarms, as many at a time as there are jobs;
    raises UsageError as `chosen` and `check_spec` do.

    What is found is added to `into` at once, so that it outlives an interrupt.
    """
    chosen = searcher.chosen(only)
    check_spec(RunSpec(searcher.system, DEFAULT_SHAPE, searcher.runtime))
    results = Results() if into is None else into
    seen: list[Defect] = []
    for defect in chosen:
        why = defect.unseen.get(searcher.runtime)
        if why is None:
            seen.append(defect)
            continue
        searcher.report(f"{defect.name}: not searched for on {searcher.runtime}: {why}")
        results.unseen[defect.name] = why
    results.left += [defect.name for defect in seen]
    for _, search in done(searcher.search, seen, jobs):
        missed = f"NOT found ({search.not_ready})" if search.not_ready else "NOT found"
        word = f"found by {', '.join(search.reported_by)}" if search.found else missed
        name = search.defect.name
        searcher.report(f"{name}: {word} ({search.wall_s:.1f} s, {counted(search.seeds, 'seed')})")
        results.searches.append(search)
        # At once, so that an interrupt leaves them in the order of the catalogue, too.
        results.searches.sort(key=lambda one: seen.index(one.defect))
        results.left.remove(name)
    search_clean(searcher, results, jobs)
    return results


def search_clean(searcher: Searcher, results: Results, jobs: int = 1) -> None:
    """Searches for false alarms only."""
    seeds = range(1, searcher.budget.clean_seeds + 1)
    for place, clean in done(searcher.clean, seeds, jobs):
        results.clean_seeds += 1
        if clean.forfeited:
            results.forfeited[seeds[place]] = clean.forfeited
        if clean.not_ready:
            results.not_ready.append(clean.not_ready)
        else:
            results.healthy.append(clean.verdicts)
        searcher.detail(f"healthy seed {results.clean_seeds} of {len(seeds)}")
        for alarm in clean.alarms:
            searcher.report(f"false alarm: seed {alarm.seed}, {alarm.clause}: {alarm.message}")
        results.false_alarms += clean.alarms
    results.false_alarms.sort(key=lambda alarm: (alarm.seed, alarm.clause))


def _lasted_s(folder: RunFolder) -> float:
    """From the harness's first event to its last one, by the clock of the run."""
    path = folder.events_of(HARNESS)
    if not path.exists():
        return 0.0
    codec = Codec()
    lines = path.read_bytes().splitlines()
    first, last = (codec.decode(line).at_ns for line in (lines[0], lines[-1]))
    return (last - first) / SECOND
