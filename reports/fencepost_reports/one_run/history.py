"""The history of one run, as a report reads it: from the run's columns, or from its events.

A report needs few events as such: those of the harness, those that an explanation is made of, and
those that a page shows. Of all others it needs what their traits say, as rows, and how many each
process has. In columns nothing of that is made into events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final
from zlib import crc32

from msgspec import Struct

from fencepost import Codec, Event, kind_name
from fencepost.reporting import (
    ChangeRow,
    OperationRow,
    OperationsFold,
    RunFolder,
    changes_of,
    read,
    tells_operations,
)
from fencepost_reports.one_run.service import ServiceFold
from fencepost_reports.one_run.tables import BINS, DensityRow, Sort

Ref = tuple[str, int]
Placed = tuple[int, Event]
"""An event, and its position in the history."""
CLIENTS = "clients/"
"""The beginning of the names of clients' processes."""
Ends = Mapping[str, Sequence[int]]
"""process -> the positions of the events by which it ended, in order."""
ENDED: dict[str, Sort] = {"ok": "ok", "failed": "failed", "unknown": "unknown"}
"""The sort of an operation by its outcome."""


@final
@dataclass(frozen=True, slots=True)
class Share:
    """A share of a run: the scopes and the clients that are this one's of so many shares."""

    number: int = 0
    of: int = 1

    def has(self, key: str) -> bool:
        """Whether a scope, or a process, is in this share; it is in one share only."""
        return self.of == 1 or crc32(key.encode()) % self.of == self.number


@final
@dataclass(frozen=True, slots=True)
class Span:
    """The time of a run, from its first event to its last."""

    began_ns: int
    ended_ns: int

    def place(self, at_ns: int) -> int:
        """In which of `BINS` equal parts of the run a time lies."""
        place = (at_ns - self.began_ns) * BINS // self.length_ns
        return min(max(place, 0), BINS - 1)

    @property
    def length_ns(self) -> int:
        """Its length, at least 1."""
        return max(self.ended_ns - self.began_ns, 1)


class Seen(Struct, frozen=True, gc=False):
    """The events of one process: the position of the first, times of the first and the last, how
    many."""

    process: str
    position: int
    first_ns: int
    last_ns: int
    events: int


class Facts(Protocol):
    """What takes the facts of a history. Changes and operations come in order."""

    @property
    def span(self) -> Span:
        """The time of the run."""
        ...

    @property
    def ends(self) -> Ends:
        """When processes ended."""
        ...

    @property
    def service(self) -> ServiceFold:
        """What takes every operation."""
        ...

    def change(self, row: ChangeRow) -> None:
        """Takes a change of authority."""
        ...

    def failed(self, row: OperationRow) -> None:
        """Takes an operation that failed or was left open."""
        ...

    def see(self, some: Seen) -> None:
        """Takes that a process has events."""
        ...

    def count(self, some: DensityRow) -> None:
        """Takes how many events of one sort a process has in one part of the time."""
        ...


class History(Protocol):
    """A run's history, which can be read several times."""

    def shares(self, most: int) -> int:
        """Into how many shares it is split, so that each has at most so many events."""
        ...

    def events(
        self, kinds: Collection[type[Struct]], refs: Collection[Ref] = ()
    ) -> Iterator[Placed]:
        """The events of these kinds, and those with these names, in order; maybe others too. The
        first event is always among them."""
        ...

    def at(self, positions: Collection[int]) -> Iterator[Placed]:
        """The events at these positions, in order."""
        ...

    def tell(self, facts: Facts, share: Share) -> None:
        """Tells the facts of a share. Of events that are only counted, it is any of so many
        parts."""
        ...


@final
@dataclass(frozen=True, slots=True)
class EventHistory:
    """A history that is read event by event."""

    folder: Path
    kinds: tuple[type[Struct], ...]

    def shares(self, most: int) -> int:
        return 1  # each would have to judge and decode the whole of it

    def events(
        self, kinds: Collection[type[Struct]], refs: Collection[Ref] = ()
    ) -> Iterator[Placed]:
        return enumerate(read(RunFolder(self.folder), Codec(self.kinds)))

    def at(self, positions: Collection[int]) -> Iterator[Placed]:
        return (placed for placed in self.events(()) if placed[0] in positions)

    def tell(self, facts: Facts, share: Share) -> None:
        operations = OperationsFold()
        for position, event in self.events(()):
            process = event.process
            mine = position % share.of == share.number
            if mine:
                facts.see(Seen(process, position, event.at_ns, event.at_ns, 1))
            changes = changes_of(position, event)
            for change in changes:
                if share.has(change.scope):
                    facts.change(change)
            ended = list(operations.apply(position, event))
            if share.has(process):
                for row in ended:
                    facts.service.operation(row)
                    if row.outcome in ("failed", "unknown"):
                        facts.failed(row)
            sort = _sort(event, changes, ended)
            if mine and sort is not None:
                place = facts.span.place(event.at_ns)
                facts.count(DensityRow(process=process, sort=sort, bin=place, count=1))
        for row in operations.unended(facts.span.ended_ns):
            if share.has(row.process):
                facts.service.operation(row)


def _sort(event: Event, changes: Sequence[ChangeRow], ended: Sequence[OperationRow]) -> Sort | None:
    """The sort of an event; None for an event of a client that ends no operation."""
    if tells_operations(event.body):
        return ENDED[ended[0].outcome] if ended else None
    if event.process.startswith(CLIENTS):
        return None
    return "refused" if any(change.refusal for change in changes) else "other"


def operation_kinds(kinds: Collection[type[Struct]]) -> Collection[str]:
    """The names of the kinds that record operations."""
    return {kind_name(kind) for kind in kinds if hasattr(kind, "client_operations")}
