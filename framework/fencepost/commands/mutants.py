"""`fencepost mutants`: changes a system's code, one place at a time, and counts what is noticed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fencepost.campaigns.mutants.campaign import Campaign
from fencepost.commands.options import DEFAULT_SYSTEM, Json, Seed, System
from fencepost.commands.terminal import load_plugins, print_json, print_line, progress
from fencepost.model.errors import EXIT_CLEAN, EXIT_VIOLATED, UsageError


def mutants(
    system: System = DEFAULT_SYSTEM,
    count: Annotated[int, typer.Option(min=1, help="How many changes to draw.")] = 300,
    seed: Seed = 1,
    tests: Annotated[
        list[Path] | None,
        typer.Option(help="Tests beside the suite: a file or a folder; may be given repeatedly."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            help="A module or package to change in place of the system's code, such as the rules; "
            "the suite does not run, only --tests do. May be given repeatedly."
        ),
    ] = None,
    schedules: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Random schedules after the suite, of 30 s each: 5 if not given, none with "
            "--module.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Every change of one line instead, as module:line; may be repeated."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many at a time; one a core if not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Flips comparisons, conditions and effects of a system's code, one at a time, and runs its
    suite, other tests and random schedules in the simulator; or of other modules, such as the
    rules, and runs their tests. Exit code 1 if a change was not noticed."""
    if module and not tests:
        raise UsageError("--module needs --tests: which tests shall notice a change?")
    campaign = Campaign(
        system=load_plugins().system(system),
        paths=[str(path.absolute()) for path in tests or ()],
        modules=module or (),
        jobs=jobs or os.cpu_count() or 1,
        seeds=schedules if schedules is not None else 0 if module else 5,
        span_ms=30_000,
        report=progress(),
    )
    drawn = campaign.at(at) if at else campaign.drawn(count, seed)
    results = campaign.run(drawn, campaign.healthy(drawn))
    if json:
        print_json(results.as_json())
    else:
        for one in results.mutants:
            if not one.noticed_by:
                change = f"{one.file}:{one.line}: {one.was} -> {one.now}"
                print_line(f"not noticed: {change} (reached by {one.reached_by})")
        print_line(f"{results.noticed} of {len(results.mutants)} changes noticed")
    missed = results.noticed < len(results.mutants)
    raise typer.Exit(EXIT_VIOLATED if missed else EXIT_CLEAN)
