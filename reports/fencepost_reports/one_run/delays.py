"""How long changes of authority took: from a fault to the fencing of what it hit, from its healing
to the end of that, and from the loss of a holder to the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fencepost import OWN, Change, slot_of
from fencepost.reporting import AuthorityRow, FaultRow, Move
from fencepost_reports.one_run.tables import DelayRow

NEVER = -1
_CHANGES = (Move.TAKES, Move.GIVES, Move.RENEWS)


def delays(
    faults: Iterable[FaultRow],
    authority: Iterable[AuthorityRow],
    nodes: Mapping[str, Sequence[str]],
    exited: Mapping[str, int],
    *,
    until_ns: int,
) -> Sequence[DelayRow]:
    """All delays of a run until a time, in the order in which they begin.

    `nodes` maps a process to its nodes in the words of a scope, `exited` one to when it ended.
    """
    scopes: dict[str, list[AuthorityRow]] = {}
    for row in authority:
        if row.effect in _CHANGES and row.scope != OWN and row.at_ns < until_ns:
            scopes.setdefault(row.scope, []).append(row)
    for rows in scopes.values():
        rows.sort(key=lambda row: row.at_ns)
    slots: dict[str, set[str]] = {}
    for process, own in nodes.items():
        slots.setdefault(slot_of(process), set()).update(own)
    found = [
        delay
        for fault in faults
        for scope in sorted(_hit(fault, slots) & scopes.keys())
        for delay in _fenced(fault, scope, scopes[scope])
    ]
    own_scopes = {scope for own in nodes.values() for scope in own}
    ended = {process: at_ns for process, at_ns in exited.items() if at_ns < until_ns}
    successions = _Successions(scopes, nodes, ended)
    for scope in scopes.keys() - own_scopes:
        found += successions.delays(scope)
    return sorted(found, key=lambda one: (one.from_ns, one.what, one.of, one.scope))


def _hit(fault: FaultRow, slots: Mapping[str, set[str]]) -> set[str]:
    """The nodes that a fault was injected into."""
    hit = (slots.get(slot_of(target), set()) for target in fault.targets)
    return {node for some in hit for node in some}


def _fenced(fault: FaultRow, scope: str, rows: Sequence[AuthorityRow]) -> Iterator[DelayRow]:
    """How long it took until a node that held its own authority lost it, and to get it back."""
    first, end = _after(rows, fault.from_ns - 1), _after(rows, fault.to_ns)
    if first and rows[first - 1].change == Change.GAINED:
        lost = (row.at_ns for row in rows[first:end] if row.effect is Move.TAKES)
        yield DelayRow(
            what="fault to fencing",
            of=fault.fault,
            scope=scope,
            from_ns=fault.from_ns,
            to_ns=next(lost, NEVER),
        )
    if fault.healed and end and rows[end - 1].change == Change.LOST:
        later = (rows[n] for n in range(end, len(rows)))
        gained = (row.at_ns for row in later if row.change == Change.GAINED)
        yield DelayRow(
            what="heal to unfenced",
            of=fault.fault,
            scope=scope,
            from_ns=fault.to_ns,
            to_ns=next(gained, NEVER),
        )


def _after(rows: Sequence[AuthorityRow], at_ns: int) -> int:
    """How many of the rows, which are in order, are not later than this."""
    return bisect_right(rows, at_ns, key=lambda row: row.at_ns)


@final
@dataclass(frozen=True, slots=True)
class _Successions:
    """The holders of scopes, one after the other; a loss of a holder is that of the scope, that of
    its node's own authority, or the end of its process."""

    scopes: Mapping[str, Sequence[AuthorityRow]]
    nodes: Mapping[str, Sequence[str]]
    exited: Mapping[str, int]

    def delays(self, scope: str) -> Iterator[DelayRow]:
        """From each loss of a holder of the scope to the next holder. There is none for a holder
        that got back what it lost, or that was replaced without a loss."""
        holder: AuthorityRow | None = None
        lost_ns = NEVER
        for row in self.scopes[scope]:
            if row.change == Change.LOST:
                lost_ns = row.at_ns if lost_ns == NEVER else lost_ns
                continue
            if holder is not None and not _same(row, holder):
                yield from self._delay(scope, holder, lost_ns, row.at_ns)
            holder, lost_ns = row, NEVER
        if holder is not None:
            yield from self._delay(scope, holder, lost_ns, NEVER)

    def _delay(
        self, scope: str, holder: AuthorityRow, lost_ns: int, until_ns: int
    ) -> Iterator[DelayRow]:
        times = [lost_ns, *self._own(holder, until_ns)]
        known = [at_ns for at_ns in times if at_ns != NEVER]
        if known:
            yield DelayRow(
                what="leader loss to new leader",
                of=scope.partition(" ")[0],
                scope=scope,
                from_ns=min(known),
                to_ns=until_ns,
            )

    def _own(self, holder: AuthorityRow, until_ns: int) -> Iterator[int]:
        """When the holder lost its node's own authority and did not get it back, and when it
        ended."""
        node = holder.node or next(iter(self.nodes.get(holder.holder, ())), "")
        rows = self.scopes.get(node, ())
        place = len(rows) if until_ns == NEVER else _after(rows, until_ns)
        lost_ns = NEVER
        while place and rows[place - 1].change == Change.LOST:
            place -= 1
            lost_ns = rows[place].at_ns
        yield lost_ns if lost_ns >= holder.at_ns else NEVER
        for process, own in self.nodes.items():
            if process == holder.holder or node in own:
                ended_ns = self.exited.get(process, NEVER)
                meanwhile = until_ns == NEVER or ended_ns <= until_ns
                yield ended_ns if ended_ns > holder.at_ns and meanwhile else NEVER


def _same(one: AuthorityRow, other: AuthorityRow) -> bool:
    """Whether both are gains of one holder."""
    if one.holder and other.holder:
        return one.holder == other.holder
    return bool(one.node) and one.node == other.node
