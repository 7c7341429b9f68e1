"""`fencepost report`: makes tables and pages of recorded runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from fencepost.commands.options import DEFAULT_OUT, Json
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    print_json,
    print_line,
    progress,
    show,
)
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, EXIT_VIOLATED
from fencepost.plugins.reports import Engine, ReportedRun, ReportRequest


def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders, any number: paths, or URIs such as s3a://bucket/run."),
    ],
    out: Annotated[
        str, typer.Option(help="Folder or URI in which the tables and the pages are made.")
    ] = str(DEFAULT_OUT / "report"),
    master: Annotated[
        str, typer.Option(help="URL of a Spark cluster; this machine if not given.")
    ] = "",
    remote: Annotated[
        str, typer.Option(help="URL of a Spark Connect server, such as sc://host:15002.")
    ] = "",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
    ] = None,
    py_files: Annotated[
        list[str] | None,
        typer.Option(metavar="ARCHIVE", help="Code for Spark's workers, as .zip; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Makes tables and pages of runs, and explains each failure; judges a run without a valid
    judgement."""
    engine = Engine(
        master=master, remote=remote, conf=_settings(conf or ()), py_files=tuple(py_files or ())
    )
    plugins = load_plugins()
    plugins.check_report(len(runs), engine)
    reported: list[ReportedRun] = []

    def take(run: ReportedRun) -> None:
        reported.append(run)
        _show(run)

    progress()("read the runs")
    page = plugins.report(ReportRequest(tuple(runs), out, engine, take))
    refused = {run.run: run.refused for run in reported if run.refused}
    print_json({"report": page, "refused": refused}) if json else print_line(page)
    if any(run.broken for run in reported):
        raise typer.Exit(EXIT_VIOLATED)
    whole = not any(run.lacks or run.refused for run in reported)
    raise typer.Exit(EXIT_CLEAN if whole else EXIT_INCONCLUSIVE)


def _settings(given: Sequence[str]) -> Mapping[str, str]:
    for one in given:
        if not one.partition("=")[0] or "=" not in one:
            raise typer.BadParameter(f"{one!r} is no setting: write --conf KEY=VALUE")
    return {name: value for name, _, value in (one.partition("=") for one in given)}


def _show(run: ReportedRun) -> None:
    """Says what a reader must know of a run even if no page can be made."""
    if run.refused:
        show(errors(), f"{run.run} is left out: {run.refused}")
    if run.stalled:
        show(errors(), (f"{run.run}: {run.stalled}", "yellow"))
    if run.violated:
        show(errors(), f"{run.run} violates {', '.join(run.violated)}")
    if run.lacks:
        show(errors(), f"{run.run} is not complete: {run.lacks}")
