"""The harness's end of the guard: it is told before each act, and asked to heal at the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import final

import msgspec

from fencepost.model.errors import EnvironmentFailed
from fencepost.runtimes.attached.guard import PATIENCE_S, Act, Duties, Report

_START_LIMIT_S = 20.0


@final
class Guarding:
    """A guard that runs: a process in a session of its own, which outlives this one."""

    def __init__(self, duties: Duties) -> None:
        """Returns once it guards; raises EnvironmentFailed if it does not start."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fencepost.runtimes.attached.guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A Ctrl-C in the terminal is for the harness.
            start_new_session=True,
        )
        self.reports: Sequence[Report] = ()
        """What became of the healing, once it has ended."""
        self._send(msgspec.json.encode(duties))
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"\n":
            self._process.kill()
            self._process.wait()
            raise EnvironmentFailed("the guard of the attached cluster did not start")

    def tell(self, act: Act) -> None:
        """Tells it what is about to be done; raises EnvironmentFailed if it is gone, and then
        nothing may be done."""
        self._send(msgspec.json.encode(act))

    def heal(self) -> Sequence[Report]:
        """Has it heal everything, and waits for that; may be called twice."""
        process = self._process
        if process.stdin is None or process.stdin.closed:
            return self.reports
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        # It bounds each of its steps itself. If this is interrupted, it goes on alone.
        lines = process.stdout.read().splitlines()
        process.stdout.close()
        found = [msgspec.json.decode(line, type=Report) for line in lines if line]
        if process.wait(PATIENCE_S):
            found.append(Report(failed="the guard ended before it had healed everything"))
        self.reports = tuple(found)
        return self.reports

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as gone:
            raise EnvironmentFailed(
                "the guard of the attached cluster is gone: nothing is broken without it"
            ) from gone
