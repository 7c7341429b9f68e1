"""`fencepost soak`: random schedules, run after run, with all findings joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fencepost.campaigns import soak as soaks
from fencepost.campaigns.jobs import jobs_for
from fencepost.campaigns.soak_journal import Deleted, Ended, Journal, Ran
from fencepost.campaigns.soaked import Soaked, SoakRun, ending
from fencepost.commands.options import (
    DEFAULT_OUT,
    DEFAULT_SYSTEM,
    Budget,
    Count,
    Defects,
    Image,
    Jobs,
    Json,
    Keep,
    KeepAtMost,
    Out,
    Runtime,
    Security,
    Seed,
    Setting,
    System,
    Workload,
    check_budget,
)
from fencepost.commands.terminal import (
    load_plugins,
    print_failure,
    print_json,
    print_line,
    progress,
)
from fencepost.model.clock import SECOND, now_ns, wall_clock
from fencepost.model.errors import UsageError, no_such
from fencepost.model.faults.random_faults import NamesDraws
from fencepost.model.system.attachment import ANY
from fencepost.model.system.shape import shape_of
from fencepost.model.versions import in_image
from fencepost.plugins.manager import Plugins
from fencepost.runs.project import of_project
from fencepost.runs.random_schedule import chooser_of, offered
from fencepost.runs.run import POWERED, RunSpec, check_runtime, check_spec, out_folder

MOST_WEIGHT = 1_000


def soak(
    system: System = DEFAULT_SYSTEM,
    image: Image = "",
    runtime: Runtime = "process",
    runs: Annotated[int, typer.Option(min=1, help="How many runs.")] = 20,
    minutes: Annotated[
        float, typer.Option(min=0.05, help="How long faults are injected in each.")
    ] = 3.0,
    faults: Annotated[
        bool,
        typer.Option("--faults/--no-faults", help="Inject faults by random schedules, or none."),
    ] = True,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FACTOR: how much more often a fault or another operation is drawn; 0: never."
        ),
    ] = None,
    workload: Workload = "",
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    security: Security = "",
    seed: Seed = 1,
    jobs: Jobs = None,
    keep: Keep = False,
    keep_at_most: KeepAtMost = None,
    budget: Budget = None,
    attach: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Soak the cluster of this file, which runs already, and leave it as it was.",
        ),
    ] = None,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="List which operations met which states.")
    ] = False,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Keeps a system under load with random schedules, run after run, and joins the findings."""
    if attach is not None:
        system, runtime = f"{ANY}@{attach.absolute()}", "attached"
    loaded = load_plugins(system)
    (system,) = in_image([system], image)
    check_runtime(runtime)
    check_budget(budget, minutes)
    asked = RunSpec(
        loaded.system(system),
        shape_of(count, setting, defects, security),
        runtime=runtime,
        seed=seed,
        workload=workload,
        lossy=faults,
    )
    spec = of_project(asked, Path.cwd())
    check_spec(spec)
    if weight and not faults:
        raise UsageError("--weight is for operations that are drawn, and --no-faults draws none")
    wanted = soaks.Soak(
        spec,
        runs,
        round(minutes * 60_000),
        offered(loaded.faults, spec.system) if faults else (),
        jobs=jobs or jobs_for(runtime),
        keep=keep or keep_at_most is not None,
        keep_bytes=keep_at_most,
        budget_ns=budget,
        weights=_weights(weight or (), loaded, spec),
    )
    soaked, began_ns, plan = Soaked(with_faults=faults), now_ns(), wanted.plan
    place = out_folder(out / "soak")
    journal = Journal.open(place, plan, wall_clock())

    def took_s() -> float:
        return (now_ns() - began_ns) / SECOND

    def note(what: SoakRun | int) -> None:
        match what:
            case int():
                journal.note(Deleted(seed=what))
            case run:
                journal.note(Ran(run=run, took_s=took_s()))

    try:
        soaks.soak(wanted, loaded, place, progress(everywhere=True), into=soaked, noted=note)
    finally:  # an error or an interrupt, too: what was found cost hours
        if soaked.runs and json:
            print_json(soaked.as_json())
        elif soaked.runs:
            for line in ending(soaked, plan, took_s(), coverage=coverage):
                print_line(line)
        # Once it is said: if nothing reads it, or the disk is full, `fencepost report` can say it.
        journal.note(Ended(spent=soaked.spent, took_s=took_s()))
        journal.close()
    if failure := soaked.never_started():
        print_failure(failure)
    raise typer.Exit(soaked.exit_code())


def _weights(given: Sequence[str], loaded: Plugins, spec: RunSpec) -> Mapping[str, float]:
    """The factors; raises UsageError for a name that does not exist or is never drawn, or a wrong
    factor."""
    found: dict[str, float] = {}
    names = {*loaded.faults, *loaded.workload(spec.clients).operations}
    chooser = chooser_of(spec)
    chosen = names & {*chooser.draws} if isinstance(chooser, NamesDraws) else names
    drawn = sorted(chosen if spec.runtime in POWERED else chosen - {"lose_power"})
    for one in given:
        name, _, factor = one.partition("=")
        if name not in drawn:
            if name not in names:
                raise no_such("operation", name, drawn)
            where = f"on {spec.runtime}" if name in chosen else f"for {spec.system.name}"
            raise UsageError(f"{name!r} is never drawn {where}, but {', '.join(drawn)} are")
        try:
            found[name] = float(factor)
        except ValueError:
            raise UsageError(f"--weight takes NAME=FACTOR with a number, not {one!r}") from None
        if not 0 <= found[name] <= MOST_WEIGHT:
            raise UsageError(f"the factor of {name} is from 0 to {MOST_WEIGHT}, not {factor}")
    return found
