"""What events say by their traits, as rows: changes of authority, and operations of clients.

A report makes its tables of these rows, so it need not make the events again. They hold text and
numbers only, so the collector of cycles leaves them out (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import msgspec
from msgspec import Struct

from fencepost.events import Event
from fencepost.events.traits import Change, changes_authority, shared_record, tells_operations


class ChangeRow(Struct, frozen=True, gc=False):
    """One change of authority (`Authority`), and the event that records it.

    `holder` is a process (empty: not known). `record` names the fact that several processes report
    (empty: only this process does). `refusal` is true in the first row of an event that refuses an
    authority, so that such events can be counted.
    """

    position: int
    at_ns: int
    process: str
    node_seq: int
    kind: str
    scope: str
    change: str
    epoch: int
    holder: str
    node: str
    state: str
    wide: bool
    matter: str
    record: str
    refusal: bool


class OperationRow(Struct, frozen=True, kw_only=True, gc=False):
    """An operation of a client, at its end, or at the run's if it had none (`outcome` is empty).

    `position` and `seq` are those of its last event.
    """

    position: int
    process: str
    seq: int
    name: str
    what: str
    subject: str
    outcome: str
    error: str
    began_ns: int
    ended_ns: int


def changes_of(position: int, event: Event) -> Sequence[ChangeRow]:
    """The changes of authority that the event at a position records."""
    if not changes_authority(event.body):
        return ()
    found = event.body.authority()
    refuses = any(one.change is Change.REFUSED for one in found)
    record = shared_record(event) if found else None
    return [
        ChangeRow(
            position=position,
            at_ns=event.at_ns,
            process=event.process,
            node_seq=event.node_seq,
            kind=event.kind,
            scope=one.scope,
            change=str(one.change),
            epoch=one.epoch,
            holder=event.process if one.holder == "" else one.holder or "",
            node=one.node,
            state=one.state,
            wide=one.wide,
            matter=one.matter,
            record="" if record is None else repr(record),
            refusal=refuses and number == 0,
        )
        for number, one in enumerate(found)
    ]


@final
class OperationsFold:
    """A fold over events in order, which joins both ends of each operation."""

    def __init__(self) -> None:
        self._invoked: dict[str, OperationRow] = {}

    def apply(self, position: int, event: Event) -> Iterator[OperationRow]:
        """Applies one event; the operations that ended with it."""
        if not tells_operations(event.body):
            return
        for one in event.body.client_operations():
            row = OperationRow(
                position=position,
                process=event.process,
                seq=event.node_seq,
                name=one.name,
                what=one.what,
                subject=one.subject,
                outcome=str(one.outcome or ""),
                error=one.error,
                began_ns=event.at_ns,
                ended_ns=event.at_ns,
            )
            if one.outcome is None:
                self._invoked[one.name] = row
                continue
            invoked = self._invoked.pop(one.name, None) if one.name else None
            if invoked is not None:
                row = msgspec.structs.replace(row, began_ns=invoked.began_ns)
            yield row

    def unended(self, ended_ns: int) -> Iterator[OperationRow]:
        """The operations that had not ended when the run did."""
        for one in self._invoked.values():
            yield msgspec.structs.replace(one, ended_ns=ended_ns)
