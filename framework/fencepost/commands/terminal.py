"""What commands print: warnings of plugins, progress, tables of verdicts, one JSON object.

What a run, a path or a plugin says is data: it is never read as markup, and its control characters
are printed as escapes (`printable`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fencepost.campaigns.conformance import MatrixRow
from fencepost.campaigns.endings import counted, few, what_held
from fencepost.history.run_end import RunEnd
from fencepost.judging.verdicts import Judgement, Outcome
from fencepost.model.clock import wall_clock
from fencepost.model.text import printable, printable_json
from fencepost.plugins.manager import Plugins, PluginWarning, load

_STYLE = {
    Outcome.HOLDS: "green",
    Outcome.VIOLATED: "bold red",
    Outcome.UNKNOWN: "yellow",
    Outcome.NOT_EXERCISED: "dim",
    Outcome.NOT_APPLICABLE: "dim",
}


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def output() -> Console:
    """Standard output; a file or a pipe gets whole lines, however long."""
    width = None if sys.stdout.isatty() else 200
    return Console(highlight=False, markup=False, emoji=False, width=width)


def show(console: Console, *parts: str | tuple[str, str]) -> None:
    """Prints one line of parts, each text or (text, style)."""
    styled = [(one, "") if isinstance(one, str) else one for one in parts]
    text = Text.assemble(*((printable(words), style) for words, style in styled))
    console.print(text, soft_wrap=True)


def print_line(line: str) -> None:
    """One line of a result, to standard output, however long."""
    typer.echo(printable(line))


def load_plugins(system: str = "") -> Plugins:
    """The loaded plugins; for a command about one `system`, as `load` says. Prints one line for
    each that was disabled."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PluginWarning)
        plugins = load(system=system)
    for warning in caught:
        show(errors(), ("warning:", "yellow"), f" {warning.message}")
    return plugins


def print_failure(message: str) -> None:
    """The sentence that says why a command failed, to standard error."""
    typer.echo(printable(f"fencepost: {message}"), err=True)


def print_json(value: object) -> None:
    """One JSON value and the end of its line, to standard output."""
    sys.stdout.write(printable_json(msgspec.json.encode(value).decode()) + "\n")


def progress(*, everywhere: bool = False) -> Callable[[str], None]:
    """Prints a line of progress with the time since the command began, to standard error: on a
    terminal only, unless `everywhere`, for lines that come seldom in a command that takes hours."""
    console, began = errors(), wall_clock()

    def show_line(line: str) -> None:
        if not everywhere and not sys.stderr.isatty():
            return
        seconds = (wall_clock() - began).total_seconds()
        show(console, (f"{seconds:6.1f} s", "dim"), f"  {line}")

    return show_line


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that says how many of how many are done, on a terminal only. It is there from the first
    call of the function that it gives until the block ends."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    shown = sys.stderr.isatty()
    with Progress(*columns, console=errors(), transient=True, disable=not shown) as bar:
        task = bar.add_task(what, visible=False)

        def show_part(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of, visible=True)

        yield show_part


def has_line(outcome: Outcome) -> bool:
    """Whether a run's table has a line for a clause of this outcome. The others are counted below
    the table (`print_others`)."""
    return outcome not in (Outcome.NOT_EXERCISED, Outcome.NOT_APPLICABLE)


def print_others(outcomes: Mapping[str, Outcome], console: Console) -> None:
    """Which clauses have no line in a run's table, and why; nothing if each has one."""
    idle = [clause for clause, one in outcomes.items() if one is Outcome.NOT_EXERCISED]
    foreign = sum(one is Outcome.NOT_APPLICABLE for one in outcomes.values())
    said = [f"{counted(len(idle), 'clause')} not exercised: {few(idle)}"] if idle else []
    said += [f"{counted(foreign, 'clause')} of other systems left out"] if foreign else []
    if said:
        show(console, "; ".join(said))


