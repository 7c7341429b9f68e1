"""The command line: words in, one of six exit codes out; what a command does is elsewhere.

Data go to standard output, progress and errors to standard error. Exit codes: 0 clean, 1 a clause
was violated, 2 usage, 3 inconclusive, 4 the environment failed, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import msgspec
import typer
from typer._click import exceptions as click  # typer carries its own and re-exports no base

from fencepost.campaigns.conformance import conformance as run_conformance
from fencepost.campaigns.conformance import rows_of
from fencepost.campaigns.defects import BUDGETS, Searcher, search_all
from fencepost.campaigns.soak import Soak
from fencepost.campaigns.soak import soak as run_soak
from fencepost.commands import doctor as checks
from fencepost.commands.terminal import (
    errors,
    output,
    print_json,
    print_matrix,
    print_run_table,
    print_verdicts,
    progress,
)
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.judge import Outcome
from fencepost.model.clock import wall_clock
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    EXIT_VIOLATED,
    EnvironmentFailed,
    FencepostError,
    UsageError,
    Violation,
)
from fencepost.model.runtime import Condition
from fencepost.model.shape import Shape
from fencepost.model.systems import System as Tested
from fencepost.plugins.manager import Plugins, PluginWarning, load
from fencepost.runs.demo import DemoResult
from fencepost.runs.demo import demo as run_demo
from fencepost.runs.replay import replay as run_replay
from fencepost.runs.run import (
    Run,
    RunResult,
    RunSpec,
    check_runtime,
    explain_violations,
    runtimes_of,
)
from fencepost.runs.schedule import receipts as receipts_of
from fencepost.testing import test_run as testrun

app = typer.Typer(
    help="Breaks clusters where authority changes hands, and says "
    "which epoch or fencing event explains each failure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
cluster_app = typer.Typer(help="Clusters for a client of your own.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")

System = Annotated[str, typer.Option(help="System under test.")]
Runtime = Annotated[str, typer.Option(help="Where its processes live.")]
Workload = Annotated[str, typer.Option(help="Whose clients work on it; the system's, if none.")]
Seed = Annotated[int, typer.Option(help="What every choice of chance derives from.")]
Out = Annotated[Path, typer.Option(help="Folder below which run folders are made.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]

DEFAULT_SYSTEM = "reference/quorum"
DEFAULT_OUT = Path(".fencepost")
INTERRUPTED = "interrupted; everything that was started has ended"


def _plugins() -> Plugins:
    """The loaded plugins; one that was set apart is said so in one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PluginWarning)
        plugins = load()
    for warning in caught:
        errors().print(f"[yellow]warning:[/yellow] {warning.message}")
    return plugins


# ---------------------------------------------------------------------------------------- commands


