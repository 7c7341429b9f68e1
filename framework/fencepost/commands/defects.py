"""`fencepost defects`: searches for each of a system's defects, then for false alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from fencepost.campaigns import endings
from fencepost.campaigns.defects import BUDGETS, Results, Searcher, search_all
from fencepost.campaigns.jobs import jobs_for
from fencepost.commands.options import DEFAULT_OUT, DEFAULT_SYSTEM, Jobs, Json, Out, System
from fencepost.commands.terminal import (
    load_plugins,
    print_failure,
    print_json,
    print_line,
    progress,
)
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EXIT_VIOLATED
from fencepost.runs.run import check_runtime, runtimes_of


def defects(
    system: System = DEFAULT_SYSTEM,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Its runtime: process, simulated or docker; not given: simulated, or the first "
            "of these on which the system runs.",
            show_default=False,
        ),
    ] = None,
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
    loaded = load_plugins(system)
    tested = loaded.system(system)
    able = runtimes_of(tested)
    if runtime is None:
        runtime = "simulated" if "simulated" in able or not able else able[0]
    check_runtime(runtime)
    budget = BUDGETS[runtime]
    if clean is not None:
        budget = replace(budget, clean_seeds=clean)
    searcher = Searcher(
        system=tested,
        runtime=runtime,
        plugins=loaded,
        out=out / "defects",
        budget=budget,
        report=progress(everywhere=True),
        # Simulated schedules are too many for a log; real ones take half a minute each.
        detail=progress(everywhere=runtime != "simulated"),
    )
    results = Results()
    try:
        search_all(searcher, only or (), jobs or jobs_for(runtime), results)
    except KeyboardInterrupt:  # what was found took a while
        if json:
            print_json(results.as_json())
        else:
            for line in results.lines():
                print_line(line)
        raise
    failure = results.never_started()
    wrong = results.lost or results.false_alarms
    code = EXIT_ENVIRONMENT if failure else EXIT_VIOLATED if wrong else EXIT_CLEAN
    if json:
        print_json(results.as_json())
    else:
        for line in (*results.lines(), *_ending(results, system, code)):
            print_line(line)
    if failure:
        print_failure(failure)
    raise typer.Exit(code)


def _ending(results: Results, system: str, code: int) -> Iterator[str]:
    """What held, where to go on, and the reason for the exit code."""
    lost, alarms = results.lost, results.false_alarms
    if held := endings.what_held(results.healthy, " in the healthy runs"):
        yield held
    if alarms:
        yield endings.go_on(alarms[0].run)
    elif lost:
        yield f"again: fencepost defects --system {system} --only {lost[0]} --clean 0"
    yield endings.exit_reason(
        code,
        f"{endings.counted(len(lost), 'defect')} not found" if lost else "",
        endings.counted(len(alarms), "false alarm") if alarms else "",
        "no cluster got ready" if results.never_started() else "",
    )
