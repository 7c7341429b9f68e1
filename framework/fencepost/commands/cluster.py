"""`fencepost cluster up`: a cluster for a client of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from fencepost.commands.options import DEFAULT_OUT, DEFAULT_SYSTEM, Out, Runtime, Seed, System
from fencepost.commands.terminal import errors, load_plugins, print_line, progress, show
from fencepost.model.errors import UsageError
from fencepost.model.runtime import Condition
from fencepost.model.system.shape import Shape
from fencepost.runs.run import Run, RunSpec, new_folder


def up(
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "process",
    workload: Annotated[
        str,
        typer.Option(help="The workload whose clients put load on the cluster; none if not given."),
    ] = "",
    seed: Seed = 0,
    count: Annotated[
        list[str] | None, typer.Option(help="NAME=N, one of the system's counts.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, one of the system's settings.")
    ] = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Starts a cluster, prints its bootstrap address, and keeps it until Ctrl-C or SIGTERM.

    A script's background commands ignore Ctrl-C's SIGINT: end those with SIGTERM.
    """
    plugins = load_plugins()
    counts = {name: _number(n) for name, n in _pairs("--count", count or []).items()}
    shape = Shape(counts, _pairs("--setting", setting or []))
    spec = RunSpec(plugins.system(system), shape, runtime, seed, workload)
    folder = new_folder(out, "cluster")
    with Run.start(spec, plugins, folder, progress()) as started:
        if workload:
            started.clients.load()
        print_line(",".join(started.runtime.bootstrap))
        show(errors(), (f"run folder {folder.path}; end it with Ctrl-C or SIGTERM", "dim"))
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
