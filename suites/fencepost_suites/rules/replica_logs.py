"""The logs of a partition's replicas as they tell them, and which batches are committed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import final

from fencepost import LogAppended

Batch = tuple[int, int, str, int]
"""Base offset, the offset after it, a digest, and the leader epoch it was written in."""


@final
@dataclass(slots=True)
class ReplicaLogs:
    """Batches above each replica's own high watermark, and those below anybody's.

    A replica is a slot: its disk outlives its processes. What is below a replica's own high
    watermark it declares committed; the first to do so sets what every other must have there.
    """

    open: dict[str, deque[Batch]] = field(default_factory=dict)
    """slot -> its batches above its high watermark."""
    committed: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    """base offset -> digest, the slot that was first, and the leader epoch."""

    def append(self, slot: str, body: LogAppended) -> None:
        """A replica stored a batch; it no longer has what it had from that offset on."""
        log = self.open.get(slot)
        if log is None:
            log = self.open[slot] = deque()
        base = body.base_offset
        while log and log[-1][0] >= base:
            log.pop()
        log.append((base, body.log_end, body.digest, body.batch_epoch))

    def truncate(self, slot: str, to_offset: int) -> list[Batch]:
        """A replica cut its log; the batches that it lost, newest first."""
        log = self.open.get(slot)
        lost: list[Batch] = []
        while log and log[-1][1] > to_offset:
            lost.append(log.pop())
        return lost

    def commit(self, slot: str, high_watermark: int) -> tuple[bool, tuple[int, str] | None]:
        """A replica's high watermark moved; whether it agrees with what others had committed.

        The second part is the first offset where it does not, and the slot that has another batch.
        """
        log = self.open.get(slot)
        committed = self.committed
        agreed, conflict = False, None
        while log and log[0][1] <= high_watermark:
            base, _, digest, epoch = log.popleft()
            known = committed.get(base)
            if known is None:
                committed[base] = (digest, slot, epoch)
            elif known[1] != slot:
                if known[0] == digest:
                    agreed = True
                elif conflict is None:
                    conflict = (base, known[1])
        return agreed and conflict is None, conflict

    def is_committed(self, batch: Batch) -> bool:
        """Whether this very batch is committed, by anybody's word.

        A resend that a later leader stored has the same digest and is another batch.
        """
        known = self.committed.get(batch[0])
        return known is not None and (known[0], known[2]) == batch[2:]

    def diverging(self, slot: str, below: int) -> int | None:
        """The first offset where a replica holds, unconfirmed, another batch than is committed."""
        for base, _, digest, _ in self.open.get(slot, ()):
            if base >= below:
                break
            known = self.committed.get(base)
            if known is not None and known[0] != digest:
                return base
        return None
