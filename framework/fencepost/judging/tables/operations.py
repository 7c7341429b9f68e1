"""Operations of clients: both ends of each joined to a row, and those that failed in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from fencepost.events import Event
from fencepost.events.traits import OperationEvent
from fencepost.judging.tables.rows import FailedRow, OperationRow

GROUPS = 100
"""How many groups of operations that failed are kept: the largest ones."""


@final
class OperationsFold:
    """A fold over events in order, which joins both ends of each operation."""

    def __init__(self) -> None:
        self._invoked: dict[str, OperationRow] = {}

    def apply(self, position: int, event: Event, body: OperationEvent) -> Sequence[OperationRow]:
        """Applies an event and its body; the operations that ended with it."""
        ended = []
        for one in body.client_operations():
            outcome = one.outcome
            invoked = None
            if outcome is not None and one.name:
                invoked = self._invoked.pop(one.name, None)
            row = OperationRow(
                position=position,
                process=event.process,
                seq=event.node_seq,
                name=one.name,
                what=one.what,
                subject=one.subject,
                outcome=str(outcome or ""),
                error=one.error,
                began_ns=event.at_ns if invoked is None else invoked.began_ns,
                ended_ns=event.at_ns,
            )
            if outcome is None:
                self._invoked[one.name] = row
            else:
                ended.append(row)
        return ended

    def unended(self, ended_ns: int) -> Sequence[OperationRow]:
        """The operations that had not ended when the run did."""
        rows = self._invoked.values()
        return [msgspec.structs.replace(one, ended_ns=ended_ns) for one in rows]


@final
class FailedFold:
    """A fold over the operations that failed or whose outcome is unknown, in order."""

    def __init__(self) -> None:
        self._ended: list[FailedRow] = []
        self._newest: dict[tuple[str, str, str], FailedRow] = {}

    def apply(self, one: OperationRow, active: tuple[str, ...]) -> None:
        """Applies one operation; `active` are the ids of the faults that are active."""
        says = " ".join(filter(None, (one.what, one.outcome, one.error)))
        key = (one.process, says, one.subject)
        group = self._newest.get(key)
        if group is not None and group.faults == active:
            group.at_ns = one.ended_ns
            group.began_ns = min(group.began_ns, one.began_ns)
            group.count += 1
            return
        if group is not None:
            self._ended.append(group)
            if len(self._ended) > 2 * GROUPS:
                self._ended = _largest(self._ended)
        self._newest[key] = FailedRow(
            process=one.process,
            seq=one.seq,
            position=one.position,
            says=says,
            subject=one.subject,
            outcome=one.outcome,
            faults=active,
            began_ns=one.began_ns,
            at_ns=one.ended_ns,
        )

    @property
    def rows(self) -> Sequence[FailedRow]:
        """The largest groups, in the order of their first operations."""
        return _largest([*self._ended, *self._newest.values()])


def _largest(groups: Sequence[FailedRow]) -> list[FailedRow]:
    chosen = sorted(groups, key=lambda one: (-one.count, *_first(one)))[:GROUPS]
    return sorted(chosen, key=_first)


def _first(group: FailedRow) -> tuple[int, str, str]:
    return group.position, group.says, group.subject
