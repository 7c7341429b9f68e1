"""The logs of a partition's replicas as their events describe them, and which batches are
committed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Cause, Event
from fencepost_kafka import LogAppended
from fencepost_kafka.active_faults import DUPLICATES, slot_of


@final
class Conflict(Struct, frozen=True):
    """A replica's `batch`, and the `other` process that has committed another batch at that offset,
    of leader epoch `other_epoch`."""

    batch: LogAppended
    other: str
    other_epoch: int

    @property
    def epochs(self) -> str:
        """The leader epochs of both, as a sentence names them."""
        return f"of leader epochs {self.batch.batch_epoch} and {self.other_epoch}"


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
@dataclass(slots=True)
class ReplicaLogs:
    """The batches above each replica's high watermark, and the batches below any high watermark.

    A replica is a slot: its disk outlives its processes, so a new process continues the log of the
    one before. The slot of a second process with a node's id gets another disk before each process
    there. A replica declares everything below its own high watermark committed. The first
    replica to do so defines the batches that every other replica must have there.
    """

    open: dict[str, deque[LogAppended]] = field(default_factory=dict)
    """process -> its batches above its high watermark."""
    slots: dict[str, deque[LogAppended]] = field(default_factory=dict)
    committed: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    """base offset -> digest, the process that was first, and the leader epoch."""

    def of(self, process: str) -> deque[LogAppended]:
        """The open batches of a process, or those of the process before it in its slot."""
        log = self.open.get(process)
        if log is None:
            slot = slot_of(process)
            if slot.endswith(DUPLICATES):
                log = deque[LogAppended]()
            else:
                log = self.slots.setdefault(slot, deque())
            self.open[process] = log
        return log

    def append(self, process: str, body: LogAppended) -> None:
        """A replica stored a batch, which replaces what it had from that offset on.

        Without a digest it says where something was stored, and not what: it proves nothing.
        """
        if not body.digest:
            return
        log = self.open.get(process)
        if log is None:
            log = self.of(process)
        while log and log[-1].base_offset >= body.base_offset:
            log.pop()
        log.append(body)

    def truncate(self, process: str, to_offset: int) -> list[LogAppended]:
        """A replica truncated its log; returns the batches that it lost, newest first."""
        log = self.of(process)
        lost: list[LogAppended] = []
        while log and log[-1].log_end > to_offset:
            lost.append(log.pop())
        return lost

    def commit(self, process: str, high_watermark: int) -> tuple[bool, Conflict | None]:
        """A replica's high watermark moved. Returns whether it agrees with what others had
        committed, and the first batch by which it does not."""
        log = self.open.get(process)
        committed = self.committed
        agreed = False
        conflict: Conflict | None = None
        while log and log[0].log_end <= high_watermark:
            batch = log.popleft()
            base = batch.base_offset
            known = committed.get(base)
            if known is None:
                committed[base] = (batch.digest, process, batch.batch_epoch)
            elif known[0] == batch.digest:
                agreed = True
            elif conflict is None:
                conflict = Conflict(batch, known[1], known[2])
        return agreed and conflict is None, conflict

    def is_committed(self, batch: LogAppended) -> bool:
        """Whether this very batch is committed, by any replica.

        A resend that a later leader stored has the same digest and is another batch.
        """
        known = self.committed.get(batch.base_offset)
        return known is not None and (known[0], known[2]) == (batch.digest, batch.batch_epoch)

    def diverging(self, process: str, below: int) -> Conflict | None:
        """The first batch that a replica holds unconfirmed, and that differs from the committed
        one."""
        for batch in self.of(process):
            if batch.base_offset >= below:
                break
            known = self.committed.get(batch.base_offset)
            if known is not None and known[0] != batch.digest:
                return Conflict(batch, known[1], known[2])
        return None
