"""`fencepost conformance`: the verdict of each clause on systems and runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from fencepost.campaigns.conformance import conformance as run_conformance
from fencepost.commands.options import DEFAULT_OUT, DEFAULT_SYSTEM, Json, Out, SeedOrLast
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    output,
    print_failure,
    print_json,
    print_matrix,
    progress,
    show,
)
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_INCONCLUSIVE,
    EXIT_VIOLATED,
    EnvironmentFailed,
)
from fencepost.model.system.capabilities import System
from fencepost.runs.run import check_runtime, runtimes_of


def conformance(
    path: Annotated[
        str | None,
        typer.Argument(
            help="Tests: a file, a folder or a node id, such as a plugin's own; by default the "
            "suite of each system."
        ),
    ] = None,
    system: Annotated[
        list[str] | None, typer.Option(help="System under test; may be given more than once.")
    ] = None,
    runtime: Annotated[
        str | None, typer.Option(help="One runtime; all that can run the system if not given.")
    ] = None,
    seed: SeedOrLast = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Runs the suites, or your tests, and shows the verdict of every clause, its evidence and its
    tests."""
    loaded = load_plugins()
    for name in [runtime] if runtime else []:
        check_runtime(name)
    systems = [loaded.system(one) for one in system or [DEFAULT_SYSTEM]]
    report = progress()
    matrices = [
        run_conformance(
            one,
            name,
            plugins=loaded,
            out=out / "conformance",
            seed=seed,
            tests=path,
            report=report,
        )
        for one in systems
        for name in ([runtime] if runtime else _runtimes_here(one))
    ]
    rows = [row for matrix in matrices for row in matrix.rows]
    if json:
        print_json(rows)
    elif rows:
        print_matrix(rows, loaded, output())
    failures = [matrix.failure for matrix in matrices if matrix.failure is not None]
    for failure in failures:
        print_failure(str(failure))
    failed = [test for matrix in matrices if matrix.failure is None for test in matrix.failed]
    if failed:
        print_failure(f"{len(failed)} failed: {', '.join(failed)}")
    outcomes = {row.verdict for row in rows if not row.known}
    if Outcome.VIOLATED in outcomes:
        raise typer.Exit(EXIT_VIOLATED)
    if failures:
        raise typer.Exit(failures[0].exit_code)
    if Outcome.UNKNOWN in outcomes:
        raise typer.Exit(EXIT_INCONCLUSIVE)
    raise typer.Exit(EXIT_VIOLATED if failed else EXIT_CLEAN)


def _runtimes_here(system: System) -> Sequence[str]:
    """The runtimes that can run a system on this machine; prints which cannot, and why."""
    able = []
    for name in runtimes_of(system):
        try:
            check_runtime(name)
            able.append(name)
        except EnvironmentFailed as lacking:
            show(errors(), (f"without {name}:", "yellow"), f" {lacking}")
    return able
