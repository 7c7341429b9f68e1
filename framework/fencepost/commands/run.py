"""`fencepost run`: pytest on the suites or on the user's tests, with verdicts and receipts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.campaigns.conformance import rows_of
from fencepost.commands.options import Json, SeedOrLast, Workload
from fencepost.commands.terminal import load_plugins, output, print_json, print_run_table
from fencepost.runs.schedule import receipts as receipts_of
from fencepost.testing import test_run as testrun


def run(
    path: Annotated[
        str | None,
        typer.Argument(help="Tests: a file, a folder or a node id; by default the suites."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(help="System under test; by default that of pytest's settings."),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(help="process, simulated or docker; by default that of pytest's settings."),
    ] = None,
    workload: Workload = "",
    seed: SeedOrLast = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder below which run folders are made; by default that of pytest's settings."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Runs tests against a system, by default the suites, and shows verdicts and receipts."""
    wanted = testrun.Wanted(system, runtime, out, seed=seed, workload=workload, tests=path)
    code, collected = testrun.run_tests(wanted, json, load_plugins)
    if (chosen := collected.chosen) is None:
        raise typer.Exit(code)
    rows = rows_of(chosen.system, chosen.runtime, chosen.plugins, collected.runs)
    receipts = [receipts_of(ran.folder.schedule) for ran in collected.runs]
    if json:
        verdicts = {row.clause: row.verdict for row in rows}
        without = [fault for one in receipts for fault, true in one.items() if not true]
        print_json(
            {
                "exit_code": code,
                "tests": collected.tests,
                "verdicts": verdicts,
                "receipts": {"faults": sum(map(len, receipts)), "without": without},
            }
        )
    elif collected.runs:
        print_run_table(rows, receipts, chosen.plugins, output())
    raise typer.Exit(code)
