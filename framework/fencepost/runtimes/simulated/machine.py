"""The machine of one simulated process: its clocks, its events, its ends of connections.

While a process is stopped (SIGSTOP), nothing happens to it: inputs are kept, and come in their
order when the process goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from random import Random  # noqa: TID251 - a seeded stream, passed in
from typing import Final, final

from msgspec import Struct

from fencepost.events import Cause, Event, Stalled
from fencepost.model.clock import MS
from fencepost.model.runtime import Process, Signal
from fencepost.model.system.simulable import Chance, SimulatedProcess
from fencepost.runtimes.simulated.network import SimulatedNetwork
from fencepost.runtimes.simulated.virtual_time import Agenda

PER_BILLION: Final = 1_000_000_000
WALL_ORIGIN_MS: Final = 1_700_000_000_000
"""The time of a correct wall clock when virtual time begins, in milliseconds since 1970."""


@final
class Clock:
    """A machine's clocks against virtual time: a monotonic one that drifts, a wall clock that is
    also set wrong by `offset_ms`. Drift is parts per billion, counted from `origin_ns`."""

    def __init__(self, origin_ns: int, drift_ppb: int, offset_ms: int) -> None:
        self._origin_ns = origin_ns
        self._rate = PER_BILLION + drift_ppb
        """Nanoseconds that the monotonic clock shows for a virtual second. Times are multiplied by
        it in two parts, whole seconds and the rest: long integers are slow."""
        self._offset_ms = offset_ms
        self._shown = (origin_ns, origin_ns)
        """The last virtual time that was asked for, and what the monotonic clock showed then: a
        step asks several times."""
        self._found = (origin_ns, origin_ns)
        """The last monotonic time that was asked for, and the virtual one: most steps leave a
        deadline as it was."""

    def monotonic_ns(self, true_ns: int) -> int:
        """The time of the monotonic clock at a virtual time."""
        last_ns, shown_ns = self._shown
        if true_ns != last_ns:
            elapsed = true_ns - self._origin_ns
            whole, rest = elapsed // PER_BILLION, elapsed % PER_BILLION
            shown_ns = self._origin_ns + whole * self._rate + rest * self._rate // PER_BILLION
            self._shown = true_ns, shown_ns
        return shown_ns

    def true_ns(self, monotonic_ns: int) -> int:
        """The first virtual time at which the monotonic clock shows this time."""
        last_ns, found_ns = self._found
        if monotonic_ns != last_ns:
            rate, elapsed = self._rate, monotonic_ns - self._origin_ns
            whole, rest = elapsed // rate, elapsed % rate
            found_ns = self._origin_ns + whole * PER_BILLION
            # Rounded up: at a wake-up the clock shows the deadline or later. Rounded down, the
            # process would find that its deadline has not come, and set the same one again, for
            # ever.
            found_ns += (rest * PER_BILLION + rate - 1) // rate
            self._found = monotonic_ns, found_ns
        return found_ns

    def wall_ms(self, true_ns: int) -> int:
        """The time of the wall clock at a virtual time."""
        return WALL_ORIGIN_MS + self._offset_ms + self.monotonic_ns(true_ns) // MS


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of a machine: its clocks, its random stream, the run's agenda, the network,
    and the ports on which it answers."""

    clock: Clock
    draw: Random
    agenda: Agenda
    network: SimulatedNetwork
    ports: frozenset[int]


