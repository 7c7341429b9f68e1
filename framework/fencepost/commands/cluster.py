"""`fencepost cluster up`: a cluster for a client of the user's own."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.commands.options import (
    DEFAULT_OUT,
    DEFAULT_SYSTEM,
    Count,
    Defects,
    Out,
    Runtime,
    Seed,
    Setting,
    System,
)
from fencepost.commands.terminal import errors, load_plugins, print_line, progress, show
from fencepost.model.runtime import Condition
from fencepost.model.system.shape import shape_of
from fencepost.runs.run import Run, RunSpec, new_folder


def up(
    system: System = DEFAULT_SYSTEM,
    runtime: Runtime = "process",
    workload: Annotated[
        str,
        typer.Option(help="The workload whose clients put load on the cluster; none if not given."),
    ] = "",
    seed: Seed = 0,
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Starts a cluster, prints its bootstrap address, and keeps it until Ctrl-C or SIGTERM.

    A script's background commands ignore Ctrl-C's SIGINT: end those with SIGTERM.
    """
    plugins = load_plugins(system)
    shape = shape_of(count, setting, defects)
    spec = RunSpec(plugins.system(system), shape, runtime, seed, workload)
    folder = new_folder(out, "cluster")
    with Run.start(spec, plugins, folder, progress()) as started:
        if workload:
            started.clients.load()
        print_line(",".join(started.runtime.bootstrap))
        show(errors(), (f"run folder {folder.path}; end it with Ctrl-C or SIGTERM", "dim"))
        never = Condition("an interrupt", lambda view: False)
        started.runtime.advance(never, 1 << 62)
