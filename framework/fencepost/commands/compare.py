"""`fencepost compare`: the same schedules on several systems or versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fencepost.campaigns import compare as comparisons
from fencepost.campaigns import endings
from fencepost.campaigns.compare import Compared, Row, Share
from fencepost.campaigns.jobs import jobs_for
from fencepost.campaigns.soaked import NO_FAULT
from fencepost.commands.options import (
    DEFAULT_OUT,
    Budget,
    Count,
    Defects,
    Image,
    Jobs,
    Json,
    Keep,
    Out,
    Runtime,
    Security,
    Seed,
    Setting,
    Workload,
    check_budget,
)
from fencepost.commands.terminal import (
    load_plugins,
    output,
    print_failure,
    print_json,
    print_line,
    progress,
)
from fencepost.history.run_folder import RunFolder
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, EXIT_VIOLATED
from fencepost.model.shares import CONFIDENCE
from fencepost.model.system.shape import shape_of
from fencepost.model.text import printable
from fencepost.model.versions import in_image
from fencepost.runs.project import of_project
from fencepost.runs.run import RunSpec, check_runtime, check_spec


def compare(
    system: Annotated[
        list[str], typer.Option(help="A system, such as apache/kraft@3.9.2; twice or more often.")
    ],
    recorded: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders whose schedules are followed; drawn anew if none."),
    ] = None,
    image: Image = "",
    runtime: Runtime = "process",
    runs: Annotated[int, typer.Option(min=1, help="How many runs of each system.")] = 5,
    minutes: Annotated[
        float, typer.Option(min=0.05, help="How long faults are injected, if they are drawn.")
    ] = 3.0,
    workload: Workload = "",
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    security: Security = "",
    seed: Seed = 1,
    jobs: Jobs = None,
    keep: Keep = False,
    budget: Budget = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Runs the same schedules on several systems, such as versions of one, and shows where they
    differ."""
    loaded = load_plugins()
    check_runtime(runtime)
    check_budget(budget, minutes)
    shape = shape_of(count, setting, defects, security)
    specs = [
        of_project(
            RunSpec(loaded.system(name), shape, runtime, seed, workload, lossy=True), Path.cwd()
        )
        for name in in_image(system, image)
    ]
    for spec in specs:
        check_spec(spec)
    wanted = comparisons.Compare(
        specs=specs,
        runs=runs,
        span_ms=round(minutes * 60_000),
        offered=loaded.faults,
        recorded=[RunFolder(folder.absolute()) for folder in recorded or ()],
        jobs=jobs or jobs_for(runtime),
        keep=keep,
        budget_ns=budget,
    )
    compared = Compared([spec.system.name for spec in wanted.specs])
    try:
        comparisons.compare(wanted, loaded, out / "compare", progress(everywhere=True), compared)
    finally:  # an error or an interrupt, too: what was found cost hours
        if compared.trials:
            _show(compared, json)
    if failure := compared.never_started():
        print_failure(failure)
    raise typer.Exit(_code(compared))


def _code(compared: Compared) -> int:
    if compared.never_started():
        return EXIT_ENVIRONMENT
    if compared.rows():
        return EXIT_VIOLATED
    unsure = compared.troubled() or compared.undecided() or compared.unbroken()
    return EXIT_INCONCLUSIVE if unsure else EXIT_CLEAN


def _show(compared: Compared, json: bool) -> None:
    """Prints the violated clauses with their shares, and then in which of them systems differ."""
    if json:
        print_json(compared.as_json())
        return
    rows = compared.rows()
    if rows:
        output().print(table_of(rows, compared.systems))
    for sentence in compared.troubled():
        print_line(f"not counted as planned: {sentence}")
    for line in ending(compared):
        print_line(line)


def table_of(rows: Sequence[Row], systems: Sequence[str]) -> Table:
    """A line for each clause and system: columns would be cut off where there are many systems."""
    table = Table(box=None, pad_edge=False)
    for name in ("clause", "system", "violated", "known"):
        table.add_column(name, no_wrap=name != "known")
    for row in rows:
        first = (f"{row.clause} *" if row.differs else row.clause, ", ".join(row.known))
        for number, system in enumerate(systems):
            clause, known = first if number == 0 else ("", "")
            cells = (clause, system, _words(row.shares[system]), known)
            table.add_row(*map(printable, cells))
    return table


def _words(one: Share) -> str:
    if not one.of:
        return "not exercised"
    return f"{one.violated} of {one.of} ({one.low:.0%} to {one.high:.0%})"


def ending(compared: Compared) -> Iterator[str]:
    """Where the systems differ, what is new or undecided and why, what held on each, where to go
    on, and the reason for the exit code, a line each."""
    rows, undecided = compared.rows(), compared.undecided()
    differing = ", ".join(row.clause for row in rows if row.differs) or "none"
    yield (
        f"the systems differ (*: their intervals of {CONFIDENCE:.0%} have nothing in common) in "
        f"{differing}"
    )
    if compared.spent:
        schedules = len({one.number for one in compared.trials})
        yield f"stopped after {endings.counted(schedules, 'schedule')}: no time was left for more"
    yield from _new(compared)
    yield from _undecided(compared)
    for system in compared.systems:
        own = [one.verdicts for one in compared.trials if one.system == system and one.started]
        if held := endings.what_held(own, f" on {system}"):
            yield held
    if worst := compared.worst():
        yield endings.go_on(worst.run)
    cut = len(compared.troubled())
    yield endings.exit_reason(
        _code(compared),
        f"{endings.counted(len(rows), 'clause')} violated" if rows else "",
        f"{len(undecided)} undecided" if undecided else "",
        f"{endings.counted(cut, 'run')} cut short" if cut else "",
        "a system never got ready" if compared.never_started() else "",
        NO_FAULT if compared.unbroken() else "",
    )


def _new(compared: Compared) -> Iterator[str]:
    """Each clause that a system violated anew, with the first such violation."""
    said = set()
    for one in compared.trials:
        for clause, message in one.violated.items():
            if (clause, one.system) not in said:
                said.add((clause, one.system))
                yield f"NEW: {clause} is violated by {one.system}, schedule {one.number}: {message}"


def _undecided(compared: Compared) -> Iterator[str]:
    """Why clauses are undecided on each system. Where a run did not reach its end, that is why."""
    because: dict[tuple[str, str], list[str]] = {}
    for one in compared.trials:
        for clause, why in one.unknown.items() if not one.trouble else ():
            because.setdefault((one.system, why), []).append(clause)
    for (system, why), clauses in because.items():
        yield f"undecided on {system}: {endings.few(list(dict.fromkeys(clauses)))}: {why}"
