"""`fencepost bisect`: which of several builds is the first that breaks a recorded run's promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fencepost.campaigns import bisect as bisections
from fencepost.campaigns import endings
from fencepost.campaigns.bisect import Bisect, Bisected
from fencepost.commands.options import (
    DEFAULT_OUT,
    Count,
    Image,
    Json,
    Keep,
    Out,
    Runtime,
    Security,
    Setting,
    Workload,
)
from fencepost.commands.terminal import load_plugins, print_json, print_line, progress
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, UsageError
from fencepost.model.system.shape import shape_of
from fencepost.model.versions import in_image
from fencepost.plugins.manager import Plugins
from fencepost.runs.project import of_project
from fencepost.runs.run import RunSpec, check_runtime, check_spec


def bisect(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    system: Annotated[
        list[str],
        typer.Option(help="A build, such as apache/kraft@3.9.2 or a path; from old to new."),
    ],
    clause: Annotated[
        list[str] | None,
        typer.Option(help="What must be broken, any of these; by default what the run broke."),
    ] = None,
    times: Annotated[
        int, typer.Option(min=1, help="In how many runs a build must keep them to count as good.")
    ] = 3,
    image: Image = "",
    runtime: Runtime = "process",
    workload: Workload = "",
    count: Count = None,
    setting: Setting = None,
    security: Security = "",
    keep: Keep = False,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Follows the schedule of a recorded run on builds of a system, and finds the first one that
    breaks what the run broke. The oldest must keep it, and the newest break it."""
    loaded = load_plugins()
    check_runtime(runtime)
    recorded = RunFolder(folder.absolute())
    shape = shape_of(count, setting, None, security)
    specs = [
        of_project(
            RunSpec(loaded.system(name), shape, runtime, 1, workload, lossy=True), Path.cwd()
        )
        for name in in_image(system, image)
    ]
    for spec in specs:
        check_spec(spec)
    wanted = Bisect(
        specs=specs,
        recorded=recorded,
        clauses=_clauses(recorded, loaded, clause or ()),
        times=times,
        keep=keep,
    )
    found = Bisected([spec.system.name for spec in specs], wanted.clauses)
    try:
        bisections.bisect(wanted, loaded, out / "bisect", progress(everywhere=True), found)
    finally:  # an error or an interrupt, too
        if found.trials:
            _show(found, json)
    raise typer.Exit(_code(found))


def _clauses(recorded: RunFolder, plugins: Plugins, named: Sequence[str]) -> Sequence[str]:
    """The clauses that are named, or else those that the run broke."""
    if unknown := sorted(set(named) - plugins.promises.clauses.keys()):
        raise UsageError(f"there is no clause {unknown[0]}")
    return tuple(named) or judge_folder(recorded, plugins.promises)[0].of(Outcome.VIOLATED)


def _code(found: Bisected) -> int:
    if found.first() is not None:
        return EXIT_CLEAN
    started = any(one.started for one in found.trials)
    return EXIT_INCONCLUSIVE if started or not found.trials else EXIT_ENVIRONMENT


def _show(found: Bisected, json: bool) -> None:
    first = found.first()
    if not json:
        for line in ending(found):
            print_line(line)
        return
    names = found.systems
    print_json(
        {
            "clauses": list(found.clauses),
            "first": None if first is None else names[first],
            "systems": {names[place]: broken for place, broken in found.broken().items()},
            "runs": [{"system": one.system, "run": one.run} for one in found.trials],
        }
    )


def ending(found: Bisected) -> Iterator[str]:
    """What each build did that was tried, from old to new; where to go on; and the reason for the
    exit code."""
    clauses, known, names = endings.few(found.clauses), found.broken(), found.systems
    for place, broken in sorted(known.items()):
        runs = sum(one.system == names[place] for one in found.trials)
        did = {True: "breaks", False: "keeps", None: "did not decide"}[broken]
        yield f"{names[place]} {did} {clauses} ({endings.counted(runs, 'run')})"
    shown = found.shown()
    if shown is not None:
        yield endings.go_on(shown.run)
    yield endings.exit_reason(_code(found), _reason(found))


def _reason(found: Bisected) -> str:
    """What the search came to."""
    known, names = found.broken(), found.systems
    first, last = found.first(), len(names) - 1
    if first is not None:
        return f"{names[first]} is the first that breaks it"
    if not all(one.started for one in found.trials):
        return f"{found.trials[-1].system} did not start: {found.trials[-1].trouble}"
    if known.get(last) is False:
        return f"the newest, {names[last]}, keeps it"
    if known.get(0):
        return f"the oldest, {names[0]}, breaks it, too"
    open_ones = [names[place] for place, broken in known.items() if broken is None]
    return f"not decided by {endings.few(open_ones)}" if open_ones else "cut short"
