"""Repeats one test under CPU pressure, so that its race occurs often enough to be found.

    ./dev flaky N TEST [ARGUMENTS OF PYTEST]

Two busy processes a processor compete with the test. They end with this program. Each repetition is
a session of its own. The seed and the run's folder of each failure are printed, and the output of
its session is kept in `.fencepost/repeated`. The exit code is 1 if any repetition failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import outcomes

FOLDER = Path(".fencepost/repeated")
BUSY_PER_PROCESSOR = 2
BUSY = """
import os, sys
owner = int(sys.argv[1])
while os.getppid() == owner:
    for _ in range(100_000):
        pass
"""
_OK, _TESTS_FAILED, _USAGE = 0, 1, 2


@contextmanager
def pressure() -> Iterator[None]:
    """Keeps every processor busy; a busy process also ends when its owner is gone."""
    with ExitStack() as ends:
        for _ in range(BUSY_PER_PROCESSOR * (os.cpu_count() or 1)):
            busy = ends.enter_context(
                subprocess.Popen([sys.executable, "-I", "-S", "-c", BUSY, str(os.getpid())])
            )
            ends.callback(busy.kill)
        yield


def repeat(times: int, arguments: Sequence[str], folder: Path) -> int:
    """Runs pytest so many times; the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    program = Path(sys.executable).with_name("pytest")
    failures = 0
    for number in range(1, times + 1):
        here = folder / f"{number}"
        here.mkdir(parents=True)
        file, log = here / "outcomes.json", here / "output.txt"
        with log.open("wb") as output:
            code = subprocess.call(
                [program, "-n", "0", "-p", "no:cacheprovider", *arguments, f"--outcomes={file}"],
                stdout=output,
                stderr=output,
            )
        session = outcomes.read(file) if file.exists() else None
        if session is None or session.exit_code not in (_OK, _TESTS_FAILED):
            print(log.read_text(errors="replace"), file=sys.stderr)
            return code or _USAGE
        failed = session.of("failed")
        failures += bool(failed)
        print(f"{number} of {times}: {'failed' if failed else 'passed'}", flush=True)
        for one in failed:
            print(f"  {one.test}  seed={one.seed or 'none'}  run={one.run or 'none'}")
            print(f"  output: {log}", flush=True)
        if not failed:
            shutil.rmtree(here)
    print(f"{failures} of {times} failed")
    return _TESTS_FAILED if failures else _OK


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2 or not arguments[0].isdecimal() or not int(arguments[0]):
        print("usage: ./dev flaky N TEST [ARGUMENTS OF PYTEST]", file=sys.stderr)
        return _USAGE
    with pressure():
        return repeat(int(arguments[0]), arguments[1:], FOLDER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
