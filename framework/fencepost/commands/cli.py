"""The program `fencepost`: its commands, put together, and its exit codes.

Data go to standard output, progress and errors to standard error. Exit codes: 0 clean, 1 a clause
was violated, 2 usage, 3 inconclusive, 4 the environment failed, 70 an internal error, 130
interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer
from typer._click import exceptions as click  # typer re-exports no base class

from fencepost.commands.attach import attach
from fencepost.commands.bisect import bisect
from fencepost.commands.by_hand import OPTIONS_OF_FAULTS, fault, heal, status
from fencepost.commands.cluster import down, up
from fencepost.commands.compare import compare
from fencepost.commands.conformance import conformance
from fencepost.commands.defects import defects
from fencepost.commands.demo import demo
from fencepost.commands.doctor import doctor
from fencepost.commands.lies import lies
from fencepost.commands.mutants import mutants
from fencepost.commands.new_system import new_system
from fencepost.commands.options import defaults_of
from fencepost.commands.plugins import plugins
from fencepost.commands.replay import replay
from fencepost.commands.report import report
from fencepost.commands.run import run
from fencepost.commands.setup import setup
from fencepost.commands.soak import soak
from fencepost.commands.terminal import print_failure
from fencepost.model.configuration import configured_for, from_environment
from fencepost.model.disk import disk_failure
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_ENVIRONMENT,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    FencepostError,
    InternalError,
    Violation,
)
from fencepost.model.text import printable
from fencepost.plugins.raising import by_plugin

app = typer.Typer(
    help=(
        "Breaks clusters where authority changes hands, and names the epoch or fencing event "
        "that explains each failure."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=(
        "Exit codes: 0 nothing new, 1 a clause was violated or a test failed, 2 wrong usage, "
        "or code of a plugin raised, 3 undecided, 4 the machine, a tool or a node failed, 70 a "
        "bug, 130 interrupted."
    ),
)
cluster_app = typer.Typer(help="Clusters for your own client.", no_args_is_help=True)
COMMANDS: Mapping[Callable[..., None], str] = {
    demo: "Break a healthy cluster, then one with a defect.",
    run: "Run the suites, or your tests, and show verdicts.",
    replay: "Inject the faults of a recorded run again.",
    report: "Make tables and pages of recorded runs.",
    defects: "Search for each defect of a system.",
    mutants: "Change a system's code, and see whether that is noticed.",
    lies: "Let one node lie, and see which rules notice it.",
    conformance: "Show the verdict of each clause on each runtime.",
    attach: "Break a cluster of yours, and leave it as it was.",
    soak: "Keep a system under load and faults, run after run.",
    compare: "Run the same schedules on several systems or versions.",
    bisect: "Find the first build that breaks what a run broke.",
    plugins: "List what the loaded plugins offer.",
    new_system: "Write a small plugin for a system of your own.",
    setup: "Build toxiproxy; fetch what systems need.",
    doctor: "Check this machine, and list what dead runs left.",
}
"""Each command with its summary for the list of commands, which cuts off a longer line."""
for command, line in COMMANDS.items():
    app.command(short_help=line)(command)
app.command(short_help="Break the cluster in the hand.", context_settings=OPTIONS_OF_FAULTS)(fault)
app.command(short_help="Heal the faults of the cluster in the hand.")(heal)
app.command(short_help="Show the cluster in the hand.")(status)
cluster_app.command(short_help="Start a cluster and keep it.")(up)
cluster_app.command(short_help="End it, and judge its run.")(down)
app.add_typer(cluster_app, name="cluster")

INTERRUPTED = "interrupted; everything that was started has ended"


def main() -> NoReturn:
    """The entry point `fencepost`."""
    sys.exit(_main())


def _main() -> int:
    program = typer.main.get_command(app)
    try:
        with _signals():
            configured = {**configured_for(Path.cwd()), **from_environment(os.environ)}
            defaults = defaults_of(program, configured)
            code = program.main(prog_name="fencepost", standalone_mode=False, default_map=defaults)
            if code != EXIT_INTERRUPTED:  # typer returns this for a KeyboardInterrupt
                return code if isinstance(code, int) else EXIT_CLEAN
            return _failed(INTERRUPTED, code)
    except click.NoArgsIsHelpError as error:
        typer.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as error:
        return _failed(" ".join(error.format_message().split()), EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return _failed(INTERRUPTED, EXIT_INTERRUPTED)
    except (FencepostError, Violation) as error:
        said = [str(error), *getattr(error, "__notes__", ())]
        return _failed("\n".join(said), error.exit_code)
    except BrokenPipeError:
        return _unread()
    except OSError as error:
        failed = disk_failure(error)
        return _unforeseen(error) if failed is None else _failed(str(failed), failed.exit_code)
    except SystemExit as error:  # rich ends a program so whose output nothing reads
        unread = isinstance(error.__context__, BrokenPipeError)
        return _unread() if unread else _unforeseen(error)
    except BaseException as error:  # Python would end with 1, which stands for a violation
        return _unforeseen(error)


def _unforeseen(error: BaseException) -> int:
    typer.echo(printable(traceback.format_exc()), err=True)
    found = by_plugin(error) or InternalError(f"{type(error).__name__}: {error}")
    return _failed(str(found), found.exit_code)


def _unread() -> int:
    """Ends a command whose output a program has stopped reading, such as `head`."""
    # Python writes what is left in its buffer when it ends, and would print an error about that.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _failed("the standard output was closed before its end", EXIT_ENVIRONMENT)


def _failed(message: str, code: int) -> int:
    print_failure(message)
    return code


class _Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP: unwinds as SIGINT does, here and in pytest, and every process is ended."""


@contextmanager
def _signals() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP unwind the stack as SIGINT does."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise _Interrupted(signal.Signals(number).name)

    # By default these end a program at once, without any `finally`: the supervisor would still end
    # all processes, and the run would have no end in its history.
    before = {n: signal.signal(n, raise_it) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
