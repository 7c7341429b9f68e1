"""Log parsers make events from the standard output of processes that write no events.

A log is a file that a process writes without a buffer, so lines from before a SIGKILL can be read
afterwards. Nothing polls: like `fencepost.history.feed`, this has a descriptor to select on.

See docs/decisions/05-foreign-nodes.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

from inotify_simple import flags

from fencepost.history.feed import notices
from fencepost.history.recorder import Recorder
from fencepost.model.clock import from_wall_ns
from fencepost.model.system.capabilities import LogParser

_LINE_END = b"\n"


@final
class ParsedLog:
    """One process's log and its log parser; independent of inotify, so usable for any stream."""

    def __init__(self, log_parser: LogParser, recorder: Recorder) -> None:
        self._log_parser = log_parser
        self._recorder = recorder
        self._rest = b""

    def take(self, come: bytes) -> None:
        """Takes the next bytes of the stream; an unfinished line waits for its end."""
        *whole, self._rest = (self._rest + come).split(_LINE_END)
        for line in whole:
            for parsed in self._log_parser.parse(line.decode(errors="replace")):
                at_ns = from_wall_ns(parsed.at_ns) if parsed.wall else parsed.at_ns
                self._recorder.record(parsed.body, at_ns=at_ns)

    def close(self) -> None:
        """Closes the events file; safe to call twice."""
        self._recorder.close()


@final
class ParsedLogs:
    """All processes of a run whose logs are followed."""

    def __init__(self) -> None:
        """Raises EnvironmentFailed when the kernel has no inotify instance left."""
        self._notify = notices()
        self._followed: dict[int, tuple[Path, int, ParsedLog]] = {}
        """inotify's number of the log -> the log, how much of it was read, and its parser."""

    def fileno(self) -> int:
        """The descriptor to select on: readable when `read` may find new lines."""
        return int(self._notify.fileno())

    def follow(self, log: Path, parsed: ParsedLog) -> None:
        """Follows an existing log from its beginning."""
        watch = self._notify.add_watch(log, flags.MODIFY)
        self._followed[watch] = log, 0, parsed
        self._read(watch)

    def read(self) -> None:
        """Takes the lines that were printed since the last call, without waiting."""
        for watch in {notice.wd for notice in self._notify.read(timeout=0)}:
            if watch in self._followed:
                self._read(watch)
            else:  # the kernel dropped notices of unknown files
                for any_watch in self._followed:
                    self._read(any_watch)

    def close(self) -> None:
        """Stops following; safe to call twice."""
        self._notify.close()
        for _, _, parsed in self._followed.values():
            parsed.close()

    def _read(self, watch: int) -> None:
        log, offset, parsed = self._followed[watch]
        with log.open("rb", buffering=0) as file:
            file.seek(offset)
            come = file.readall()
        self._followed[watch] = log, offset + len(come), parsed
        parsed.take(come)
