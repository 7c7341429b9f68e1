"""The harness's end of a client worker: its name, and the pipe to its standard input."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import final

from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.runtime import Process, Signal
from fencepost.runtimes.process.processes import Processes

_LONGEST_COMMAND = 4096
"""What a pipe takes whole or not at all."""


@final
class WorkerSession:
    """See `ClientSession`. `commands` is the pipe, not blocking, and closed by `stop`."""

    def __init__(self, process: Process, processes: Processes, commands: int) -> None:
        self._process = process
        self._processes = processes
        self._commands = commands

    @property
    def process(self) -> str:
        return self._process.name

    def tell(self, command: Mapping[str, object]) -> None:
        """See `ClientSession.tell`.

        Raises UsageError for a command above 4 kB or after `stop`, EnvironmentFailed when the
        worker has ended or does not read.
        """
        line = json.dumps(command).encode() + b"\n"
        if len(line) > _LONGEST_COMMAND or self._commands < 0:
            why = "was asked to stop" if self._commands < 0 else "takes commands of 4 kB at most"
            raise UsageError(f"{self.process} {why}")
        try:
            os.write(self._commands, line)
        except BrokenPipeError:
            why = self._processes.why_ended(self.process)
            raise EnvironmentFailed(f"{self.process} takes no commands: it {why}") from None
        except BlockingIOError:
            raise EnvironmentFailed(f"{self.process} does not read its commands") from None

    def stop(self) -> None:
        """See `ClientSession.stop`; safe to call twice."""
        if self._commands >= 0:
            self._processes.expect_end(self.process)
            os.close(self._commands)
            self._commands = -1

    def end(self) -> None:
        """See `ClientSession.end`; safe to call twice."""
        self.stop()
        self._processes.signal(self._process, Signal.KILL)