@final
class Machine:
    """See the module and `fencepost.model.system.simulable.Host`; an `End` of the network too."""

    def __init__(
        self,
        process: Process,
        around: Surroundings,
        *,
        record: Callable[[str, Struct, Cause | None], Event],
        exited: Callable[[Machine, int, str], None],
    ) -> None:
        """`exited` is called with the machine, the exit code and the reason, once the process has
        ended."""
        self.process = process
        self.slot_name = process.slot.name
        self.expected = False
        self.alive = True
        self._clock = around.clock
        self._draw = around.draw
        self._agenda = around.agenda
        self._network = around.network
        self._ports = around.ports
        self._record = record
        self._exited = exited
        self._program: SimulatedProcess | None = None
        self._wakes_ns: list[int] = []
        """When wake-ups are scheduled, as a heap. The first one is never later than the
        deadline."""
        self._due_ns: int | None = None
        """The virtual time of the process's deadline, which only an input can change."""
        self._stopped_ns = -1
        self._kept: list[Callable[[], None]] = []

    def run(self, program: SimulatedProcess) -> None:
        """The process begins."""
        self._program = program
        # The first wake-up is the beginning of the program.
        self._do(program.wake)

    @property
    def program(self) -> SimulatedProcess:
        """The process that runs here."""
        assert self._program is not None
        return self._program

    # ------------------------------------------------------------- Host: what the process may do

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns(self._agenda.now_ns)

    def wall_ms(self) -> int:
        return self._clock.wall_ms(self._agenda.now_ns)

    @property
    def chance(self) -> Chance:
        return self._draw.randint

    def record(self, body: Struct, cause: Cause | None = None) -> Event:
        return self._record(self.process.name, body, cause)

    def dial(self, target: str, port: int) -> int:
        return self._network.dial(self, target, port)

    def send(self, connection: int, message: object) -> None:
        self._network.send(self, connection, message)

    def hang_up(self, connection: int) -> None:
        self._network.hang_up(self, connection)

    def exit(self, code: int) -> None:
        if self.alive:
            self.end()
            self._exited(self, code, "")

    # ------------------------------------------------------------------ End: what the network does

    def listens(self, port: int) -> bool:
        return port in self._ports

    def connected(self, connection: int, port: int) -> None:
        assert self._program is not None
        self._do(partial(self._program.accepted, connection, port))

    def arrived(self, connection: int, message: object) -> None:
        """As `_do`, without an object for each of a run's many messages."""
        assert self._program is not None
        if self._stopped_ns >= 0:
            self._do(partial(self._program.received, connection, message))
        elif self.alive:
            try:
                self._program.received(connection, message)
            except Exception as broken:
                self._fail(broken)
                return
            if self.alive:
                self._arm()

    def cut_off(self, connection: int, reason: str) -> None:
        assert self._program is not None
        self._do(partial(self._program.broken, connection, reason))

    # ---------------------------------------------------------------------- what the harness does

    def command(self, command: Mapping[str, object]) -> None:
        """Gives a client a command."""
        assert self._program is not None
        self._do(partial(self._program.command, command))

    def signalled(self, what: Signal) -> None:
        """SIGTERM or SIGINT."""
        assert self._program is not None
        self._do(partial(self._program.signalled, what))

    @property
    def stopped(self) -> bool:
        return self._stopped_ns >= 0

    @property
    def stood_ns(self) -> int:
        """For how long it has been stopped; 0: it is not."""
        return self._agenda.now_ns - self._stopped_ns if self.stopped else 0

    def stop(self) -> None:
        """SIGSTOP."""
        if not self.stopped:
            self._stopped_ns = self._agenda.now_ns

    def go_on(self) -> None:
        """SIGCONT: the process notices how long it did not run, then gets all inputs that came
        meanwhile."""
        if not self.stopped:
            return
        stood_ns, self._stopped_ns = self._agenda.now_ns - self._stopped_ns, -1
        # Recorded first, as a real process does that notices it: rules must know of the stall
        # before they see what the process does late.
        self._record(self.process.name, Stalled(stalled_ns=stood_ns), None)
        # The inputs come in their order, each as if it had just arrived. If the process ends by one
        # of them, `_do` drops the rest.
        kept, self._kept = self._kept, []
        for action in kept:
            self._do(action)
        self._arm()

    def end(self) -> None:
        """The process is gone; its connections break."""
        self.alive = False
        # The kernel closes the connections of a dead process, so its peers learn of it, unless a
        # cut keeps that from them.
        self._network.gone(self)

    # ------------------------------------------------------------------------------------- workings

    def _do(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self._stopped_ns >= 0:
            # The network of a stopped process goes on: the kernel takes what arrives, and the
            # program sees it later.
            self._kept.append(action)
            return
        try:
            action()
        except Exception as broken:
            self._fail(broken)
            return
        if self.alive:
            self._arm()

    def _fail(self, broken: Exception) -> None:
        """The process fails by an exception of its program; the run goes on."""
        if self.alive:
            self.end()
            # The code of an internal error (EX_SOFTWARE). A bug of a program is a crash of its
            # process, as it would be in reality, and no error of the simulator.
            self._exited(self, 70, _where(broken))

    def _arm(self) -> None:
        """Notes the process's deadline, and schedules a wake-up for it; an earlier one stays."""
        assert self._program is not None
        # After each input, since only an input changes it.
        deadline_ns = self._program.deadline_ns()
        if deadline_ns is None:
            self._due_ns = None
            return
        self._due_ns = due_ns = self._clock.true_ns(deadline_ns)
        self._wake_at(due_ns)

    def _wake_at(self, due_ns: int) -> None:
        """Schedules a wake-up, in a later instant, unless there is an earlier one."""
        # A deadline that is past is due in the next instant. In this one, a program that keeps it
        # would be woken for ever without time passing.
        due_ns = max(due_ns, self._agenda.now_ns + 1)
        # A later deadline needs none beside an earlier wake-up that is pending: that one finds, in
        # `_woken`, that the deadline has moved, and schedules the next. With one for each deadline,
        # every heartbeat left a wake-up with nothing to do: an eighth of all steps of a cluster at
        # rest.
        if not self._wakes_ns or due_ns < self._wakes_ns[0]:
            heappush(self._wakes_ns, due_ns)
            self._agenda.at(due_ns, self._woken)

    def _woken(self) -> None:
        """A wake-up; the deadline may have moved since it was scheduled."""
        heappop(self._wakes_ns)
        # This wake-up is lost on a stopped process; `go_on` schedules another.
        if not self.alive or self._stopped_ns >= 0 or self._due_ns is None:
            return
        assert self._program is not None
        if self._due_ns > self._agenda.now_ns:
            self._wake_at(self._due_ns)
        else:
            self._do(self._program.wake)


def _where(error: BaseException) -> str:
    """The exception, and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        code = trace.tb_frame.f_code
        place = f" in {code.co_qualname}, line {trace.tb_lineno}"
    return f"{type(error).__name__}: {error}{place}"
