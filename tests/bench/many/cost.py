"""What a program takes together with all processes that it starts: wall time, CPU time, memory.

Spark's workers in Python end unwaited, so the kernel adds their CPU time to that of no parent. So
the processes of the program's session are looked at in /proc until the last of them has ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

EVERY_S = 0.05
"""What a process does after the last look at it is not counted."""
_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SID, _UTIME, _STIME, _RSS = 3, 11, 12, 21
"""Fields of /proc/PID/stat after the name of the program."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a program took; `peak_mb` is the most memory of all its processes together, in which
    pages that they share count for each, and `own_mb` that of its first process alone."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    own_mb: float

    def rounded(self) -> dict[str, float]:
        return {
            "wall_s": round(self.wall_s, 1),
            "cpu_s": round(self.cpu_s, 1),
            "peak_mb": round(self.peak_mb),
            "own_mb": round(self.own_mb),
        }


def cost(words: Sequence[str], answer: Path, folder: Path) -> Cost:
    """Runs a program of Python to its end; its standard output goes into a file. A report may end
    with 1 or 3, which say what it found."""
    began = time.perf_counter()
    with answer.open("wb") as out:
        started = subprocess.Popen(
            [sys.executable, *words], stdout=out, cwd=folder, start_new_session=True
        )
        session = _Session(started.pid)
        ended = Event()
        watching = Thread(target=session.watch, args=(ended,))
        watching.start()
        started.wait()
    wall_s = time.perf_counter() - began
    ended.set()
    watching.join()
    if started.returncode not in (0, 1, 3):
        raise SystemExit(f"{words[:2]} ended with {started.returncode}")
    cpu_s = sum(session.cpu_s.values())
    return Cost(wall_s, cpu_s, session.peak / (1 << 20), session.own / (1 << 20))


class _Session:
    """The processes of one session: the CPU time of each, and their memory."""

    def __init__(self, sid: int) -> None:
        self.cpu_s: dict[int, float] = {}
        self.peak = self.own = 0
        self._leader, self._sid = sid, str(sid)

    def watch(self, ended: Event) -> None:
        """Looks at them until the program has ended."""
        while not ended.wait(EVERY_S):
            memory = 0
            for process, fields in _processes():
                if fields[_SID] == self._sid:
                    used = (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_S
                    self.cpu_s[process] = max(used, self.cpu_s.get(process, 0.0))
                    used_bytes = int(fields[_RSS]) * _PAGE
                    memory += used_bytes
                    if process == self._leader:
                        self.own = max(self.own, used_bytes)
            self.peak = max(self.peak, memory)


def _processes() -> Iterator[tuple[int, Sequence[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            yield int(entry.name), text.rpartition(")")[2].split()
