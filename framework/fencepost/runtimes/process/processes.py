"""The nodes and clients of a run as host processes: which run, which were asked to end, which
died."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import final

from fencepost.model.clock import MS, now_ns, poll
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.runtime import Process, Receipt, Signal
from fencepost.model.system.topology import Slot
from fencepost.runtimes.process.backend import Launching
from fencepost.supervision.launcher import Child, Exit, failed_with

EXIT_LIMIT_S = 5.0
STATE_LIMIT_S = 2.0
_STOPPED = "T"
_ENDING = (Signal.KILL, Signal.TERM, Signal.INT)


@dataclass(slots=True)
class Tracked:
    """A process, whether it is stopped, and how it ended."""

    process: Process
    log: Path
    expected: bool = False
    """Whether its end was asked for."""
    stopped: bool = False
    stopped_ns: int = 0
    """When it was stopped last."""
    exit: Exit | None = None

    def __str__(self) -> str:
        return f"{self.process.name} (process {self.process.pid})"


@final
class Processes:
    """Every process of a run except toxiproxies; their state comes from /proc and from their
    ends."""

    def __init__(self, launcher: Launching) -> None:
        self._launcher = launcher
        self._tracked: dict[str, Tracked] = {}

    def start(self, child: Child, slot: Slot) -> tuple[Process, int]:
        """Starts a child in that slot; returns the process, and the moment just before it existed.

        Raises EnvironmentFailed when its program cannot be started.
        """
        pid, at_ns = self._launcher.start(child)
        process = Process(child.name, slot, pid)
        self._tracked[child.name] = Tracked(process, child.log)
        return process, at_ns

    def living(self, slot: str) -> Process | None:
        """The newest process alive in a slot."""
        for tracked in reversed(self._tracked.values()):
            if tracked.process.slot.name == slot and tracked.exit is None:
                return tracked.process
        return None

    def share_id(self, slot: Slot, rivals: Collection[Slot]) -> bool:
        """Whether two processes have the id of a node: a system may refuse it to either of them."""
        return slot.duplicate or any(self.living(one.name) for one in rivals)

    def ended(self, exit_: Exit) -> Tracked | None:
        """Notes an end; None for a process that is not among these."""
        tracked = self._tracked.get(exit_.name)
        if tracked is not None:
            tracked.exit = exit_
        return tracked

    def expect_end(self, name: str) -> None:
        """From now on the end of the process is expected."""
        self._tracked[name].expected = True

    def why_ended(self, name: str) -> str:
        """How a process that is gone has ended."""
        exit_ = self._tracked[name].exit
        return str(exit_) if exit_ is not None else "is alive"

    def signal(self, process: Process, what: Signal) -> Receipt:
        """Sends a signal; the receipt is the process's state in the kernel afterwards.

        SIGKILL returns when the process has ended; SIGTERM and SIGINT return when they are
        delivered, since a node may take time to end.
        """
        tracked = self._tracked[process.name]
        if tracked.exit is not None:
            return Receipt(False, f"{tracked} is not alive: it {tracked.exit}")
        # Before the signal is sent: the end may be reported while the answer is still on its way.
        tracked.expected |= what in _ENDING
        began = now_ns()
        # It ended between the check and the signal; the wait takes in how.
        if not self._launcher.signal(process.name, Signals[what.value]):
            self._launcher.wait(process.name, EXIT_LIMIT_S)
            return Receipt(False, f"{tracked} had just ended by itself")
        if what is Signal.KILL:
            exit_ = self._launcher.wait(process.name, EXIT_LIMIT_S)
            if exit_ is None:
                return Receipt(False, f"{tracked} did not end within {EXIT_LIMIT_S:.0f} s")
            took_ms = (exit_.at_ns - began) / MS
            return Receipt(True, f"{tracked} {exit_} within {took_ms:.1f} ms")
        if what in (Signal.STOP, Signal.CONT):
            return self._stop_or_go(tracked, what is Signal.STOP)
        # The kernel keeps SIGTERM for a stopped process until it goes on. Nothing has happened so
        # far.
        if tracked.stopped:
            return Receipt(False, f"{what} is pending: {tracked} is stopped")
        return Receipt(True, f"{what} was delivered to {tracked}, which was alive")

    def kill_all(self) -> None:
        """Ends every process that is left, in bounded time."""
        left = [
            tracked
            for tracked in self._tracked.values()
            # A node that was adopted goes on without the run.
            if tracked.exit is None and self._launcher.owns(tracked.process.name)
        ]
        for tracked in left:
            # All are killed before any is waited for: the limits would add up otherwise.
            tracked.expected = True
            self._launcher.kill_soon(tracked.process.name)
        for tracked in left:
            self._launcher.wait(tracked.process.name, EXIT_LIMIT_S)

    def adopted(self) -> Sequence[Process]:
        """The live processes that go on without the run."""
        return [
            one.process
            for name, one in self._tracked.items()
            if one.exit is None and not self._launcher.owns(name)
        ]

    @contextmanager
    def resumed(self, slots: Collection[str]) -> Iterator[Sequence[Process]]:
        """Resumes stopped processes in these slots for the duration, since a stopped process can
        hang a toxiproxy. Yields them."""
        stopped = [
            tracked
            for tracked in self._tracked.values()
            if tracked.stopped and tracked.exit is None and tracked.process.slot.name in slots
        ]
        for tracked in stopped:
            self.signal(tracked.process, Signal.CONT)
        try:
            yield [tracked.process for tracked in stopped]
        finally:
            for tracked in stopped:
                # `stopped_ns` is set anew here: from this moment the process stands still again.
                self.signal(tracked.process, Signal.STOP)

    def _stop_or_go(self, tracked: Tracked, stop: bool) -> Receipt:
        name = tracked.process.name
        # A signal is delivered before the process stands still: it may finish a system call first.
        # What counts is the state of the process in the kernel.
        reached = poll(lambda: (self._launcher.state(name) == _STOPPED) is stop, STATE_LIMIT_S)
        state = self._launcher.state(name)
        if stop and not tracked.stopped:
            tracked.stopped_ns = now_ns()
        tracked.stopped = state == _STOPPED
        # A process that is gone is in no state T either, and has not been resumed.
        return Receipt(reached and bool(state), f"{tracked} is in state {state or 'gone'}")


def died(tracked: Tracked, why: str = "") -> EnvironmentFailed:
    """The error of a process that should be alive and has ended; `why` is a clause to add."""
    return failed_with(f"{tracked} {tracked.exit}, but should be running{why}", tracked.log)
