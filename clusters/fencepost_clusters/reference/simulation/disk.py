"""A disk in memory: the contents of a real node's files, and the synced part of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from fencepost import torn, torn_files
from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.log.entry import entry
from fencepost_clusters.reference.core.node.effects import (
    Append,
    Chance,
    Checkpoint,
    Delete,
    DiskEffect,
    Recovered,
    StoreSnapshot,
    StoreVote,
    Sync,
    Truncate,
)
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME, Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import record_batch


@dataclass(slots=True)
class MemoryLog:
    """Whole batches in order; those that end at or before `synced` survive a loss of power."""

    batches: list[bytes] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    synced: int = 0

    def append(self, data: bytes) -> None:
        """Adds one batch."""
        header = record_batch.parse(data, verify=False)
        self.batches.append(data)
        self.bases.append(header.base_offset)
        self.ends.append(header.last_offset + 1)

    def truncate(self, to_offset: int) -> None:
        """Drops every batch that reaches past an offset."""
        # A batch that reaches past the offset goes as a whole, since a batch cannot be cut in two.
        keep = bisect_right(self.ends, to_offset)
        del self.batches[keep:], self.bases[keep:], self.ends[keep:]
        # What follows at those offsets was not synced.
        self.synced = min(self.synced, self.ends[-1] if self.ends else 0)

    def drop_below(self, offset: int) -> None:
        """Drops every batch that ends at or before an offset."""
        gone = bisect_right(self.ends, offset)
        del self.batches[:gone], self.bases[:gone], self.ends[:gone]

    def read(self, start: int, end: int) -> bytes:
        """The whole batches from the one at `start` up to offset `end`."""
        first = bisect_right(self.ends, start)
        last = bisect_left(self.ends, end)
        return b"".join(self.batches[first : last + 1])

    def sync(self) -> None:
        """The present batches survive a loss of power."""
        self.synced = self.ends[-1] if self.ends else 0

    def lose_power(self, chance: Chance) -> None:
        """Forgets the batches from a random point after the last sync on. In half of the cases it
        forgets all of them, since a kernel seldom writes back."""
        least = bisect_right(self.ends, self.synced)
        # What survives is a prefix: recovery cuts the log off at the first batch that is missing.
        keep = least if chance(0, 1) else chance(least, len(self.ends))
        self.truncate(self.ends[keep - 1] if keep else 0)

    def damage(self, last_bytes: int) -> bool:
        """Cuts the log off at the first batch that differs when its last bytes are zeros, as a
        node's recovery does. Returns whether there is one."""
        keep = number = len(self.batches)
        while number and last_bytes > 0:
            number -= 1
            data = self.batches[number]
            if torn(data, last_bytes) != data:  # its last bytes may be zeros anyway
                # The earliest damaged batch counts, so the loop goes on towards the front.
                keep = number
            last_bytes -= len(data)
        damaged = keep < len(self.batches)
        self.truncate(self.ends[keep - 1] if keep else 0)
        return damaged

    def copy(self) -> MemoryLog:
        """Another log with the same content."""
        return MemoryLog(list(self.batches), list(self.bases), list(self.ends), self.synced)


@dataclass(slots=True)
class MemoryDisk:
    """See the module and `fencepost.SimulatedDisk`."""

    logs: dict[str, MemoryLog] = field(default_factory=dict)
    vote: Vote = field(default_factory=Vote)
    high_watermarks: Mapping[str, int] = field(default_factory=dict)
    flushed: Mapping[str, int] = field(default_factory=dict)
    """How far each log was synced, as the node checkpointed it."""
    snapshot: Snapshot | None = None
    """The snapshot of the metadata log, the only log that has one; always synced."""

    def log(self, name: str) -> MemoryLog:
        """A log by name; creates it if it does not exist."""
        if name not in self.logs:
            self.logs[name] = MemoryLog()
        return self.logs[name]

    def carry_out(self, effect: DiskEffect) -> None:
        """Carries out a node's effect on its disk."""
        match effect:
            case Append():
                self.log(effect.log).append(effect.data)
            case Truncate():
                self.log(effect.log).truncate(effect.to_offset)
            case Sync():
                self.log(effect.log).sync()
            case Delete():
                self.delete(effect.log)
            case StoreVote():
                self.vote = Vote(effect.epoch, effect.voted_for)
            case StoreSnapshot():
                self.log(effect.log).drop_below(effect.offset)
                self.snapshot = Snapshot(effect.offset, effect.epoch, effect.data)
            case Checkpoint():
                self.high_watermarks = dict(effect.high_watermarks)
                self.flushed = dict(effect.flushed)

    def read(self, log: str, start: int, end: int) -> bytes:
        """The whole batches of a log from the one at `start` up to offset `end`."""
        return self.log(log).read(start, end)

    def stored(self) -> DiskContents:
        """The contents that a starting process reads."""
        metadata = self.logs.get(LOG_NAME)
        return DiskContents(
            tuple(metadata.batches) if metadata is not None else (),
            self.vote,
            self.snapshot,
        )

    def recover(self) -> Recovered:
        """The logs of partitions, as a node recovers them."""
        logs = {
            name: tuple(entry(record_batch.parse(b, verify=False)) for b in log.batches)
            for name, log in self.logs.items()
            if name != LOG_NAME
        }
        return Recovered(logs, dict(self.high_watermarks))

    def delete(self, name: str) -> None:
        """Removes a log and its data, with its snapshot."""
        self.logs.pop(name, None)
        if name == LOG_NAME:
            self.snapshot = None

    def damage(self, files: str, last_bytes: int) -> Sequence[str]:
        """See `fencepost.DamageableDisk`. A log is one file here."""
        paths = {
            f"{name}/{log.bases[0]:020d}.log": log for name, log in self.logs.items() if log.bases
        }
        return [path for path in torn_files(paths, files) if paths[path].damage(last_bytes)]

    def copy(self) -> Self:
        return type(self)(
            {name: log.copy() for name, log in self.logs.items()},
            self.vote,
            dict(self.high_watermarks),
            dict(self.flushed),
            self.snapshot,
        )

    def lose_power(self, chance: Chance) -> None:
        for name in sorted(self.logs):
            self.logs[name].lose_power(chance)
