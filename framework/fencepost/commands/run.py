"""`fencepost run`: pytest on the suites or on the user's tests, with verdicts and receipts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import pytest
import typer

from fencepost.campaigns import endings
from fencepost.campaigns.conformance import MatrixRow, expected, rows_of, undecided, violated
from fencepost.commands.options import (
    Count,
    Defects,
    Image,
    Json,
    Security,
    SeedOrLast,
    Setting,
    Workload,
    span,
)
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    output,
    print_failure,
    print_json,
    print_line,
    print_run_table,
    show,
)
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_VIOLATED
from fencepost.model.system.shape import shape_of
from fencepost.runs.schedule import receipts as receipts_of
from fencepost.testing import test_run as testrun


def _time(text: str) -> str:
    span(text)  # refused here, since pytest's own error would name an option of pytest
    return text


def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]... [-- OPTIONS OF PYTEST]",
            help="Tests: files, folders or node ids; by default the suites. What follows `--` is "
            "pytest's.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(help="System under test; by default that of pytest's settings."),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(help="process, simulated or docker; by default that of pytest's settings."),
    ] = None,
    image: Image = "",
    workload: Workload = "",
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    security: Security = "",
    seed: SeedOrLast = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder below which run folders are made; by default that of pytest's settings."
        ),
    ] = None,
    select: Annotated[
        str, typer.Option("-k", metavar="EXPRESSION", help="Only tests whose names match.")
    ] = "",
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            parser=_time,
            help="The time that the tests may take, such as 20m: none begins that may not end in "
            "it. If one did not begin, the exit code is 3, unless it is worse.",
        ),
    ] = None,
    exit_first: Annotated[bool, typer.Option("-x", help="Stop at the first failure.")] = False,
    json: Json = False,
) -> None:
    """Runs tests against a system, by default the suites, and shows verdicts and receipts."""
    tests, options = _words(paths or (), select, exit_first)
    wanted = testrun.Wanted(
        system,
        runtime,
        out,
        seed=seed,
        shape=shape_of(count, setting, defects, security),
        workload=workload,
        tests=tests,
        options=options,
        budget=budget or "",
        image=image,
    )
    code, collected = testrun.run_tests(wanted, json, load_plugins)
    for why in list(collected.uncollected.values())[:1]:
        print_failure(why)
    if (chosen := collected.chosen) is None:
        raise typer.Exit(code)
    rows = rows_of(chosen.system, chosen.runtime, chosen.plugins, collected.runs)
    unsure = undecided(rows)
    if code == EXIT_CLEAN and unsure:
        code = EXIT_INCONCLUSIVE
    reason = reason_of(code, rows, collected)
    receipts = [receipts_of(ran.folder.schedule) for ran in collected.runs]
    if json and collected.refused:
        print_failure(collected.refused)
    if json:
        verdicts = {row.clause: row.verdict for row in rows}
        without = [fault for one in receipts for fault, why in one.items() if why]
        print_json(
            {
                "exit_code": code,
                "reason": reason,
                "tests": collected.tests,
                "verdicts": verdicts,
                "not_begun": collected.unbegun,
                "expected": {row.clause: row.expected_by for row in rows if row.expected_by},
                "receipts": {"faults": sum(map(len, receipts)), "without": without},
            }
        )
    elif collected.runs:
        print_run_table(rows, receipts, chosen.plugins, output())
    if not collected.runs and code == EXIT_CLEAN:
        show(errors(), "no test had a run of its own, so no clause was judged")
    if not json and code != EXIT_INTERRUPTED:
        for line in (*expected(rows), *endings.undecided(unsure), *_unbegun(collected), reason):
            print_line(line)
    raise typer.Exit(code)


def _unbegun(collected: testrun.ResultCollector) -> Sequence[str]:
    """Which tests were not begun, if any."""
    if not collected.unbegun:
        return ()
    tests = endings.counted(len(collected.unbegun), "test was", "tests were")
    return [f"{tests} not begun, since --budget had no time: {endings.few(collected.unbegun)}"]


def reason_of(code: int, rows: Sequence[MatrixRow], collected: testrun.ResultCollector) -> str:
    """The reason for the exit code: the failure that decided it, unless that is a verdict, and how
    much was violated, undecided and failed."""
    unsure = len(undecided(rows))
    failed = len({one["test"] for one in collected.tests if one["outcome"] == "failed"})
    reasons = (
        *violated(rows),
        _decisive(code, collected),
        f"{endings.counted(unsure, 'clause')} undecided" if unsure else "",
        f"{endings.counted(failed, 'test')} failed" if failed else "",
        f"{endings.counted(len(collected.unbegun), 'test')} not begun" if collected.unbegun else "",
    )
    if any(reasons):
        return endings.exit_reason(code, *reasons)
    if code:
        return endings.exit_reason(code, _of_pytest(collected))
    return endings.exit_reason(code, "" if collected.runs else "nothing was judged")


def _decisive(code: int, collected: testrun.ResultCollector) -> str:
    """The failure that decided the exit code, in one line; empty for a verdict."""
    if code in (EXIT_CLEAN, EXIT_VIOLATED):
        return ""
    if code == EXIT_INCONCLUSIVE and code not in collected.codes:
        return ""
    if code == EXIT_INTERRUPTED:
        return "interrupted"
    if code in collected.codes:
        return next(iter(collected.codes[code].splitlines()), "")
    if collected.refused:
        return collected.refused
    if collected.ended == pytest.ExitCode.NO_TESTS_COLLECTED:
        return "no test was collected"
    return _of_pytest(collected)


def _of_pytest(collected: testrun.ResultCollector) -> str:
    return f"pytest ended with its exit code {collected.ended}"


def _words(
    given: Sequence[str], select: str, exit_first: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tests, and the options of pytest."""
    tests = tuple(takewhile(lambda word: not word.startswith("-"), given))
    selected = (f"-k={select}",) if select else ()
    return tests, (*given[len(tests) :], *selected, *(("-x",) if exit_first else ()))
