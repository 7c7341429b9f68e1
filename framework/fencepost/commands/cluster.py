"""`fencepost cluster up` and `down`: a cluster for a client of the user's own, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fencepost.campaigns import endings
from fencepost.commands.by_hand import Named, asked
from fencepost.commands.options import (
    DEFAULT_OUT,
    DEFAULT_SYSTEM,
    Count,
    Defects,
    Image,
    Json,
    Out,
    Runtime,
    Security,
    Seed,
    Setting,
    System,
)
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    print_json,
    print_line,
    progress,
    show,
)
from fencepost.model.errors import EXIT_CLEAN, EXIT_VIOLATED, FencepostError, Violation
from fencepost.model.faults.handles import Limited, why_not
from fencepost.model.system.shape import shape_of
from fencepost.model.versions import in_image
from fencepost.plugins.manager import Plugins
from fencepost.plugins.reports import ReportRequest
from fencepost.runs.by_hand.channel import Asked, Channel, meeting_of
from fencepost.runs.by_hand.holding import HeldCluster
from fencepost.runs.by_hand.messages import EndCluster, Ended
from fencepost.runs.project import of_project
from fencepost.runs.run import Run, RunSpec, check_runtime, check_spec, new_folder
from fencepost.runtimes.process.name_service import FILE, hosts_file


def up(
    system: System = DEFAULT_SYSTEM,
    image: Image = "",
    runtime: Runtime = "process",
    workload: Annotated[
        str,
        typer.Option(help="The workload whose clients put load on the cluster; none if not given."),
    ] = "",
    seed: Seed = 0,
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    security: Security = "",
    out: Out = DEFAULT_OUT,
) -> None:
    """Starts a cluster, prints its bootstrap address, and keeps it until Ctrl-C, SIGTERM or
    `fencepost cluster down`; then judges what it did, and makes the page of its run.

    From a second terminal, `fencepost fault`, `heal` and `status` break it, heal it and show it.

    If nodes tell clients names instead of addresses, the run folder's `hosts` has them, as a hosts
    file: for nss_wrapper (NSS_WRAPPER_HOSTS), a JVM (-Djdk.net.hosts.file) or /etc/hosts.

    A script's background commands ignore Ctrl-C's SIGINT: end those with SIGTERM.
    """
    plugins = load_plugins(system)
    (system,) = in_image([system], image)
    shape = shape_of(count, setting, defects, security)
    asked = RunSpec(plugins.system(system), shape, runtime, seed, workload)
    spec = of_project(asked, Path.cwd())
    check_runtime(runtime)
    check_spec(spec)
    kept(spec, plugins, out, load=bool(workload))


def kept(spec: RunSpec, plugins: Plugins, out: Path, *, load: bool) -> NoReturn:
    """Starts a run, keeps it for a second terminal, then ends and judges it; ends the command."""
    folder = new_folder(out, "cluster")
    # Before anything is started: it may be refused.
    meeting = meeting_of(folder.path)
    with Run.start(spec, plugins, folder, progress()) as run:
        if load:
            run.clients.load()
        # Before the address is printed: a script that waits for that line may go on at once.
        with Channel.open(meeting) as channel:
            _introduce(run)
            ended, why = _held(HeldCluster(run, channel, _say_aside))
        # It ends so as planned, also by an interrupt or an error, and its history is judged as that
        # of any other run. A second interrupt cuts it short.
        end = _end(run, plugins)
        _show_end(end)
        if ended is not None:
            ended.answer(end)
        # A violation stands, whatever ended the run; an interrupt has an exit code of its own.
        if why is not None and (end.exit_code != EXIT_VIOLATED or not isinstance(why, Exception)):
            raise why
    _exit(end)


def down(run: Named = None, json: Json = False) -> None:
    """Ends a cluster that `fencepost cluster up` keeps, and waits until its run was judged; prints
    the page, and ends with the exit code of the verdicts."""
    answer = asked(run, EndCluster(), Ended)
    if json:
        print_json(answer)
    else:
        _show_end(answer)
    _exit(answer)


def _show_end(end: Ended) -> None:
    for line in end.says:
        show(errors(), line)
    if end.page:
        print_line(end.page)


def _exit(end: Ended) -> NoReturn:
    show(errors(), end.reason)
    raise typer.Exit(end.exit_code)


def _held(cluster: HeldCluster) -> tuple[Asked | None, BaseException | None]:
    """Who asked for the cluster's end, or what ended it."""
    try:
        return cluster.hold(), None
    except (KeyboardInterrupt, FencepostError, Violation) as why:
        return None, why


def _say_aside(line: str) -> None:
    show(errors(), (line, "yellow"))


def _introduce(run: Run) -> None:
    """Prints the bootstrap address, and how to go on."""
    print_line(",".join(run.runtime.bootstrap))
    if run.spec.runtime == "attached":
        show(errors(), ("the cluster is attached: it is left as it was when this ends", "dim"))
    elif names := run.runtime.names:
        path = run.folder.path / FILE
        path.write_text(hosts_file(names))
        show(errors(), (f"nodes that name each other: their names are in {path}", "dim"))
    else:
        show(errors(), ("warning:", "yellow"), " no client outside reaches what is simulated")
    if run.runtime.secrets is not None:
        kept = f"keys and passwords of its users are in {run.runtime.secrets}"
        show(errors(), (kept, "dim"))
    for line in _how_to_go_on(run):
        show(errors(), (line, "dim"))


def _how_to_go_on(run: Run) -> Iterator[str]:
    """The commands of a second terminal, with a node of this cluster as their example."""
    node = run.runtime.layout.nodes()[-1].name
    yield f"run folder {run.folder.path}"
    yield "from a second terminal:"
    yield "  fencepost status --watch"
    isolate = run.plugins.faults.get("isolate")
    lacks = run.runtime.lacks if isinstance(run.runtime, Limited) else {}
    if isolate is not None and not why_not(isolate, lacks):
        yield f"  fencepost fault isolate {node} --for 10s      (fencepost fault lists all)"
    yield "  fencepost heal"
    yield "  fencepost cluster down                       (or here: Ctrl-C, or SIGTERM)"


def _end(run: Run, plugins: Plugins) -> Ended:
    """Ends and judges the run, and makes its page."""
    result = run.finish()
    verdicts = result.judgement.verdicts
    says = [endings.what_held([{one: v.verdict for one, v in verdicts.items()}])]
    code, reason = EXIT_CLEAN, ""
    try:
        result.check()
    except (Violation, FencepostError) as error:
        code, path = error.exit_code, str(result.folder.path)
        broken = endings.violated(len(result.judgement.broken))
        reason = ", ".join(broken) if code == EXIT_VIOLATED else str(error).partition("\n")[0]
        says += [str(error), endings.go_on(path)]
    page = ""
    try:
        plugins.check_report(1)
        page = plugins.report(ReportRequest.of([result.folder.path], result.folder.report))
    except FencepostError as lacking:
        says.append(f"no page was made: {lacking}")
    return Ended(
        folder=str(result.folder.path),
        page=page,
        says=tuple(says),
        reason=endings.exit_reason(code, reason),
        exit_code=code,
    )
