"""The logs of a partition's replicas as their events describe them, and which batches are
committed: one fold, for all rules that ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, final

from msgspec import Struct

from fencepost import Cause, Event, is_second, slot_of
from fencepost_kafka import HighWatermarkAdvanced, LogAppended, LogTruncated

Known = tuple[str, str, int]
"""A committed batch: its digest, the process that was first, and the leader epoch."""


@final
class Batch:
    """A batch that a process stored."""

    def __init__(self, process: str, body: LogAppended) -> None:
        self.process = process
        self.base_offset = body.base_offset
        self.log_end = body.log_end
        self.digest = body.digest
        self.batch_epoch = body.batch_epoch
        self.body = body


@final
class Conflict(Struct, frozen=True):
    """A replica's `batch`, and the `other` process that has committed another batch at that offset,
    of leader epoch `other_epoch`."""

    batch: Batch
    other: str
    other_epoch: int


@final
@dataclass(slots=True)
class Terms:
    """The terms in which a partition was led."""

    began: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    """leader epoch -> the slot that led first in it, and the event by which the term began."""

    def begin(self, event: Event, leader_epoch: int) -> None:
        """A process began to lead."""
        self.began.setdefault(leader_epoch, (slot_of(event.process), event.ref))

    def of(self, epoch: int) -> tuple[Cause, ...]:
        """The event by which the term of a leader epoch began, if it is known."""
        known = self.began.get(epoch)
        return () if known is None else (known[1],)

    def proof(self, process: str, conflict: Conflict) -> tuple[Cause, ...]:
        """The term after which the batch of the process differs from the committed one: its own, if
        its slot wrote the batch as leader. Otherwise the term in which the other was written."""
        own, other = conflict.batch.batch_epoch, conflict.other_epoch
        slot, _ = self.began.get(own, ("", None))
        return self.of(own if slot == slot_of(process) else other)


@final
class Committed(Struct, frozen=True):
    """What a high watermark that moved has committed in a replica's log."""

    batches: Sequence[Batch]
    """Those of its batches that it has called committed by that, in their order."""
    agreed: bool
    """Whether others had committed some of them, and no others in their place."""
    conflict: Conflict | None
    """The first of them in whose place another was committed."""


_NOTHING: Final = Committed((), False, None)


@final
class ReplicaLogs:
    """The batches above each replica's high watermark, and the batches below any high watermark.

    A replica is a slot: its disk outlives its processes, so a new process continues the log of the
    one before. The slot of a second process with a node's id gets another disk before each process
    there. A replica declares everything below its own high watermark committed. The first
    replica to do so defines the batches that every other replica must have there.
    """

    kinds: ClassVar[frozenset[type[Struct]]] = frozenset(
        {LogAppended, LogTruncated, HighWatermarkAdvanced}
    )

    def __init__(self) -> None:
        self.open: dict[str, list[Batch]] = {}
        """process -> its batches above its high watermark."""
        self.slots: dict[str, list[Batch]] = {}
        self.committed: dict[int, Known] = {}
        """base offset -> the batch."""
        self.cut: Sequence[Batch] = ()
        """The batches that the newest truncation took, newest first."""
        self.moved: Committed = _NOTHING
        """What the newest move of a high watermark committed."""

    def take(self, event: Event, body: Any) -> None:
        """Applies an event."""
        kind = type(body)
        if kind is LogAppended:
            self._append(event.process, body)
        elif kind is HighWatermarkAdvanced:
            self.moved = self._commit(event.process, body.high_watermark)
        else:
            self._truncate(event.process, body.to_offset)

    def log(self, process: str) -> list[Batch]:
        """The open batches of a process, or those of the process before it in its slot."""
        log = self.open.get(process)
        if log is None:
            slot = slot_of(process)
            log = [] if is_second(slot) else self.slots.setdefault(slot, [])
            self.open[process] = log
        return log

    def _append(self, process: str, body: LogAppended) -> None:
        """A replica stored a batch, which replaces what it had from that offset on.

        Without a digest it says where something was stored, and not what: it proves nothing.
        """
        if body.digest:
            log = self.log(process)
            while log and log[-1].base_offset >= body.base_offset:
                log.pop()
            log.append(Batch(process, body))

    def _truncate(self, process: str, to_offset: int) -> None:
        """A replica truncated its log."""
        log = self.log(process)
        cut: list[Batch] = []
        while log and log[-1].log_end > to_offset:
            cut.append(log.pop())
        self.cut = cut

    def _commit(self, process: str, high_watermark: int) -> Committed:
        log = self.log(process)
        if not log or log[0].log_end > high_watermark:
            return _NOTHING
        committed = self.committed
        agreed, count = False, 0
        conflict: Conflict | None = None
        for batch in log:
            if batch.log_end > high_watermark:
                break
            count += 1
            known = committed.get(batch.base_offset)
            if known is None:
                committed[batch.base_offset] = batch.digest, process, batch.batch_epoch
            elif known[0] == batch.digest:
                agreed = True
            elif conflict is None:
                conflict = Conflict(batch, known[1], known[2])
        batches = log[:count]
        del log[:count]
        return Committed(batches, agreed and conflict is None, conflict)

    def is_committed(self, batch: Batch) -> bool:
        """Whether this very batch is committed, by any replica.

        A resend that a later leader stored has the same digest and is another batch.
        """
        known = self.committed.get(batch.base_offset)
        return known is not None and (known[0], known[2]) == (batch.digest, batch.batch_epoch)

    def unlike(self) -> Iterator[Conflict]:
        """The first batch of each replica, above its own high watermark, that differs from a
        committed one of the same offset and leader epoch.

        Of one epoch there is one log, its leader's. So a replica need not have called that batch
        committed: it can never have copied it. A batch of another epoch may be the tail of a
        deposed leader, which is still to be dropped.
        """
        # A process shares the log of the one before it in its slot.
        for log in {id(log): log for log in self.open.values()}.values():
            for batch in log:
                known = self.committed.get(batch.base_offset)
                if known and known[2] == batch.batch_epoch and known[0] != batch.digest:
                    yield Conflict(batch, known[1], known[2])
                    break

    def diverging(self, process: str, below: int) -> Conflict | None:
        """The first batch that a replica holds unconfirmed, and that differs from the committed
        one."""
        for batch in self.log(process):
            if batch.base_offset >= below:
                break
            known = self.committed.get(batch.base_offset)
            if known is not None and known[0] != batch.digest:
                return Conflict(batch, known[1], known[2])
        return None
