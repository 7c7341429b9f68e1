"""`fencepost report`: makes tables and pages of recorded runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from pathlib import Path
from typing import Annotated, NoReturn, final

import typer
from msgspec import to_builtins

from fencepost.campaigns import endings
from fencepost.campaigns.soak_journal import Told, is_of_soaks, read_last
from fencepost.campaigns.soaked import ending
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
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_INCONCLUSIVE,
    EXIT_VIOLATED,
    FencepostError,
    UsageError,
)
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
        typer.Argument(
            help="Run folders, any number: paths, or URIs such as s3a://bucket/run. A folder of a "
            "soak's runs: those of the last soak in it, and its last lines."
        ),
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
    if len(given) == 1 and is_of_soaks(Path(given[0])):
        _report_soak(read_last(Path(given[0])), ReportRequest((), out, engine), json)
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


def _report_soak(told: Told, request: ReportRequest, json: bool) -> NoReturn:
    """The page of the runs whose folders are there, if this machine can make it, and then the last
    lines of the soak, which it would have printed itself if nothing had killed it."""
    soaked = told.soaked
    there = [run.run for run in soaked.runs if Path(run.run).is_dir()]
    folders = (*there, *map(str, told.unfinished))
    plugins = load_plugins(system_of(folders))
    made = _NOT_MADE
    try:
        if folders:
            plugins.check_report(len(folders), request.engine)
            made = _make(replace(request, runs=folders), plugins)
    # The machine lacks something, or a run was killed before anything could be read of it.
    except FencepostError as lacking:
        show(errors(), f"no page was made: {lacking}")
    code = soaked.exit_code() if soaked.runs else EXIT_INCONCLUSIVE
    if json:
        print_json({**made.as_json(), "soak": soaked.as_json()})
    else:
        lines = [made.page] if made.page else []
        lines += [f"had not ended: fencepost report {folder}" for folder in told.unfinished]
        lines += (
            ending(soaked, told.plan, told.took_s, coverage=False)
            if soaked.runs
            else [endings.exit_reason(code, "no run of this soak was judged")]
        )
        for line in lines:
            print_line(line)
    # A run that had not ended is judged by the report alone, and may have broken something.
    worse = made.broken and code != EXIT_VIOLATED
    if worse:
        show(errors(), made.reason)
    raise typer.Exit(EXIT_VIOLATED if worse else code)


def _report(request: ReportRequest, plugins: Plugins, json: bool) -> NoReturn:
    """Makes the report once, and ends with its exit code."""
    made = _make(request, plugins)
    if json:
        print_json(made.as_json())
    else:
        print_line(made.page)
    show(errors(), made.reason)
    raise typer.Exit(made.code)


def _make(request: ReportRequest, plugins: Plugins) -> _Made:
    """Makes the report, and says what a reader must know of each run."""
    reported: list[ReportedRun] = []

    progress()("read the runs")
    try:
        with progress_bar("runs") as progressed:
            page = plugins.report(replace(request, notify=reported.append, progressed=progressed))
    finally:
        for run in reported:
            _show(run)
    return _Made(page, tuple(reported))


@final
@dataclass(frozen=True, slots=True)
class _Made:
    """A report that was made: its page, and what is to be said of its runs."""

    page: str
    reported: tuple[ReportedRun, ...]

    @property
    def broken(self) -> int:
        """How many runs have a new violation."""
        return sum(run.broken for run in self.reported)

    @property
    def code(self) -> int:
        """The exit code of the command."""
        if self.broken:
            return EXIT_VIOLATED
        unsure = any(run.refused or run.lacks or run.undecided for run in self.reported)
        return EXIT_INCONCLUSIVE if unsure else EXIT_CLEAN

    @property
    def reason(self) -> str:
        """Why it is that exit code."""
        numbers = {
            "with a new violation": self.broken,
            "left out": sum(bool(run.refused) for run in self.reported),
            "not complete": sum(bool(run.lacks) for run in self.reported),
            "undecided": sum(bool(run.undecided) for run in self.reported),
        }
        said = [f"{endings.counted(n, 'run')} {what}" for what, n in numbers.items() if n]
        return endings.exit_reason(self.code, *said)

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost report --json` prints."""
        refused = {run.run: run.refused for run in self.reported if run.refused}
        counts = {clause: to_builtins(one) for clause, one in counted(self.reported).items()}
        return {"report": self.page, "refused": refused, "clauses": counts}


_NOT_MADE = _Made("", ())


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
