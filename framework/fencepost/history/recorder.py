"""How any process writes its own events: numbers without a gap, one write each, no buffer.

Nodes, client workers and the harness all use it, so importing it must be cheap (msgspec and the
standard library). When `record` returns, the kernel has the event: readers of the file get it, and
it survives a SIGKILL of the process.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import final

import msgspec
from msgspec import Struct

from fencepost.events import Cause, Codec, Event, kind_name
from fencepost.model.disk import written_to

_DESCRIPTORS = Path("/dev/fd")


@final
class Recorder:
    """The events file of one process; safe to use from several threads (a client's callbacks)."""

    def __init__(self, fd: int, path: Path, run: str, process: str, codec: Codec) -> None:
        self._fd = fd
        self._path = path
        self._run = run
        self._process = process
        self._codec = codec
        self._next_seq = 0
        self._lock = Lock()

    @classmethod
    def open(
        cls, path: Path, run: str, process: str, kinds: tuple[type[Struct], ...] = ()
    ) -> Recorder:
        """Creates the events file of `process`; `kinds` are the event kinds of plugins.

        `/dev/fd/N` means the open descriptor N, such as a pipe to the process that keeps the
        events, instead of a new file.

        Raises FileExistsError when the file exists: a process name is used once in a run, since its
        numbers start at 0.
        """
        codec = Codec(kinds)
        # A node in a container writes to a pipe, whose other end keeps the events outside of the
        # container.
        if path.parent == _DESCRIPTORS:
            return cls(os.dup(int(path.name)), path, run, process, codec)
        # O_CLOEXEC: a program that the node starts must not hold its events file open.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return cls(os.open(path, flags, 0o644), path, run, process, codec)

    def record(self, body: Struct, cause: Cause | None = None, at_ns: int | None = None) -> Event:
        """Writes one event and returns it; `at_ns` is CLOCK_MONOTONIC, by default now.

        Raises TypeError for a body of an undeclared kind or with a field of a wrong type,
        ValueError after `close`, and EnvironmentFailed when the disk does not take the whole event.
        """
        # Checked before a number is given: a mistake of a plugin must not look like a lost event.
        if self._codec.kinds.get(kind_name(type(body))) is not type(body):
            kind = type(body).__name__
            raise TypeError(f"{kind} is not an event kind that this recorder was given")
        # Number, time and write are one step: two threads would otherwise write their events in
        # another order than that of their numbers.
        with self._lock:
            if self._fd < 0:
                raise ValueError(f"the events file of {self._process} is closed")
            now = time.monotonic_ns() if at_ns is None else at_ns
            event = Event(
                run=self._run,
                process=self._process,
                node_seq=self._next_seq,
                at_ns=now,
                body=body,
                cause=cause,
            )
            line = self._codec.encode(event)
            try:
                # Encoding checks no types, so a wrong one is found by reading the line back: here,
                # where the traceback names the caller, and not in the judge, where nobody knows who
                # wrote it.
                self._codec.decode(line)
            except msgspec.ValidationError as wrong:
                raise TypeError(f"{kind_name(type(body))} does not fit its kind: {wrong}") from None
            # An event that the disk does not take has its number all the same: the gap shows.
            self._next_seq += 1
            with written_to(self._path, len(line)):
                self._write(line)
            return event

    def _write(self, line: bytes) -> None:
        """Appends a line whole, or not at all: a full disk takes the first part, and then fails."""
        taken = 0
        try:
            while taken < len(line):
                taken += os.write(self._fd, line[taken:])
        except OSError:
            # The part that was written is cut off again, so that the next event begins on a line of
            # its own. Of a pipe nothing can be taken back.
            if taken:
                with suppress(OSError):  # not a file
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - taken)
            raise

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
