"""`fencepost lies`: false words of a node in a recorded history, and what contradicts them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251 - seeded here
from tempfile import TemporaryDirectory
from typing import Annotated, final

import typer

from fencepost.campaigns.acquittals import PLACES, Acquittals, Tried, tried
from fencepost.campaigns.defects import BUDGETS, Searcher
from fencepost.campaigns.jobs import done, jobs_for
from fencepost.campaigns.lies import WITHHELD, Results, Truth, tell
from fencepost.commands.options import DEFAULT_SYSTEM, Jobs, Json, Seed, System
from fencepost.commands.terminal import load_plugins, print_json, print_line, progress
from fencepost.events import Codec
from fencepost.history import merge
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import EXIT_CLEAN, EXIT_VIOLATED, EnvironmentFailed, UsageError
from fencepost.model.system.capabilities import Defect
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, check_spec, new_folder


def lies(
    run: Annotated[
        list[Path] | None,
        typer.Argument(help="Recorded runs; none: random schedules in the simulator."),
    ] = None,
    system: System = DEFAULT_SYSTEM,
    schedules: Annotated[
        int, typer.Option(min=1, help="Random schedules, if no run is given, of 30 s each.")
    ] = 2,
    acquit: Annotated[
        bool,
        typer.Option(
            "--acquit",
            help="Alter words of the accused where a clause is violated, and see which silence it; "
            "without a run, in one run of each defect of the system.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="With --acquit: a defect, by name; may be given more than once."),
    ] = None,
    places: Annotated[
        int, typer.Option(min=1, help="With --acquit: at how many places each field is altered.")
    ] = PLACES,
    seed: Seed = 1,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Alters or withholds the events of one node, one field at a time, and judges the history
    again: which words of a node does an independent witness contradict?"""
    if only and (run or not acquit):
        raise UsageError("--only names defects to be searched for: with --acquit, and without runs")
    loaded = load_plugins()
    jobs = jobs or jobs_for("simulated")
    if acquit:
        attempt = _Attempt(loaded, seed=seed, places=places, jobs=jobs)
        found = attempt.in_runs(run) if run else attempt.of_defects(system, only or ())
        if json:
            print_json(found.as_json())
        else:
            for line in found.lines():
                print_line(line)
        # As `defects` ends: a defect without a run was not tried at all.
        raise typer.Exit(EXIT_VIOLATED if found.not_found else EXIT_CLEAN)
    with TemporaryDirectory(prefix="fencepost-lies-") as out:
        truths = (
            [_read(RunFolder(path), loaded) for path in run]
            if run
            else [_made(loaded, system, seed + n, Path(out)) for n in range(schedules)]
        )
        results = tell(truths, Random(f"{seed}/lies"), jobs, progress())
    if json:
        print_json(results.as_json())
    else:
        _show(results)


@final
@dataclass(frozen=True, slots=True)
class _Attempt:
    """Tries the lies of the accused, a run at a time in each job."""

    loaded: Plugins
    seed: int
    places: int
    jobs: int

    def in_runs(self, runs: Sequence[Path]) -> Acquittals:
        """In recorded runs, against each clause that is violated there."""
        return Acquittals(_joined(dict(done(self._in_run, runs, self.jobs))))

    def of_defects(self, system: str, only: Sequence[str]) -> Acquittals:
        """In one run of each defect of a system, against the clauses that it breaks."""
        report = progress(everywhere=True)
        with TemporaryDirectory(prefix="fencepost-lies-") as out:
            searcher = Searcher(
                system=self.loaded.system(system),
                runtime="simulated",
                plugins=self.loaded,
                out=Path(out),
                budget=BUDGETS["simulated"],
                report=report,
            )
            defects = searcher.chosen(only)
            check_spec(RunSpec(searcher.system, runtime="simulated"))
            lies: dict[int, Sequence[Tried]] = {}
            lost: dict[int, str] = {}
            each = done(lambda defect: self._of_defect(searcher, defect), defects, self.jobs)
            for place, found in each:
                name = defects[place].name
                if found is None:
                    lost[place] = name
                    report(f"{name}: not found")
                    continue
                lies[place] = found
                report(f"{name}: {len(Acquittals(found).acquitted)} of {len(found)} acquit")
        return Acquittals(_joined(lies), [lost[place] for place in sorted(lost)])

    def _in_run(self, run: Path) -> Sequence[Tried]:
        folder = RunFolder(run)
        truth = _read(folder, self.loaded)
        violated = truth.verdicts.of(Outcome.VIOLATED)
        if not violated:
            raise UsageError(f"{run}: no clause is violated there, so nobody could be acquitted")
        return self._tried(truth, "+".join(folder.info().defects), violated)

    def _of_defect(self, searcher: Searcher, defect: Defect) -> Sequence[Tried] | None:
        """None if no run shows it."""
        search = searcher.search(defect)
        if search.run is None:
            return None
        truth = _read(search.run, self.loaded)
        shutil.rmtree(search.run.path)
        # By its own clauses: others may be violated by what follows from it.
        return self._tried(
            truth, defect.name, [c for c in defect.breaks if c in search.reported_by]
        )

    def _tried(self, truth: Truth, defect: str, clauses: Sequence[str]) -> Sequence[Tried]:
        # A stream for each, so that the order in which they are tried changes nothing.
        random = Random(f"{self.seed}/acquit/{defect}")
        return tried(truth, defect, clauses, random, self.places)


def _joined(each: Mapping[int, Sequence[Tried]]) -> Sequence[Tried]:
    return [one for place in sorted(each) for one in each[place]]


def _made(loaded: Plugins, system: str, seed: int, out: Path) -> Truth:
    """The history of a random schedule in the simulator."""
    folder = new_folder(out, f"random-{seed}")
    spec = RunSpec(loaded.system(system), runtime="simulated", seed=seed, lossy=True)
    conducted = run_one(spec, loaded, folder, 30_000, loaded.faults)
    if conducted.result is None:
        raise EnvironmentFailed(conducted.trouble)
    return _read(folder, loaded)


def _read(folder: RunFolder, loaded: Plugins) -> Truth:
    """A recorded history."""
    promises, info = loaded.promises, folder.info()
    reading = merge.read(folder, Codec(promises.kinds))
    events = tuple(reading)
    return Truth(
        events=events,
        end=reading.end,
        plane=promises.plane(info.system),
        nodes=frozenset(slot.name for slot in info.slots if slot.role != "client"),
        promises=promises,
    )


def _show(results: Results) -> None:
    for one in results.fields:
        what = f"{one.kind}.{one.field}" if one.field != WITHHELD else f"{one.kind} withheld"
        by = ", ".join(one.noticed_by) or ("doubted" if one.doubted else "believed")
        print_line(f"{what}: {by}")
    print_line(f"{results.noticed} of {results.of} lies noticed")
