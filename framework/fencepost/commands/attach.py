"""`fencepost attach`: a cluster that runs already, struck from a second terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from fencepost.commands.cluster import kept
from fencepost.commands.options import DEFAULT_OUT, Json, Out, Seed
from fencepost.commands.terminal import load_plugins, print_json, print_line
from fencepost.model.errors import EXIT_CLEAN, EXIT_ENVIRONMENT, EnvironmentFailed, UsageError
from fencepost.model.faults.fault import FaultFactory
from fencepost.model.faults.handles import why_not
from fencepost.model.system.attachment import ANY, Attached, Attachment, check_consent
from fencepost.plugins.manager import Plugins
from fencepost.runs.run import RunSpec, check_runtime, check_spec


class FaultHere(Struct, frozen=True):
    """Whether a fault exists on an attached cluster; `why_not` is empty if it does."""

    name: str
    why_not: str = ""


class Plan(Struct, frozen=True):
    """What a run would touch and make, and which faults exist."""

    touches: tuple[str, ...]
    makes: tuple[str, ...]
    faults: tuple[FaultHere, ...]
    wrong: tuple[str, ...] = ()
    """Why it would not begin, a sentence each."""


def attach(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The cluster's file, such as cluster.toml."),
    ] = None,
    system: Annotated[
        str, typer.Option(help="The system that it is a cluster of, if several can be attached to.")
    ] = ANY,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what would be touched and made, and which faults exist."
        ),
    ] = False,
    compose: Annotated[
        Path | None,
        typer.Option(
            metavar="COMPOSE-FILE",
            help="Print a first draft of the file, for the stack of this compose file.",
        ),
    ] = None,
    load: Annotated[
        bool, typer.Option("--load/--no-load", help="Put the load of the system's clients on it.")
    ] = True,
    seed: Seed = 0,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Attaches to a cluster that runs already, and keeps it for `fencepost fault`, `heal` and
    `status` in a second terminal, until Ctrl-C, SIGTERM or `fencepost cluster down`; then leaves it
    as it was, and judges what it did.

    The file says `may_break = true`, or nothing is touched.
    """
    if compose is not None:
        _draft(system, compose)
        return
    if file is None:
        raise UsageError("name the cluster's file: fencepost attach cluster.toml")
    plugins = load_plugins(system)
    attached = plugins.system(f"{system}@{file.absolute()}")
    if not isinstance(attached, Attached):
        raise UsageError(f"{system} is started by Fencepost, and not attached to")
    if dry_run:
        plan = planned(attached, plugins)
        _show(plan, json)
        raise typer.Exit(EXIT_ENVIRONMENT if plan.wrong else EXIT_CLEAN)
    check_consent(attached.attachment())
    spec = RunSpec(attached, runtime="attached", seed=seed)
    check_runtime(spec.runtime)
    check_spec(spec)
    kept(spec, plugins, out, load=load)


def _draft(system: str, file: Path) -> None:
    from fencepost.runtimes.attached.compose import stack_of  # noqa: PLC0415

    found = load_plugins(system).system(system)
    if not isinstance(found, Attached):
        raise UsageError(f"{system} is started by Fencepost, and not attached to")
    # The draft ends its own last line.
    print_line(found.drafted(stack_of(file)).rstrip())


def planned(attached: Attached, plugins: Plugins) -> Plan:
    """What a run on that cluster would do; only questions are asked, and nothing is touched."""
    attachment = attached.attachment()
    wrong: list[str] = []
    try:
        check_consent(attachment)
    except UsageError as refused:
        wrong.append(str(refused))
    try:
        survey = attached.surveyed()
        wrong += [*survey.wrong, *(f"{one} is there already" for one in survey.ours)]
    except EnvironmentFailed as silent:
        wrong.append(str(silent))
    touches = [*_processes(attachment, wrong), *_proxies(attachment, wrong)]
    return Plan(
        tuple(touches),
        tuple(attached.makes),
        tuple(faults_of(plugins.faults, attachment)),
        tuple(wrong),
    )


def faults_of(faults: Mapping[str, FaultFactory], attachment: Attachment) -> Sequence[FaultHere]:
    """Every fault, and whether the handles of the attachment allow it."""
    lacks = attachment.lacks
    return [FaultHere(name, why_not(made, lacks)) for name, made in sorted(faults.items())]


def _processes(attachment: Attachment, wrong: list[str]) -> Iterator[str]:
    # What looks at processes and proxies is imported only here: no other command needs it.
    from fencepost.runtimes.attached.nodes import process_of  # noqa: PLC0415

    for node in attachment.nodes:
        if not node.has_process:
            continue
        try:
            found = process_of(node, attachment).find()
        except EnvironmentFailed as gone:
            wrong.append(str(gone))
            continue
        more = "stopped, ended and started again" if node.can_start else "stopped"
        where = f"the container {node.container}" if node.container else f"process {found.pid}"
        yield f"{node.name}, {where}: it may be {more}"


def _proxies(attachment: Attachment, wrong: list[str]) -> Iterator[str]:
    from fencepost.injection.attached_links import usable  # noqa: PLC0415
    from fencepost.injection.attached_server import TheirToxiproxy  # noqa: PLC0415

    if attachment.toxiproxy is None:
        return
    try:
        usable(TheirToxiproxy(attachment.toxiproxy.url), [link.proxy for link in attachment.links])
    except EnvironmentFailed as lacking:
        wrong.append(str(lacking))
    for link in attachment.links:
        yield f"the proxy {link.proxy}, from {link.source} to {link.target}: it may get toxics"


def _show(plan: Plan, json: bool) -> None:
    if json:
        print_json(plan)
        return
    for title, lines in (
        ("would be touched:", plan.touches),
        ("would be made, and removed:", plan.makes),
        ("faults that exist:", [one.name for one in plan.faults if not one.why_not]),
        (
            "faults that do not:",
            [f"{one.name}: {one.why_not}" for one in plan.faults if one.why_not],
        ),
        ("would not begin:", plan.wrong),
    ):
        if lines:
            print_line(title)
            for line in lines:
                print_line(f"  {line}")
