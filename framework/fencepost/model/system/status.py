"""What a system shows of its state while it runs: `fencepost status`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from fencepost.model.system.topology import Layout
from fencepost.model.view import Holders, View

Cell = str | int | bool | None | tuple[int, ...]
"""What a table has at one place; None: not known."""


class StatusTable(Struct, frozen=True):
    """One table of a system's state, such as that of its partitions. Each row has a cell for each
    column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@runtime_checkable
class ShowsStatus(Protocol):
    """A system that says in its own terms how it is: who leads what, in which epoch.

    Without it, the table says which process holds which authority, by the events alone.
    """

    def status(self, view: View, layout: Layout) -> Sequence[StatusTable]:
        """The tables, by the events so far: no node is asked."""
        ...


def tables_of(system: object, view: View, layout: Layout) -> tuple[StatusTable, ...]:
    """The tables of a system; of one that has none, who holds which authority."""
    if isinstance(system, ShowsStatus):
        return tuple(system.status(view, layout))
    held = sorted(view.of(Holders).of.items())
    rows = tuple((scope, epoch, process) for scope, (epoch, process) in held)
    return (StatusTable("authority", ("over", "epoch", "held by"), rows),)
