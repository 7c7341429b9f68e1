"""`fencepost defects`: searches for each of a system's defects, then for false alarms."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from fencepost.campaigns.defects import BUDGETS, Searcher, search_all
from fencepost.campaigns.jobs import jobs_for
from fencepost.commands.options import DEFAULT_OUT, DEFAULT_SYSTEM, Jobs, Json, Out, Runtime, System
from fencepost.commands.terminal import (
    load_plugins,
    print_failure,
    print_json,
    print_line,
    progress,
)
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EXIT_VIOLATED
from fencepost.runs.run import check_runtime


def defects(
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "simulated",
    only: Annotated[
        list[str] | None, typer.Option(help="A defect, by name; may be given more than once.")
    ] = None,
    clean: Annotated[int | None, typer.Option(help="How many healthy seeds to compare.")] = None,
    jobs: Jobs = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Switches on each defect in turn and searches for it; then looks for false alarms without
    one."""
    loaded = load_plugins()
    check_runtime(runtime)
    budget = BUDGETS[runtime]
    if clean is not None:
        budget = replace(budget, clean_seeds=clean)
    searcher = Searcher(
        system=loaded.system(system),
        runtime=runtime,
        plugins=loaded,
        out=out / "defects",
        budget=budget,
        report=progress(),
    )
    results = search_all(searcher, only or (), jobs or jobs_for(runtime))
    if json:
        print_json(results.as_json())
    else:
        for line in results.lines():
            print_line(line)
    if failure := results.never_started():
        print_failure(failure)
        raise typer.Exit(EXIT_ENVIRONMENT)
    raise typer.Exit(EXIT_VIOLATED if results.lost or results.false_alarms else EXIT_CLEAN)
