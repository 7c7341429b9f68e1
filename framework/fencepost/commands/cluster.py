"""`fencepost cluster up`: a cluster for a client of the user's own."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.campaigns import endings
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
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    print_failure,
    print_line,
    progress,
    show,
)
from fencepost.events import ProcessExited, kind_name
from fencepost.model.errors import FencepostError, Violation
from fencepost.model.runtime import Condition
from fencepost.model.system.shape import shape_of
from fencepost.runs.run import Run, RunResult, RunSpec, check_runtime, check_spec, new_folder
from fencepost.runtimes.process.name_service import FILE, hosts_file


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
    """Starts a cluster, prints its bootstrap address, and keeps it until Ctrl-C or SIGTERM;
    then judges what it did.

    If nodes tell clients names instead of addresses, the run folder's `hosts` has them, as a hosts
    file: for nss_wrapper (NSS_WRAPPER_HOSTS), a JVM (-Djdk.net.hosts.file) or /etc/hosts.

    A script's background commands ignore Ctrl-C's SIGINT: end those with SIGTERM.
    """
    plugins = load_plugins(system)
    shape = shape_of(count, setting, defects)
    spec = RunSpec(plugins.system(system), shape, runtime, seed, workload)
    check_runtime(runtime)
    check_spec(spec)
    folder = new_folder(out, "cluster")
    with Run.start(spec, plugins, folder, progress()) as started:
        if workload:
            started.clients.load()
        print_line(",".join(started.runtime.bootstrap))
        if names := started.runtime.names:
            path = folder.path / FILE
            path.write_text(hosts_file(names))
            show(errors(), (f"nodes that name each other: their names are in {path}", "dim"))
        else:
            show(errors(), ("warning:", "yellow"), " no client outside reaches what is simulated")
        show(errors(), (f"run folder {folder.path}; end it with Ctrl-C or SIGTERM", "dim"))
        try:
            _tell_of_ends(started)
        except KeyboardInterrupt:
            # It ends so as planned, and its history is judged as that of any other run. A second
            # interrupt cuts it short.
            _tell_of_verdicts(started.finish())
            raise


def _tell_of_ends(run: Run) -> None:
    """Says of each node that ends by itself that it did, until an interrupt."""
    kind, told = kind_name(ProcessExited), 0
    while True:
        run.runtime.advance(_more(kind, told), 1 << 62)
        # Several may have ended at once, and the view knows the last one only.
        bodies = [one.body for one in run.runtime.events() if one.kind == kind]
        for body in bodies[told:]:
            if isinstance(body, ProcessExited) and not body.expected:
                show(errors(), (f"{body.sentence()}; it is started again", "yellow"))
        told = len(bodies)


def _tell_of_verdicts(result: RunResult) -> None:
    """Says what held, and what the cluster broke, if anything, and how to read why."""
    verdicts = result.judgement.verdicts
    show(errors(), endings.what_held([{one: v.verdict for one, v in verdicts.items()}]))
    try:
        result.check()
    except (Violation, FencepostError) as error:
        print_failure(str(error))
        show(errors(), endings.go_on(str(result.folder.path)))


def _more(kind: str, than: int) -> Condition:
    return Condition("another end", lambda view: view.kinds[kind] > than)
