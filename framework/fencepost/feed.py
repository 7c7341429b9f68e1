"""What processes write, as they write it: every events file of a run, followed by inotify.

Nothing polls: the feed has a descriptor to select on, and a read takes in whatever whole lines have
come since. A last line without its end waits for the rest of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, final

import msgspec
from inotify_simple import INotify, flags

from fencepost.events import Codec, Event

_CHUNK = 1 << 20


@final
class Tail:
    """One events file, read from where the last reading stopped."""

    def __init__(self, path: Path, codec: Codec) -> None:
        self.name = path.stem
        self._file: BinaryIO = path.open("rb", buffering=0)
        self._codec = codec
        self._rest = b""
        self._line = 0

    def read(self, damage: list[str]) -> list[Event]:
        """The events that have come; lines that are none are named in `damage`."""
        events = []
        while chunk := self._file.read(_CHUNK):
            *whole, self._rest = (self._rest + chunk).split(Codec.LINE_END)
            for line in whole:
                self._line += 1
                try:
                    events.append(self._codec.decode(line))
                except msgspec.DecodeError as wrong:
                    damage.append(f"{self.name}, line {self._line} is not an event: {wrong}")
        return events

    def close(self) -> None:
        self._file.close()


@final
class Feed:
    """All events files of a folder, but for one process's own (the reader's)."""

    def __init__(self, folder: Path, codec: Codec, own: Path) -> None:
        self._folder = folder
        self._codec = codec
        self._own = own.name
        self._tails: dict[str, Tail] = {}
        self._notify = INotify(nonblocking=True)
        self._notify.add_watch(folder, flags.CREATE | flags.MODIFY)
        self.damage: list[str] = []
        """A sentence for every line that is not an event."""

    def fileno(self) -> int:
        """What to select on: readable when `read` may have something."""
        return int(self._notify.fileno())

    def read(self) -> list[Event]:
        """What has come since the last call, without waiting, each process's events in its order.

        Processes are interleaved by at_ns, as near to happens-before as one can be on the way;
        `fencepost.history` has the exact order.
        """
        changed: set[str] = set()
        for notice in self._notify.read(timeout=0):
            if notice.mask & flags.Q_OVERFLOW:
                changed.update(path.name for path in self._folder.iterdir())
            else:
                changed.add(notice.name)
        changed.discard(self._own)
        timed: list[tuple[int, Event]] = []
        for name in sorted(changed):
            if name not in self._tails:
                self._tails[name] = Tail(self._folder / name, self._codec)
            latest = 0
            for event in self._tails[name].read(self.damage):
                latest = max(latest, event.at_ns)
                timed.append((latest, event))
        timed.sort(key=lambda pair: pair[0])
        return [event for _, event in timed]

    def close(self) -> None:
        """Stops following; safe to call twice."""
        self._notify.close()
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()
