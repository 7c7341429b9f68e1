"""`fencepost mutants`: changes systems' code, one place at a time, and counts what is noticed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fencepost.campaigns.mutants.campaign import Campaign
from fencepost.campaigns.mutants.owners import Owners, changeable
from fencepost.commands.options import DEFAULT_SYSTEM, Json, Seed
from fencepost.commands.terminal import load_plugins, print_json, print_line, progress
from fencepost.model.errors import EXIT_CLEAN, EXIT_VIOLATED


def mutants(
    system: Annotated[
        str | None,
        typer.Option(
            help="Only this system's code, under its own suite; not given: the code of every "
            "system, each change under the suites of the systems whose decision it is."
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many changes to draw.")] = 300,
    seed: Seed = 1,
    tests: Annotated[
        list[Path] | None,
        typer.Option(help="Tests beside the suite: a file or a folder; may be given repeatedly."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this module or package. With --tests, any, such as the rules: no suite "
            "runs, only --tests do. May be given repeatedly."
        ),
    ] = None,
    schedules: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Random schedules after the suite, of 30 s each: 5 if not given, none where no "
            "suite runs.",
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
    """Flips comparisons, conditions and effects of systems' code, one at a time, and runs their
    suites, other tests and random schedules in the simulator; or of other modules, such as the
    rules, and runs their tests. Exit code 1 if a change was not noticed."""
    plugins = load_plugins()
    # Other code than a system's: no suite of any system says whether it is right.
    foreign = bool(module and tests)
    chosen = plugins.system(system or DEFAULT_SYSTEM)
    campaign = Campaign(
        system=chosen,
        paths=[str(path.absolute()) for path in tests or ()],
        modules=module if module and foreign else (),
        jobs=jobs or os.cpu_count() or 1,
        seeds=schedules if schedules is not None else 0 if foreign else 5,
        span_ms=30_000,
        report=progress(),
    )
    if foreign or (system and not module):
        drawn = campaign.at(at) if at else campaign.drawn(count, seed)
        results = campaign.run(drawn, campaign.healthy(drawn))
    else:
        systems = changeable([chosen] if system else plugins.systems.values())
        owners = Owners([replace(campaign, system=one) for one in systems], module or ())
        results = owners.run(owners.at(at) if at else owners.drawn(count, seed))
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
