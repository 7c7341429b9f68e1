"""Log parsers make events from the standard output of processes that write no events.

A log is a file that a process writes without a buffer, so lines from before a SIGKILL can be read
afterwards. Nothing polls: like `fencepost.history.feed`, this has a descriptor to select on.

A parser is a plugin's code, and may raise. What the line and the later ones of that log had to tell
is then missing from the history, which says so itself (`EvidenceMissed`): a rule that missed the
line "became master" would judge a failover that it never saw. The run ends with the same sentence.

See docs/decisions/05-foreign-nodes.md.
"""

from __future__ import annotations

import ctypes
import shutil
import traceback
from pathlib import Path
from typing import final

from inotify_simple import flags

from fencepost.events import EvidenceMissed
from fencepost.history.feed import notices
from fencepost.history.recorder import Recorder
from fencepost.model.clock import from_wall_ns
from fencepost.model.errors import PluginFailed
from fencepost.model.system.capabilities import LogParser

_LINE_END = b"\n"
_LEFT_OUT = "\n[fencepost left out {} bytes of this log here]\n"
_MOST_OF_A_LINE = 200
"""How many characters of a line that a parser raised at are quoted, at most."""
_OURS = Path(__file__).parents[2]


@final
class ParsedLog:
    """One process's log and its log parser; independent of inotify, so usable for any stream."""

    def __init__(
        self, log_parser: LogParser, recorder: Recorder, system: str = "", log: Path | None = None
    ) -> None:
        """`system` and `log` are named by the error of a parser that raises."""
        self._log_parser = log_parser
        self._recorder = recorder
        self._system = system
        self._log = log
        self._rest = b""
        self._lines = 0
        self.failed: PluginFailed | None = None
        """What the parser raised; it gets no line after that."""

    def take(self, come: bytes) -> None:
        """Takes the next bytes of the stream; an unfinished line waits for its end."""
        # A read may end in the middle of a line, or of a character of more than one byte.
        *whole, self._rest = (self._rest + come).split(_LINE_END)
        for line in whole:
            self._lines += 1
            if self.failed is None:
                self._parse(line.decode(errors="replace"))

    def _parse(self, line: str) -> None:
        try:
            found = tuple(self._log_parser.parse(line))
        except Exception as error:  # a plugin's own code may raise anything
            what = f"{self._blames(error)} at line {self._lines} of {self._log or 'a log'}"
            self._recorder.record(EvidenceMissed(what=f"{what}; no later line of it was read"))
            self.failed = PluginFailed(
                f"{what}, {line[:_MOST_OF_A_LINE]!r}: let it return no event for a line that it "
                "does not know (fencepost.LogParser)"
            )
            return
        for parsed in found:
            # Most logs have wall-clock times. Converted as they are read, soon after they were
            # written, they are exact unless the wall clock was set in between.
            at_ns = from_wall_ns(parsed.at_ns) if parsed.wall else parsed.at_ns
            self._recorder.record(parsed.body, at_ns=at_ns)

    def _blames(self, error: Exception) -> str:
        """The parser, what it raised, and where in its own code."""
        parser = type(self._log_parser)
        frames = [(f.f_code.co_filename, at) for f, at in traceback.walk_tb(error.__traceback__)]
        own = [(path, at) for path, at in frames if not Path(path).is_relative_to(_OURS)]
        where = f" ({own[-1][0]}:{own[-1][1]})" if own else ""
        return (
            f"the log parser {parser.__module__}:{parser.__qualname__} of the system "
            f"{self._system} raised {type(error).__name__}: {error}{where}"
        )

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
        self._most: dict[Path, int] = {}
        self._holes: dict[Path, tuple[int, int]] = {}
        """The part of a log that takes no room on the disk any more. A log that was cut instead, as
        its program went on to write, had lost the lines in between."""

    @property
    def failed(self) -> PluginFailed | None:
        """The first parser that raised."""
        return next((one.failed for *_, one in self._followed.values() if one.failed), None)

    def fileno(self) -> int:
        """The descriptor to select on: readable when `read` may find new lines."""
        return int(self._notify.fileno())

    def follow(self, log: Path, parsed: ParsedLog, most: int = 0) -> None:
        """Follows an existing log from its beginning. With `most`, it takes about so many bytes of
        the disk: of a longer one the first half of them stays, and the last."""
        if most:
            self._most[log] = most
        # The watch is set before the first read, so what is written between the two is noticed.
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

    def close_holes(self) -> None:
        """Takes the holes out of logs, once their processes have ended."""
        for log, (begin, end) in self._holes.items():
            with log.open("rb") as old, log.with_suffix(".whole").open("wb") as new:
                new.write(old.read(begin))
                new.write(_LEFT_OUT.format(end - begin).encode())
                old.seek(end)
                shutil.copyfileobj(old, new)
            log.with_suffix(".whole").replace(log)
        self._holes.clear()

    def close(self) -> None:
        """Stops following; safe to call twice."""
        self._notify.close()
        for _, _, parsed in self._followed.values():
            parsed.close()

    def _read(self, watch: int) -> None:
        log, offset, parsed = self._followed[watch]
        # To its end, however many notices there were: one read may be the answer to several of
        # them.
        with log.open("rb", buffering=0) as file:
            file.seek(offset)
            come = file.readall()
        offset += len(come)
        parsed.take(come)
        self._followed[watch] = log, offset, parsed
        most = self._most.get(log, 0)
        begin, end = self._holes.get(log, (most // 2, most // 2))
        if most and offset - end > most:
            self._holes[log] = begin, offset - most // 2
            punch(log, begin, offset - most // 2)


_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""Flags of fallocate(2)."""


def punch(file: Path, begin: int, end: int) -> None:
    """Gives the disk back what a file has between two offsets, which reads as zeros then. Where the
    file system cannot, the file stays as it is."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    with file.open("rb+", buffering=0) as opened:
        fallocate(opened.fileno(), _KEEP_SIZE | _PUNCH_HOLE, begin, end - begin)
