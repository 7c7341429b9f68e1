"""The harness's end of a simulated client: commands, and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.runtime import Process, Receipt, Signal
from fencepost.runtimes.simulated.machine import Machine


@final
class SimulatedSession:
    """See `ClientSession`."""

    def __init__(self, machine: Machine, signal: Callable[[Process, Signal], Receipt]) -> None:
        self._machine = machine
        self._signal = signal
        self._stopping = False

    @property
    def process(self) -> str:
        return self._machine.process.name

    def tell(self, command: Mapping[str, object]) -> None:
        """See `ClientSession.tell`; raises UsageError after `stop`, EnvironmentFailed after its
        end."""
        if self._stopping:
            raise UsageError(f"{self.process} was asked to stop")
        if not self._machine.alive:
            raise EnvironmentFailed(f"{self.process} takes no commands: it has ended")
        self._machine.command(command)

    def stop(self) -> None:
        """See `ClientSession.stop`; safe to call twice."""
        if not self._stopping:
            self._stopping = True
            self._machine.expected = True
            if self._machine.alive:
                self._machine.signalled(Signal.TERM)

    def end(self) -> None:
        """See `ClientSession.end`; safe to call twice."""
        self._stopping = True
        self._signal(self._machine.process, Signal.KILL)
