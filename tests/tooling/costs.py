"""What tests cost in processor seconds, their processes included.

    ./dev test; .venv/bin/python tests/tooling/costs.py [FILE]

prints the sums of files, then the most expensive tests, of the session that wrote FILE (see
`outcomes`). Seconds on the clock tell little of a session that shares its processors.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)
"""In `/proc/PID/stat` behind the name: utime, stime, and both of its children that were reaped."""


def processor_seconds() -> float:
    """What this process and those that it started have used. Two figures differ by what was used
    between them: the time of a process that ends is its parent's from when it is reaped. Only a
    process that outlives its parent takes its time away."""
    own = sum(os.times()[:4])
    return own + sum(_used(process) for process in _below(os.getpid()))


def _below(process: int) -> Iterator[int]:
    """All living descendants."""
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = listed.read_text().split()
        except OSError:  # the thread has ended
            continue
        for child in map(int, children):
            yield child
            yield from _below(child)


def _used(process: int) -> float:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:  # it has ended, and its parent has its time
        return 0.0
    return sum(map(int, stat.rpartition(")")[2].split()[_TIMES])) / _TICKS


def _table(title: str, rows: Counter[str], most: int) -> None:
    print(f"{title}: {sum(rows.values()):.0f} s")
    for name, seconds in rows.most_common(most):
        print(f"{seconds:9.1f}  {name}")


def main(file: str = ".fencepost/outcomes.json") -> None:
    # imports here: `outcomes` measures with this module
    from outcomes import read  # noqa: PLC0415

    tests = Counter({one.test: one.processor_seconds for one in read(Path(file)).outcomes})
    files = Counter[str]()
    for test, seconds in tests.items():
        files[test.partition("::")[0]] += seconds
    _table("files", files, 60)
    _table("tests", tests, 100)


if __name__ == "__main__":
    main(*sys.argv[1:])
