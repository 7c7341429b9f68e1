"""`fencepost fault`, `heal` and `status`: what a second terminal asks of `fencepost cluster up`.

They load no plugin to ask: the cluster's own process knows the faults and the nodes, and refuses
what does not fit. Only the list of all faults is made here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from msgspec import to_builtins
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fencepost.commands.options import Json, span
from fencepost.commands.terminal import (
    errors,
    load_plugins,
    output,
    print_failure,
    print_json,
    print_line,
    show,
)
from fencepost.model.clock import MS
from fencepost.model.errors import EXIT_CLEAN, EXIT_INCONCLUSIVE, EnvironmentFailed, UsageError
from fencepost.model.system.status import Cell, StatusTable
from fencepost.model.text import docstring, printable
from fencepost.runs.by_hand.arguments import usage_of
from fencepost.runs.by_hand.channel import Meeting, ask, meeting_for
from fencepost.runs.by_hand.messages import (
    ALL,
    ActiveFault,
    Answer,
    AskStatus,
    Healed,
    HealFaults,
    Injected,
    InjectFault,
    NodeStatus,
    Refused,
    Request,
    Status,
)

Named = Annotated[
    Path | None,
    typer.Option("--run", metavar="FOLDER", help="The run folder of the cluster, if several run."),
]
OPTIONS_OF_FAULTS = {"ignore_unknown_options": True}
"""For `fault`: `--latency-ms 200` is an argument of the fault, and no option of the command."""
_EVERY_MS = 1000
"""How often a watcher sees the status anew."""
Wanted = TypeVar("Wanted", bound=Answer)


def fault(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FAULT] [ARGUMENT]...",
            help="A fault and its arguments, by place or as --NAME VALUE; a list has commas. None: "
            "list all faults.",
            show_default=False,
        ),
    ] = None,
    for_: Annotated[
        int | None,
        typer.Option(
            "--for",
            parser=span,
            metavar="TIME",
            help="Heal it after this time, such as 10s; not given: by `fencepost heal`.",
        ),
    ] = None,
    run: Named = None,
    json: Json = False,
) -> None:
    """Injects a fault into the cluster that `fencepost cluster up` keeps, and prints its receipt;
    without one, the exit code is 3."""
    if not words:
        if for_ is not None:
            raise UsageError("--for needs a fault: `fencepost fault` lists all")
        _list_faults(json)
        return
    name, *arguments = words
    for_ms = None if for_ is None else max(1, for_ // MS)
    request = InjectFault(fault=name, words=tuple(arguments), for_ms=for_ms)
    injected = asked(run, request, Injected).fault
    if json:
        print_json(injected)
    else:
        print_line(sentence_of(injected))
    raise typer.Exit(EXIT_CLEAN if injected.receipt else EXIT_INCONCLUSIVE)


def heal(
    fault_id: Annotated[
        str, typer.Argument(metavar="[FAULT-ID]", help="Such as isolate-1; all if not given.")
    ] = ALL,
    run: Named = None,
    json: Json = False,
) -> None:
    """Heals a fault of the cluster that `fencepost cluster up` keeps, or all, newest first, and
    prints the receipts."""
    healed = asked(run, HealFaults(fault_id=fault_id), Healed).faults
    if json:
        print_json({"healed": [to_builtins(one) for one in healed]})
    for one in () if json else healed:
        print_line(f"{one.fault_id} is healed: {one.evidence}")
    if not healed:
        show(errors(), "nothing was to be healed")
    raise typer.Exit(EXIT_CLEAN if all(one.receipt for one in healed) else EXIT_INCONCLUSIVE)


def status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it anew each second, until Ctrl-C or its end.")
    ] = False,
    run: Named = None,
    json: Json = False,
) -> None:
    """Shows the cluster that `fencepost cluster up` keeps: its nodes, its active faults, who leads
    what, in which epoch."""
    console, where = output(), meeting_for(run)
    latest = _answered(where, AskStatus(), Status)
    if not watch:
        _show_status(latest, console, json)
        return
    # On a terminal each takes the place of the one before; elsewhere they follow each other.
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not json else None
    try:
        while True:
            if live is None:
                _show_status(latest, console, json)
                sys.stdout.flush()
            else:
                live.start()
                live.update(status_shown(latest), refresh=True)
            answer = ask(where, AskStatus(after_ms=_EVERY_MS))
            if answer is None:
                show(errors(), f"the cluster of {where.folder} has ended")
                return
            latest = _wanted(answer, Status)
    except KeyboardInterrupt:  # so a watcher ends
        return
    finally:
        if live is not None:
            live.stop()


def asked(run: Path | None, request: Request, wanted: type[Wanted]) -> Wanted:
    """The answer of the cluster of that run folder, or of the only one that runs; ends the command
    with a refusal's exit code.

    Raises UsageError as `meeting_for` does, and EnvironmentFailed if the cluster ends before it
    answers.
    """
    return _answered(meeting_for(run), request, wanted)


def _answered(where: Meeting, request: Request, wanted: type[Wanted]) -> Wanted:
    answer = ask(where, request)
    if answer is None:
        raise EnvironmentFailed(f"the cluster of {where.folder} ended before it answered")
    return _wanted(answer, wanted)


def _wanted(answer: Answer, wanted: type[Wanted]) -> Wanted:
    if isinstance(answer, wanted):
        return answer
    if isinstance(answer, Refused):
        print_failure(answer.says)
        raise typer.Exit(answer.exit_code)
    raise UsageError("the cluster's answer is of another version")


def sentence_of(fault: ActiveFault) -> str:
    """What became of an injection, in one line."""
    heals = "" if fault.heals_in_ms is None else f", heals in {_seconds(fault.heals_in_ms)}"
    if fault.receipt:
        return f"{fault.fault_id} is injected{heals}: {fault.evidence}"
    question = f": {fault.question}" if fault.question else ""
    return f"{fault.fault_id} has no receipt so far{heals}: {fault.evidence}{question}"


def _list_faults(json: bool) -> None:
    faults = {
        name: {"usage": usage_of(name, made), "says": " ".join(docstring(made).split())}
        for name, made in sorted(load_plugins().faults.items())
    }
    if json:
        print_json({"faults": faults})
        return
    for one in faults.values():
        print_line(f"{one['usage']}\n    {one['says']}")


def _show_status(status: Status, console: Console, json: bool) -> None:
    if json:
        print_json(status)
    else:
        console.print(status_shown(status))


def status_shown(status: Status) -> Group:
    """The tables of a status, for a terminal."""
    head = f"{status.system} on {status.runtime}, up for {_seconds(status.up_ms)}: {status.folder}"
    lacks = [Text(printable(f"lacks: {one}"), "yellow") for one in status.missing]
    tables = [_nodes(status.nodes), _faults(status.faults), *status.tables]
    return Group(
        Text(printable(head), "bold"), *lacks, *(_table(one) for one in tables if one.rows)
    )


def _nodes(nodes: tuple[NodeStatus, ...]) -> StatusTable:
    rows = tuple((one.name, _state(one), one.process, ", ".join(one.faults)) for one in nodes)
    return StatusTable("nodes", ("node", "state", "process", "under"), rows)


def _state(node: NodeStatus) -> str:
    if node.runs:
        return f"runs, pid {node.pid}"
    return "ended" if node.process else "never started"


def _faults(faults: tuple[ActiveFault, ...]) -> StatusTable:
    rows = tuple(
        (
            one.fault_id,
            " ".join(f"{name}={_argument(value)}" for name, value in one.arguments.items()),
            _seconds(one.since_ms),
            "" if one.heals_in_ms is None else _seconds(one.heals_in_ms),
            one.evidence if one.receipt else f"no receipt: {one.evidence}",
        )
        for one in faults
    )
    columns = ("fault", "arguments", "since", "heals in", "receipt")
    return StatusTable("active faults", columns, rows)


def _argument(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _table(table: StatusTable) -> Table:
    shown = Table(title=Text(printable(table.title), "bold"), title_justify="left", box=None)
    for name in table.columns:
        shown.add_column(printable(name), overflow="fold", header_style="dim")
    for row in table.rows:
        shown.add_row(*(Text(printable(_cell(one))) for one in row))
    return shown


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s" if ms < 60_000 else f"{ms // 60_000} min {ms % 60_000 // 1000} s"