def print_verdicts(judgement: Judgement, console: Console) -> None:
    """A table with one line for each clause that is violated or undecided: the verdict, how often
    exercised, the evidence, the sentence. Then one line for those that hold and those that have
    nothing to show: what holds needs no reading."""
    table = Table(box=None, pad_edge=False, expand=True)
    for name, width in (("clause", 27), ("verdict", 14), ("exercised", 9), ("evidence", 8)):
        align: Literal["left", "right"] = "right" if name == "exercised" else "left"
        table.add_column(name, justify=align, no_wrap=True, min_width=width)
    table.add_column("promise", no_wrap=True, overflow="ellipsis", ratio=1)
    for clause, verdict in judgement.verdicts.items():
        if not has_line(verdict.verdict) or verdict.verdict is Outcome.HOLDS:
            continue
        word = Text(verdict.verdict, _STYLE[verdict.verdict])
        known = f"known: {', '.join(verdict.known)}" if verdict.known else ""
        says = known or verdict.reason or verdict.sentence
        count = str(verdict.exercised)
        table.add_row(printable(clause), word, count, verdict.evidence or "", printable(says))
    if table.rows:
        console.print(table)
    show(console, what_held([{c: one.verdict for c, one in judgement.verdicts.items()}]))


def print_stalls(end: RunEnd, where: str = "") -> None:
    """Names the processes that did not run for a while, to standard error; nothing if none did."""
    if stalled := end.stalled_in_words:
        show(errors(), (where + stalled, "yellow"))


def applying(rows: Sequence[MatrixRow]) -> Sequence[MatrixRow]:
    """The rows of the clauses that apply to one of the systems at least."""
    clauses = {row.clause for row in rows if row.verdict is not Outcome.NOT_APPLICABLE}
    return [row for row in rows if row.clause in clauses]


def print_matrix(rows: Sequence[MatrixRow], loaded: Plugins, console: Console) -> None:
    """A table with one line per clause, system and runtime; the lines of a clause are together. A
    clause that applies to none of these systems has none."""
    rows = applying(rows)
    table = Table(box=None, pad_edge=False, expand=True)
    widths = {
        "clause": 27,
        "system": 18,
        "runtime": 9,
        "verdict": 14,
        "exercised": 9,
        "evidence": 8,
        "tests": 5,
    }
    for name, width in widths.items():
        align: Literal["left", "right"] = "right" if name in ("exercised", "tests") else "left"
        table.add_column(name, justify=align, no_wrap=True, min_width=width)
    table.add_column("promise", no_wrap=True, overflow="ellipsis", ratio=1)
    order = {clause: at for at, clause in enumerate(loaded.clauses)}
    for row in sorted(rows, key=lambda row: order.get(row.clause, len(order))):
        word = Text(row.verdict, _STYLE[row.verdict])
        known = f"known: {', '.join(row.known)}" if row.known else ""
        expected = f"expected by {few(row.expected_by)}" if row.expected_by else ""
        says = known or expected or row.reason or row.says or loaded.clause(row.clause).says
        count, tests = str(row.exercised), str(len(row.tests))
        where = (printable(one) for one in (row.clause, row.system, row.runtime))
        table.add_row(*where, word, count, row.evidence or "", tests, printable(says))
    console.print(table)


def print_run_table(
    rows: Sequence[MatrixRow],
    receipts: Sequence[Mapping[str, str]],
    loaded: Plugins,
    console: Console,
) -> None:
    """The results of `fencepost run`'s tests: a line for each clause with a verdict, then which
    have none, then the receipts of the faults: `receipts` says why a fault has none."""
    print_matrix([row for row in rows if has_line(row.verdict)], loaded, console)
    print_others({row.clause: row.verdict for row in rows}, console)
    faults = sum(map(len, receipts))
    without = [f"{fault} ({why})" for one in receipts for fault, why in one.items() if why]
    missing = f"{len(without)} without a receipt" if without else "each with a receipt"
    injected = counted(faults, "fault was", "faults were")
    show(console, f"{injected} injected{', ' + missing if faults else ''}")
    for line in dict.fromkeys(without):
        show(console, f"without a receipt: {line}")
