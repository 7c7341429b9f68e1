"""What is folded of a run in order: by one task, or by a task for each share of a large run.

Changes of authority and states belong to one scope, operations to one client, and counts are sums;
of the times that operations took, each share gives all. So the facts of all shares together are
those of the whole run, in the same order.

See docs/decisions/34-shares.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, final

import msgspec
from msgspec import Struct

from fencepost import ProcessExited
from fencepost.reporting import ChangeRow, OperationRow
from fencepost_reports.one_run.activity import Activity
from fencepost_reports.one_run.authority import AuthorityFold, begun
from fencepost_reports.one_run.failures import OperationFold, Operations, largest
from fencepost_reports.one_run.history import History, Seen, Share, Span
from fencepost_reports.one_run.service import ServiceFold, Took, cuts, ranked, together
from fencepost_reports.one_run.story import Story
from fencepost_reports.one_run.tables import AuthorityRow, DensityRow, SilenceRow, SpanRow

WHOLE = Share()
NEVER = 1 << 62
BATCH = 1_000
"""How many rows are one line of text."""
Row = TypeVar("Row", bound=Struct)


@final
class Folded(Struct, frozen=True, kw_only=True):
    """The facts of a share of a run, or of the whole run, each in order."""

    authority: Sequence[AuthorityRow]
    spans: Sequence[SpanRow]
    operations: Sequence[Operations]
    silences: Sequence[SilenceRow]
    took: Sequence[Took]
    seen: Sequence[Seen]
    density: Sequence[DensityRow]


def folded(history: History, story: Story, span: Span, share: Share = WHOLE) -> Folded:
    """The facts of a share; reads the history once.

    Memory holds the changes of authority of the share, the state of each of its scopes and clients,
    and, if there was a fault, eight bytes for each operation.
    """
    facts = _Facts(story, span)
    history.tell(facts, share)
    spans = facts.end()
    return Folded(
        authority=sorted(facts.authority.rows, key=_place),
        spans=spans,
        operations=facts.operations.groups,
        silences=facts.service.silences,
        took=facts.service.taken,
        seen=facts.activity.seen,
        density=facts.activity.density,
    )


def merged(shares: Iterable[Folded]) -> Folded:
    """The facts of the whole run."""
    found = list(shares)
    activity = Activity()
    for one in found:
        for seen in one.seen:
            activity.see(seen)
        for count in one.density:
            activity.count(count)
    return Folded(
        authority=sorted((row for one in found for row in one.authority), key=_place),
        spans=sorted((row for one in found for row in one.spans), key=begun),
        operations=largest(group for one in found for group in one.operations),
        silences=ranked(row for one in found for row in one.silences),
        took=together(took for one in found for took in one.took),
        seen=activity.seen,
        density=activity.density,
    )


def _place(row: AuthorityRow) -> tuple[int, str]:
    return row.position, row.scope


@final
class _Facts:
    """Folds the facts that a history tells, with the lives of processes among its changes."""

    def __init__(self, story: Story, span: Span) -> None:
        self.span = span
        self.authority = AuthorityFold()
        self.operations = OperationFold()
        self.service = ServiceFold(cuts(story.faults.rows(span.ended_ns)))
        self.activity = Activity()
        self._faults = story.faults
        self._lives = list(reversed(story.lives))
        self.ends: dict[str, list[int]] = {}
        for position, event in story.lives:
            if isinstance(event.body, ProcessExited):
                self.ends.setdefault(event.body.ended, []).append(position)

    def change(self, row: ChangeRow) -> None:
        self._live_until(row.position)
        self.authority.change(row)

    def failed(self, row: OperationRow) -> None:
        self.operations.apply(row, self._faults.active(row.position))

    def see(self, some: Seen) -> None:
        self.activity.see(some)

    def count(self, some: DensityRow) -> None:
        self.activity.count(some)

    def end(self) -> Sequence[SpanRow]:
        """Every state, once all facts were taken."""
        self._live_until(NEVER)
        return self.authority.spans(self.span.ended_ns)

    def _live_until(self, position: int) -> None:
        while self._lives and self._lives[-1][0] <= position:
            self.authority.process(self._lives.pop()[1])


# ---------------------------------------------------------------------------------- as text, apart


def written(share: Folded) -> bytes:
    """The facts of a share as lines of JSON: changes of authority and states in lines of many."""
    lines = [
        msgspec.json.encode(msgspec.structs.replace(share, authority=(), spans=())),
        *(msgspec.json.encode(rows) for rows in _batches(share.authority)),
        b"",
        *(msgspec.json.encode(rows) for rows in _batches(share.spans)),
    ]
    return b"\n".join(lines)


def reread(text: bytes) -> Folded:
    """The facts that `written` wrote; raises msgspec.DecodeError for any other text."""
    lines = iter(text.split(b"\n"))
    rest = msgspec.json.decode(next(lines), type=Folded)
    words: dict[str, str] = {}
    authority = list(_rows(lines, AuthorityRow, words))
    return msgspec.structs.replace(
        rest, authority=authority, spans=list(_rows(lines, SpanRow, words))
    )


def _batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for first in range(0, len(rows), BATCH):
        yield rows[first : first + BATCH]


def _rows(lines: Iterator[bytes], kind: type[Row], words: dict[str, str]) -> Iterator[Row]:
    """The rows up to an empty line. Equal words are kept once: there are many rows, and few
    words."""
    for line in lines:
        if not line:
            return
        for row in msgspec.json.decode(line, type=list[kind]):  # type: ignore[valid-type]
            for name in kind.__struct_fields__:
                value = getattr(row, name)
                if type(value) is str:
                    msgspec.structs.force_setattr(row, name, words.setdefault(value, value))
            yield row