@app.command()
def demo(
    system: System = DEFAULT_SYSTEM,
    seed: Seed = 1,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Starts a cluster, breaks it, judges it; once more with a planted defect; explains it."""
    plugins = _plugins()
    result = run_demo(plugins.system(system), plugins, out, seed, progress())
    if json:
        print_json(result.as_json())
    else:
        _show_demo(result)
    raise typer.Exit(EXIT_CLEAN if result.clean else _demo_code(result))


def _show_demo(result: DemoResult) -> None:
    console = output()
    healthy, planted = (run.result for run in result.runs)
    console.print("\n[bold]The healthy cluster[/bold]")
    print_verdicts(healthy.judgement, console)
    console.print(f"\n[bold]With the defect '{result.runs[1].defect}' planted[/bold]")
    broken = planted.judgement.of(Outcome.VIOLATED)
    if broken:
        console.print(explain_violations(planted.judgement.verdicts), soft_wrap=True)
    else:
        console.print("nothing was found: that is a hole in a rule or in this demo")
    missed = [r.fault_id for run in result.runs for r in run.receipts if not r.receipt]
    if missed:
        console.print(f"\n[yellow]faults without a receipt: {', '.join(missed)}[/yellow]")
    console.print(f"\n{result.elapsed_s:.0f} s. The page: {result.page}", soft_wrap=True)


def _demo_code(result: DemoResult) -> int:
    if result.runs[0].result.judgement.of(Outcome.VIOLATED):
        return EXIT_VIOLATED
    return EXIT_INCONCLUSIVE


@app.command()
def run(
    path: Annotated[
        str | None, typer.Argument(help="Tests: a file, a folder or a node id; the suites if none.")
    ] = None,
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "process",
    workload: Workload = "",
    seed: Annotated[int | None, typer.Option(help="Drawn anew if not given.")] = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Runs tests against a system, with verdicts and receipts; the suites, if no path is given."""
    plugins = _plugins()
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


@app.command()
def replay(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    runtime: Annotated[str | None, typer.Option(help="The run's own, if none is given.")] = None,
    workload: Workload = "",
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Injects the faults of a recorded run into a new cluster: the same targets and times."""
    plugins = _plugins()
    result = run_replay(RunFolder(folder.absolute()), plugins, out, progress(), runtime, workload)
    _finish(result, json)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, any number.")],
    out: Out = DEFAULT_OUT / "report",
    json: Json = False,
) -> None:
    """Judges runs anew and correlates their failures with epochs and fencing: tables, one page."""
    plugins = _plugins()
    runs = [RunFolder(folder.absolute()) for folder in folders]
    judged = [judge_folder(one, plugins.promises) for one in runs]
    page = plugins.report([one.path for one in runs], out.absolute())
    print_json({"report": str(page)}) if json else typer.echo(str(page))
    for one, (_, end) in zip(runs, judged, strict=True):
        if not end.complete:
            errors().print(f"{one.run} is not complete: {'; '.join(end.damage)}")
    if any(judgement.broken for judgement, _ in judged):
        raise typer.Exit(EXIT_VIOLATED)
    raise typer.Exit(EXIT_CLEAN if all(end.complete for _, end in judged) else EXIT_INCONCLUSIVE)


@app.command()
def defects(
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "simulated",
    only: Annotated[
        list[str] | None, typer.Option(help="A defect, by name; may be given more than once.")
    ] = None,
    clean: Annotated[int | None, typer.Option(help="How many healthy seeds to compare.")] = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Switches each defect on in turn and looks for it; then for false alarms without one."""
    loaded = _plugins()
    check_runtime(runtime)
    budget = BUDGETS[runtime]
    if clean is not None:
        budget = replace(budget, clean_seeds=clean)
    searcher = Searcher(loaded.system(system), runtime, loaded, out / "defects", budget, progress())
    results = search_all(searcher, only or ())
    lost = [search.defect.name for search in results.searches if not search.found]
    if json:
        print_json(results.as_json())
    else:
        found = len(results.searches) - len(lost)
        typer.echo(f"{found} of {len(results.searches)} defects found by a clause they break")
        typer.echo(f"{len(results.false_alarms)} false alarms over {results.clean_seeds} seeds")
    if results.never_started():
        raise typer.Exit(_fail(results.never_started(), EXIT_ENVIRONMENT))
    raise typer.Exit(EXIT_VIOLATED if lost or results.false_alarms else EXIT_CLEAN)


@app.command()
def conformance(
    system: Annotated[
        list[str] | None, typer.Option(help="System under test; may be given more than once.")
    ] = None,
    runtime: Annotated[
        str | None, typer.Option(help="One runtime; each that can, if none.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Drawn anew if not given.")] = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Runs the suites and says of every clause what it came to, by whose word and which test."""
    loaded = _plugins()
    for name in [runtime] if runtime else []:
        check_runtime(name)
    systems = [loaded.system(one) for one in system or [DEFAULT_SYSTEM]]
    matrices = [
        run_conformance(one, name, loaded, out / "conformance", seed)
        for one in systems
        for name in ([runtime] if runtime else _runtimes_here(one))
    ]
    rows = [row for matrix in matrices for row in matrix.rows]
    if json:
        print_json(rows)
    else:
        print_matrix(rows, loaded, output())
    failures = [matrix.failure for matrix in matrices if matrix.failure is not None]
    failed = [_fail(str(failure), failure.exit_code) for failure in failures]
    outcomes = {row.verdict for row in rows if not row.known}
    if Outcome.VIOLATED in outcomes:
        raise typer.Exit(EXIT_VIOLATED)
    if failed:
        raise typer.Exit(failed[0])
    raise typer.Exit(EXIT_INCONCLUSIVE if Outcome.UNKNOWN in outcomes else EXIT_CLEAN)


def _runtimes_here(system: Tested) -> Sequence[str]:
    """The runtimes that can run a system on this machine; says which cannot, and why."""
    able = []
    for name in runtimes_of(system):
        try:
            check_runtime(name)
            able.append(name)
        except EnvironmentFailed as lacking:
            errors().print(f"[yellow]without {name}:[/yellow] {lacking}")
    return able


@app.command()
def soak(
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "process",
    runs: Annotated[int, typer.Option(min=1, help="How many runs, one after the other.")] = 20,
    minutes: Annotated[
        float, typer.Option(min=0.05, help="How long faults are injected in each.")
    ] = 3.0,
    faults: Annotated[
        bool, typer.Option("--faults/--no-faults", help="Random schedules, or load at peace.")
    ] = True,
    workload: Workload = "",
    seed: Seed = 1,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Keeps a system under load and random schedules, run after run, and joins what was found."""
    loaded = _plugins()
    check_runtime(runtime)
    spec = RunSpec(
        loaded.system(system), runtime=runtime, seed=seed, workload=workload, lossy=faults
    )
    wanted = Soak(spec, runs, round(minutes * 60_000), loaded.faults if faults else ())
    soaked = run_soak(wanted, loaded, out / "soak", progress())
    violated, undecided = soaked.violated(), soaked.undecided()
    if json:
        print_json(soaked.as_json())
    else:
        for one, count in soaked.known().items():
            typer.echo(f"known finding {one}: in {count} of {runs} runs")
        typer.echo(f"{len(violated)} clauses violated: {', '.join(violated) or 'none'}")
        typer.echo(f"{len(undecided)} undecided: {', '.join(undecided) or 'none'}")
    if soaked.never_started():
        raise typer.Exit(_fail(soaked.never_started(), EXIT_ENVIRONMENT))
    raise typer.Exit(EXIT_VIOLATED if violated else EXIT_INCONCLUSIVE if undecided else EXIT_CLEAN)


@app.command()
def plugins(json: Json = False) -> None:
    """Lists what the loaded plugins offer, and those that were set apart (exit code 4)."""
    loaded = _plugins()
    offers = {
        offer.plugin: {
            "systems": sorted(offer.systems),
            "faults": sorted(offer.faults),
            "workloads": sorted(offer.workloads),
            "clauses": len(offer.clauses),
            "rules": len(offer.rules),
            "applicability": len(offer.applicability),
            "event_kinds": [kind.__name__ for kind in offer.event_kinds],
            "known_findings": sorted(offer.known_findings),
        }
        for offer in loaded.offers
    }
    if json:
        print_json({"plugins": offers, "broken": loaded.broken})
        raise typer.Exit(EXIT_ENVIRONMENT if loaded.broken else EXIT_CLEAN)
    console = output()
    for name, offered in offers.items():
        words = ", ".join(f"{k}: {_words(v)}" for k, v in offered.items() if v)
        console.print(f"[bold]{name}[/bold]  {words}", soft_wrap=True)
    for name, why in loaded.broken.items():
        console.print(f"[red]{name}[/red]  set apart: {why}", soft_wrap=True)
    raise typer.Exit(EXIT_ENVIRONMENT if loaded.broken else EXIT_CLEAN)


def _words(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


@app.command()
def doctor(
    reap: Annotated[
        bool, typer.Option("--reap", help="First remove what dead runs left in containers.")
    ] = False,
    json: Json = False,
) -> None:
    """Checks what this machine has of what runs need, and lists what is left of dead runs."""
    for gone in checks.reap() if reap else ():
        errors().print(f"removed {gone}")
    found = checks.examine()
    if json:
        print_json([msgspec.structs.asdict(one) for one in found])
    else:
        console = output()
        for one in found:
            mark = "[green]ok[/green]  " if one.good else "[red]lacks[/red]"
            console.print(f"{mark} {one.what}: {one.message}", soft_wrap=True)
    raise typer.Exit(EXIT_CLEAN if all(one.good for one in found) else EXIT_ENVIRONMENT)


@cluster_app.command()
def up(
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "process",
    seed: Seed = 0,
    count: Annotated[
        list[str] | None, typer.Option(help="NAME=N, one of the system's counts.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, one of the system's settings.")
    ] = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Starts a cluster, prints its bootstrap address, and keeps it until it is interrupted."""
    plugins = _plugins()
    counts = {name: _number(n) for name, n in _pairs("--count", count or []).items()}
    shape = Shape(counts, _pairs("--setting", setting or []))
    spec = RunSpec(plugins.system(system), shape, runtime, seed)
    folder = RunFolder.create_below(out, "cluster", wall_clock())
    with Run.start(spec, plugins, folder) as started:
        typer.echo(",".join(started.runtime.bootstrap))
        errors().print(f"[dim]run folder {folder.path}; interrupt to stop[/dim]")
        never = Condition("an interrupt", lambda view: False)
        started.runtime.advance(never, 1 << 62)


def _pairs(option: str, given: list[str]) -> Mapping[str, str]:
    pairs = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"{option} takes NAME=VALUE, not {one!r}")
        pairs[name] = value
    return pairs


def _number(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"--count takes NAME=N with a number, not {text!r}")
    return int(text)


def _finish(result: RunResult, json: bool) -> NoReturn:
    """Shows what a run came to, and exits accordingly."""
    if json:
        verdicts = {c: str(v.verdict) for c, v in result.judgement.verdicts.items()}
        print_json({"path": str(result.folder.path), "verdicts": verdicts})
    else:
        print_verdicts(result.judgement, output())
        typer.echo(str(result.folder.path))
    result.check()
    raise typer.Exit(EXIT_CLEAN)


# -------------------------------------------------------------------------------------------- main


class _Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP: unwinds as SIGINT does, here and in pytest, and every process is ended."""


@contextmanager
def _signals() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP unwind the stack as SIGINT does."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise _Interrupted(signal.Signals(number).name)

    before = {n: signal.signal(n, raise_it) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> NoReturn:
    """The entry point `fencepost`."""
    sys.exit(_main())


def _main() -> int:
    command = typer.main.get_command(app)
    try:
        with _signals():
            code = command.main(prog_name="fencepost", standalone_mode=False)
            if code != EXIT_INTERRUPTED:  # what typer makes of a KeyboardInterrupt
                return code if isinstance(code, int) else EXIT_CLEAN
            return _fail(INTERRUPTED, code)
    except click.NoArgsIsHelpError as error:
        typer.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as error:
        return _fail(" ".join(error.format_message().split()), EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(INTERRUPTED, EXIT_INTERRUPTED)
    except (FencepostError, Violation) as error:
        return _fail(str(error), error.exit_code)


def _fail(message: str, code: int) -> int:
    typer.echo(f"fencepost: {message}", err=True)
    return code
