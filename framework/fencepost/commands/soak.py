"""`fencepost soak`: random schedules, run after run, with all findings joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from fencepost.campaigns import soak as soaks
from fencepost.campaigns.jobs import jobs_for
from fencepost.commands.options import (
    DEFAULT_OUT,
    DEFAULT_SYSTEM,
    Jobs,
    Json,
    Keep,
    Out,
    Runtime,
    Seed,
    System,
    Workload,
)
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    print_failure,
    print_json,
    print_line,
    progress,
    show,
)
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_VIOLATED,
    UsageError,
    no_such,
)
from fencepost.runs.coverage import in_words
from fencepost.runs.run import RunSpec, check_runtime

MOST_WEIGHT = 1_000


def soak(
    system: System = DEFAULT_SYSTEM,
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
    seed: Seed = 1,
    jobs: Jobs = None,
    keep: Keep = False,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Keeps a system under load with random schedules, run after run, and joins the findings."""
    loaded = load_plugins()
    check_runtime(runtime)
    spec = RunSpec(
        loaded.system(system), runtime=runtime, seed=seed, workload=workload, lossy=faults
    )
    wanted = soaks.Soak(
        spec,
        runs,
        round(minutes * 60_000),
        loaded.faults if faults else (),
        jobs=jobs or jobs_for(runtime),
        keep=keep,
        weights=_weights(weight or (), [*loaded.faults, *loaded.workload(spec.clients).operations]),
    )
    soaked = soaks.Soaked(with_faults=faults)
    try:
        soaks.soak(wanted, loaded, out / "soak", progress(), soaked)
    finally:  # an error or an interrupt, too: what was found cost hours
        if soaked.runs:
            _show(soaked, json)
    violated, undecided = soaked.violated(), soaked.undecided()
    if failure := soaked.never_started():
        print_failure(failure)
        raise typer.Exit(EXIT_ENVIRONMENT)
    raise typer.Exit(EXIT_VIOLATED if violated else EXIT_INCONCLUSIVE if undecided else EXIT_CLEAN)


def _weights(given: Sequence[str], names: Sequence[str]) -> Mapping[str, float]:
    """The factors; raises UsageError for a name that does not exist, or a wrong factor."""
    found: dict[str, float] = {}
    for one in given:
        name, _, factor = one.partition("=")
        if name not in names:
            raise no_such("operation", name, names)
        try:
            found[name] = float(factor)
        except ValueError:
            raise UsageError(f"--weight takes NAME=FACTOR with a number, not {one!r}") from None
        if not 0 <= found[name] <= MOST_WEIGHT:
            raise UsageError(f"the factor of {name} is from 0 to {MOST_WEIGHT}, not {factor}")
    return found


def _show(soaked: soaks.Soaked, json: bool) -> None:
    """Prints the findings of all runs so far."""
    if json:
        print_json(soaked.as_json())
        return
    violated, undecided = soaked.violated(), soaked.undecided()
    for line in (line for run in soaked.runs for line in run.why_not_clean()):
        print_line(line)
    for one, count in soaked.known().items():
        print_line(f"known finding {one}: in {count} of {len(soaked.runs)} runs")
    for line in in_words(soaked.met(), soaked.states):
        print_line(line)
    print_line(f"{len(violated)} clauses violated: {', '.join(violated) or 'none'}")
    print_line(f"{len(undecided)} undecided: {', '.join(undecided) or 'none'}")
    for run in soaked.runs:
        if run.stalled:
            show(errors(), f"seed {run.seed}: {run.stalled}")
