"""`fencepost run`: pytest on the suites or on the user's tests, with verdicts and receipts."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.campaigns.conformance import rows_of
from fencepost.commands.options import (
    DEFAULT_OUT,
    DEFAULT_SYSTEM,
    Json,
    Out,
    Runtime,
    System,
    Workload,
)
from fencepost.commands.terminal import load_plugins, output, print_json, print_run_table
from fencepost.runs.run import check_runtime
from fencepost.runs.schedule import receipts as receipts_of
from fencepost.testing import test_run as testrun


def run(
    path: Annotated[
        str | None,
        typer.Argument(help="Tests: a file, a folder or a node id; by default the suites."),
    ] = None,
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "process",
    workload: Workload = "",
    seed: Annotated[int | None, typer.Option(help="Drawn anew if not given.")] = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Runs tests against a system, by default the suites, and shows verdicts and receipts."""
    plugins = load_plugins()
    tested = plugins.system(system)
    check_runtime(runtime)
    if workload:
        plugins.workload(workload)
    suite = testrun.suite_of(tested)
    wanted = testrun.Wanted(system, runtime, out, seed=seed, workload=workload, suite=suite)
    code, collected = testrun.run_tests(path, wanted, quiet=json)
    rows = rows_of(tested, runtime, plugins, collected.runs)
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
        print_run_table(rows, receipts, plugins, output())
    raise typer.Exit(code)
