"""`fencepost report`: makes tables and pages of recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.commands.options import DEFAULT_OUT, Json
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    print_json,
    print_line,
    print_stalls,
    progress,
    show,
)
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.judge import Outcome
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, EXIT_VIOLATED


def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, any number.")],
    page_folder: Annotated[
        Path, typer.Option("--out", help="Folder in which the tables and the page are made.")
    ] = DEFAULT_OUT / "report",
    json: Json = False,
) -> None:
    """Makes tables and pages of runs, and explains each failure; judges a run without a valid
    judgement."""
    plugins = load_plugins()
    runs = [RunFolder(folder.absolute()) for folder in folders]
    plugins.check_report(len(runs))
    say = progress()
    judged = []
    for one in runs:
        say(f"judge {one.run}")
        judged.append(judge_folder(one, plugins.promises))
    # First, so that nothing that becomes of the page can hide them.
    for one, (judgement, end) in zip(runs, judged, strict=True):
        print_stalls(end, f"{one.run}: ")
        if violated := judgement.of(Outcome.VIOLATED):
            show(errors(), f"{one.run} violates {', '.join(violated)}")
        if not end.complete:
            show(errors(), f"{one.run} is not complete: {end.lacks}")
    say("make the page")
    page = plugins.report([one.path for one in runs], page_folder.absolute())
    print_json({"report": str(page)}) if json else print_line(str(page))
    if any(judgement.broken for judgement, _ in judged):
        raise typer.Exit(EXIT_VIOLATED)
    raise typer.Exit(EXIT_CLEAN if all(end.complete for _, end in judged) else EXIT_INCONCLUSIVE)
