"""Follows every events file of a run by inotify: events are read as processes write them.

Nothing polls: the feed has a descriptor to select on, and a read returns the whole lines that came
since the last one. An unfinished last line waits for its end.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

import msgspec
from inotify_simple import INotify, flags

from fencepost.events import Codec, Event
from fencepost.model.errors import EnvironmentFailed


def notices() -> INotify:
    """A descriptor that signals changed files, for reads that do not wait; raises EnvironmentFailed
    when the kernel has no inotify instance left."""
    try:
        return INotify(nonblocking=True)
    except OSError as refused:
        raise EnvironmentFailed(
            f"the kernel has no inotify instance left ({refused.strerror}): see "
            "/proc/sys/fs/inotify/max_user_instances"
        ) from refused


@final
class Tail:
    """One events file, read from where the last read stopped; no file stays open in between."""

    def __init__(self, path: Path, codec: Codec) -> None:
        self._path = path
        self._codec = codec
        self._offset = 0
        self._rest = b""
        self._line = 0

    def read(self, damage: list[str]) -> list[Event]:
        """The events that came since; lines that are not events are named in `damage`."""
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._offset)
            come = file.readall()
        self._offset += len(come)
        # The line after the last end is not finished, and may never be.
        *whole, self._rest = (self._rest + come).split(Codec.LINE_END)
        events = []
        for line in whole:
            self._line += 1
            try:
                events.append(self._codec.decode(line))
            except msgspec.DecodeError as wrong:
                damage.append(f"{self._path.stem}, line {self._line} is not an event: {wrong}")
        return events


@final
class Feed:
    """All events files of a folder, except the reader's own."""

    def __init__(self, folder: Path, codec: Codec, own: Path) -> None:
        """Follows the folder from now on; raises EnvironmentFailed when the kernel has no inotify
        instance left."""
        self._folder = folder
        self._codec = codec
        self._own = own.name
        self._tails: dict[str, Tail] = {}
        self._notify = notices()
        # One watch of the folder, and none for each file: a file that a process makes later is
        # noticed, too.
        self._notify.add_watch(folder, flags.CREATE | flags.MODIFY)
        self.damage: list[str] = []
        """A sentence for every line that is not an event."""

    def fileno(self) -> int:
        """The descriptor to select on: readable when `read` may return something."""
        return int(self._notify.fileno())

    def read(self) -> list[Event]:
        """The events since the last call, without waiting, each process's events in its order.

        Processes are interleaved by at_ns, which is close to happens-before;
        `fencepost.history.merge` has the exact order.
        """
        changed: set[str] = set()
        for notice in self._notify.read(timeout=0):
            # The kernel has dropped notices, so any file may have grown.
            if notice.mask & flags.Q_OVERFLOW:
                changed.update(path.name for path in self._folder.iterdir())
            else:
                changed.add(notice.name)
        # What this process records itself it has applied already.
        changed.discard(self._own)
        timed: list[tuple[int, Event]] = []
        for name in sorted(changed):
            if name not in self._tails:
                self._tails[name] = Tail(self._folder / name, self._codec)
            latest = 0
            for event in self._tails[name].read(self.damage):
                # Within a file the order is that of the numbers, whatever the times are: an event
                # is never sorted before an earlier one of its process.
                latest = max(latest, event.at_ns)
                timed.append((latest, event))
        timed.sort(key=lambda pair: pair[0])
        return [event for _, event in timed]

    def close(self) -> None:
        """Stops following; safe to call twice."""
        self._notify.close()
