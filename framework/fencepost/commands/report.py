"""`fencepost report`: makes tables and pages of recorded runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Annotated, NoReturn

import typer
from msgspec import to_builtins

from fencepost.campaigns import endings
from fencepost.commands.options import DEFAULT_OUT, Json
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    print_json,
    print_line,
    progress,
    progress_bar,
    show,
)
from fencepost.history.run_folder import system_of
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, EXIT_VIOLATED, UsageError
from fencepost.plugins.manager import Plugins
from fencepost.plugins.reports import (
    Engine,
    Following,
    ReportedRun,
    ReportRequest,
    ReportUpdate,
    counted,
)

_SEVERAL = 2
"""A report that follows a folder is over more than one run."""


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Run folders, any number: paths, or URIs such as s3a://bucket/run."),
    ] = None,
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
    follow: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Report each run that is made below this folder, until this is interrupted.",
        ),
    ] = "",
    every: Annotated[
        float,
        typer.Option(
            min=0.1, max=86_400, help="With --follow: seconds between two looks at the folder."
        ),
    ] = 5.0,
    patience: Annotated[
        float,
        typer.Option(
            min=1,
            help="With --follow: seconds without a new event after which a run that has not ended "
            "is reported as it is.",
        ),
    ] = 300.0,
    json: Json = False,
) -> None:
    """Makes tables and pages of runs, and explains each failure; judges a run without a valid
    judgement."""
    engine = Engine(
        master=master, remote=remote, conf=_settings(conf or ()), py_files=tuple(py_files or ())
    )
    given = tuple(runs or ())
    if bool(follow) == bool(given):
        raise UsageError(
            "name the runs to report, or with --follow the folder that they are made in"
        )
    if isnan(every) or isnan(patience):
        raise UsageError("--every and --patience are seconds, and nan is no number of them")
    plugins = load_plugins(system_of(given))
    plugins.check_report(_SEVERAL if follow else len(given), engine)
    if follow:
        following = Following(every_s=every, patience_s=patience, updated=partial(_updated, json))
        _follow(ReportRequest((follow,), out, engine, _show, following), plugins)
    _report(ReportRequest(given, out, engine), plugins, json)


def _follow(request: ReportRequest, plugins: Plugins) -> NoReturn:
    """Makes the report anew until it is interrupted."""
    progress()("wait for runs; an interrupt ends this")
    plugins.report(request)
    raise UsageError("no loaded plugin makes a report that follows a folder")


def _report(request: ReportRequest, plugins: Plugins, json: bool) -> NoReturn:
    """Makes the report once, and ends with its exit code."""
    reported: list[ReportedRun] = []

    progress()("read the runs")
    try:
        with progress_bar("runs") as progressed:
            page = plugins.report(replace(request, notify=reported.append, progressed=progressed))
    finally:
        for run in reported:
            _show(run)
    refused = {run.run: run.refused for run in reported if run.refused}
    if json:
        counts = {clause: to_builtins(one) for clause, one in counted(reported).items()}
        print_json({"report": page, "refused": refused, "clauses": counts})
    else:
        print_line(page)
    broken = sum(run.broken for run in reported)
    left_out = sum(bool(run.refused) for run in reported)
    lacking = sum(bool(run.lacks) for run in reported)
    unsure = sum(bool(run.undecided) for run in reported)
    code = EXIT_INCONCLUSIVE if left_out or lacking or unsure else EXIT_CLEAN
    if broken:
        code = EXIT_VIOLATED
    show(
        errors(),
        endings.exit_reason(
            code,
            f"{endings.counted(broken, 'run')} with a new violation" if broken else "",
            f"{endings.counted(left_out, 'run')} left out" if left_out else "",
            f"{endings.counted(lacking, 'run')} not complete" if lacking else "",
            f"{endings.counted(unsure, 'run')} undecided" if unsure else "",
        ),
    )
    raise typer.Exit(code)


def _settings(given: Sequence[str]) -> Mapping[str, str]:
    for one in given:
        if not one.partition("=")[0] or "=" not in one:
            raise typer.BadParameter(f"{one!r} is no setting: write --conf KEY=VALUE")
    return {name: value for name, _, value in (one.partition("=") for one in given)}


def _updated(json: bool, update: ReportUpdate) -> None:
    """Prints one line for each new state of a report that follows a folder."""
    if json:
        print_json(to_builtins(update))
    else:
        said = [f"runs: {update.runs}", f"new: {len(update.read)}"]
        said += [f"not judged yet: {update.waiting}"] if update.waiting else []
        said += [f"removed before they were read: {update.removed}"] if update.removed else []
        print_line(f"{update.report} ({', '.join(said)})")
    sys.stdout.flush()  # a pipe is read while the command goes on


def _show(run: ReportedRun) -> None:
    """Says what a reader must know of a run even if no page can be made."""
    if run.refused:
        show(errors(), f"{run.run} is left out: {run.refused}")
    if run.stalled:
        show(errors(), (f"{run.run}: {run.stalled}", "yellow"))
    if run.in_part:
        show(errors(), (f"{run.run}: {run.in_part}", "yellow"))
    if run.violated:
        named = (f"{one} (known)" if one in run.known else one for one in run.violated)
        show(errors(), f"{run.run} violates {', '.join(named)}")
    if run.undecided:
        show(errors(), f"{run.run} leaves undecided {endings.few(run.undecided)}")
    if run.lacks:
        show(errors(), f"{run.run} is not complete: {run.lacks}")
