"""`fencepost conformance`: the verdict of each clause on systems and runtimes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from fencepost.campaigns import endings
from fencepost.campaigns.conformance import Matrix, MatrixRow, expected, undecided, violated
from fencepost.campaigns.conformance import conformance as run_conformance
from fencepost.commands.options import (
    DEFAULT_OUT,
    DEFAULT_SYSTEM,
    Count,
    Defects,
    Json,
    Out,
    Security,
    SeedOrLast,
    Setting,
)
from fencepost.commands.terminal import (
    applying,
    errors,
    load_plugins,
    output,
    print_failure,
    print_json,
    print_line,
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
    FencepostError,
)
from fencepost.model.secrets import redacted
from fencepost.model.system.capabilities import System
from fencepost.model.system.shape import Shape, options_of, shape_of
from fencepost.runs.run import RunSpec, check_runtime, check_spec, runtimes_of
from fencepost.testing.test_run import check_suite

NO_RUN = "no test had a run of its own, so nothing was tried"


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
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    security: Security = "",
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Runs the suites, or your tests, and shows the verdict of every clause, its evidence and its
    tests."""
    loaded = load_plugins()
    for name in [runtime] if runtime else []:
        check_runtime(name)
    systems = [loaded.system(one) for one in system or [DEFAULT_SYSTEM]]
    shape = shape_of(count, setting, defects, security)
    tried = [
        (one, name) for one in systems for name in ([runtime] if runtime else _runtimes_here(one))
    ]
    for one, name in tried:
        check_spec(RunSpec(one, shape, name))
        if not path:
            check_suite(one, loaded, "conformance")
    report = progress()
    matrices = [
        run_conformance(
            one,
            name,
            plugins=loaded,
            out=out / "conformance",
            seed=seed,
            tests=path,
            shape=shape,
            report=report,
        )
        for one, name in tried
    ]
    rows = [row for matrix in matrices for row in matrix.rows]
    if json:
        print_json(rows)
    elif rows:
        print_matrix(rows, loaded, output())
        foreign = {row.clause for row in rows} - {row.clause for row in applying(rows)}
        if foreign:
            clauses = endings.counted(len(foreign), "clause")
            show(output(), f"{clauses} of other systems left out")
    failures = [matrix.failure for matrix in matrices if matrix.failure is not None]
    for failure in failures:
        print_failure(str(failure))
    failed = [test for matrix in matrices if matrix.failure is None for test in matrix.failed]
    if failed:
        print_failure(f"{len(failed)} failed: {', '.join(failed)}")
    tried_any = any(matrix.tried for matrix in matrices)
    code = _code(rows, failures, failed)
    if not json:
        again = again_of(matrices, shape)
        for line in ending(rows, failed, failures, code, again, tried=tried_any):
            print_line(line)
    raise typer.Exit(code)


def _code(rows: Sequence[MatrixRow], failures: Sequence[FencepostError], failed: object) -> int:
    if any(row.is_new for row in rows):
        return EXIT_VIOLATED
    if failures:
        return failures[0].exit_code
    if undecided(rows):
        return EXIT_INCONCLUSIVE
    return EXIT_VIOLATED if failed else EXIT_CLEAN


def ending(
    rows: Sequence[MatrixRow],
    failed: Sequence[str],
    failures: Sequence[FencepostError],
    code: int,
    again: str = "",
    *,
    tried: bool = True,
) -> Iterator[str]:
    """What is new, what held, where to go on, and the reason for the exit code, a line each."""
    new = [row for row in rows if row.is_new]
    unsure = undecided(rows)
    for row in new:
        where = f"{row.system} on {row.runtime}"
        yield f"NEW: {row.clause} is violated by {where} in {endings.few(row.violated_by)}"
    yield from expected(rows)
    columns: dict[tuple[str, str], dict[str, Outcome]] = {}
    for row in rows:
        columns.setdefault((row.system, row.runtime), {})[row.clause] = row.verdict
    for (system, runtime), outcomes in columns.items():
        yield endings.what_held([outcomes], f" on {system}, {runtime}")
    yield from endings.undecided(unsure)
    if again:
        yield again
    yield endings.exit_reason(
        code,
        "" if rows else "nothing was judged",
        NO_RUN if rows and not tried else "",
        f"{endings.counted(len(failures), 'suite')} not judged whole" if failures else "",
        *violated(rows),
        f"{endings.counted(len(unsure), 'clause')} undecided" if unsure else "",
        f"{endings.counted(len(failed), 'test')} failed" if failed else "",
    )


def again_of(matrices: Sequence[Matrix], shape: Shape) -> str:
    """The command that runs the worst test again as it was run here; empty if none is suspect. A
    matrix with a new violation comes before one of which tests failed otherwise."""
    suspect = [one for one in matrices if one.rows and one.failure is None and one.suspects]
    suspect.sort(key=lambda one: not any(row.is_new for row in one.rows))
    if not suspect:
        return ""
    matrix = suspect[0]
    test = matrix.suspects[0]
    options = {"system": matrix.rows[0].system, "runtime": matrix.rows[0].runtime}
    if matrix.seed is not None:
        options["seed"] = str(matrix.seed)
    shown = replace(shape, settings=redacted(shape.settings))
    given = (*options.items(), *options_of(shown))
    words = [word for name, value in given for word in (f"--{name}", value)]
    return f"again: {shlex.join(['fencepost', 'run', *words, matrix.places.get(test, test)])}"


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
