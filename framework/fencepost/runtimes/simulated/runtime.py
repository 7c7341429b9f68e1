"""The simulated runtime: a run's nodes and clients in one process, in virtual time.

It satisfies `fencepost.model.runtime.Runtime`. One seed decides every delay, every lost connection,
the offset and drift of each machine's clocks, the random choices of a process, and the data that a
disk loses when its machine loses power. So the same seed gives the same history, byte for byte. The
simulator never sleeps and opens no socket. It writes files only at the end: then the events of each
process go into the run's folder, as those of real processes do.

It does not imitate: bytes (messages travel as values, unless a system's clients send bytes), the
time that work takes (a step takes none), full or failing disks, threads, or the client libraries:
clients are the system's own, held to real ones by a test.

See docs/decisions/13-simulator.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random  # noqa: TID251 - every stream is seeded by the run's seed
from types import TracebackType
from typing import Final, Self, final

import msgspec
from msgspec import Struct

from fencepost.events import (
    Cause,
    ClientFailed,
    Codec,
    Effect,
    Event,
    NodeStopped,
    ProcessAsked,
    ProcessExited,
    ProcessSpawned,
    RunEnded,
    RunStarted,
    Stalled,
)
from fencepost.history.run_end import HARNESS
from fencepost.history.run_folder import RunFolder, info_of
from fencepost.injection.network import Network
from fencepost.model.disk import written_to
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.faults.effects import Effects
from fencepost.model.faults.hold import Hold, HoldCounts
from fencepost.model.runtime import (
    ClientSpec,
    Condition,
    LinkState,
    Process,
    Receipt,
    Signal,
    check_at_rest,
    client_port,
    clients_slot,
)
from fencepost.model.system.capabilities import Place
from fencepost.model.system.simulable import (
    DamageableDisk,
    Framing,
    Simulable,
    SimulatedDisk,
    SimulatedProcess,
)
from fencepost.model.system.subject import Subject
from fencepost.model.system.topology import CLIENT, Cut, Layout, Link, Slot
from fencepost.model.system.worker_config import WorkerConfig
from fencepost.model.view import View
from fencepost.runtimes.restarts import Restarts
from fencepost.runtimes.resuming import told
from fencepost.runtimes.simulated.bounds import MOST_EVENTS, check_size
from fencepost.runtimes.simulated.machine import Clock, Machine, Surroundings
from fencepost.runtimes.simulated.network import NetworkProfile, SimulatedNetwork
from fencepost.runtimes.simulated.prober import SimulatedProber
from fencepost.runtimes.simulated.session import SimulatedSession
from fencepost.runtimes.simulated.virtual_time import START_NS, Agenda

MOST_DRIFT_PPB: Final = 20_000
"""The largest drift of a machine's clock: 20 microseconds a second."""
MOST_OFFSET_MS: Final = 3_600_000
"""The largest offset of a machine's wall clock."""


@final
class SimulatedRuntime:
    """See the module. For one thread."""

    def __init__(
        self,
        subject: Subject,
        folder: RunFolder,
        *,
        profile: NetworkProfile | None = None,
        watch: Callable[[Mapping[str, SimulatedProcess]], None] | None = None,
        most_events: int = MOST_EVENTS,
    ) -> None:
        """`watch` is called after every step with the live processes of nodes, by name.

        Raises UsageError for a system that cannot be simulated or a bad shape.
        """
        system = subject.system
        if not isinstance(system, Simulable):
            raise UsageError(f"{system.name} cannot be simulated")
        self._subject, self._simulable = subject, system
        self._folder, self._run = folder, folder.run
        self._layout = system.layout(subject.shape)
        self._codec = Codec(subject.kinds)
        self._agenda = Agenda()
        self._view = View(system.folds, self._layout.roles)
        self._events: list[Event] = []
        self._most_events = most_events
        self._applied = 0
        self._numbers: dict[str, int] = {}
        """process -> the number of its next event."""
        self._starts: Counter[str] = Counter()
        self._machines: dict[str, Machine] = {}
        self._clients: dict[str, Machine] = {}
        self._disks: dict[str, SimulatedDisk] = {}
        self._stopped: dict[str, str] = {}
        """The reason with which each process has ended in order."""
        self._dead: dict[str, str] = {}
        """What should run, does not, and is not started again."""
        self._restarts = Restarts()
        self._pids = 0
        self._closed = False
        self._watch = watch
        self.effects = Effects(self._layout)
        # The same `Network` as for real links changes and measures these: only the links, the
        # prober and the way in which time passes are the simulator's own.
        self._connections = SimulatedNetwork(
            layout=self._layout,
            agenda=self._agenda,
            draw=self._stream("network"),
            living=self._end_in,
            profile=profile or NetworkProfile(),
            frame=system.frame if isinstance(system, Framing) else None,
        )
        prober = SimulatedProber(
            self._connections, self._agenda, system.simulated_probe, self._pass
        )
        self._network = Network(
            self._layout,
            self._connections,
            prober,
            lambda slot: self._end_in(slot) is not None,
            wait=prober.wait,
        )
        folder.write_info(info_of(folder.run, subject, "simulated", START_NS))
        self.record(RunStarted(system=system.name, runtime="simulated", seed=subject.seed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(completed=error is None)

    # ------------------------------------------------------------------------- time and events

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def view(self) -> View:
        self._apply()
        return self._view

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """A `slot:port` each."""
        return tuple(f"{name}:{port}" for name, port in self._layout.bootstrap)

    @property
    def names(self) -> Mapping[str, str]:
        """See `Runtime.names`: nothing outside reaches what is simulated."""
        return {}

    @property
    def secrets(self) -> None:
        """See `Runtime.secrets`."""
        return None

    @property
    def steps(self) -> int:
        """How many steps have been made so far: wake-ups, arrivals and the like."""
        return self._agenda.steps

    @property
    def damage(self) -> Sequence[str]:
        return ()

    def now_ns(self) -> int:
        return self._agenda.now_ns

    def advance(self, until: Condition, deadline_ns: int) -> Event | None:
        """See `Runtime.advance`; the condition is evaluated after each step that recorded an event.

        Raises EnvironmentFailed for a process that failed, with its error, until another was
        started in its slot.
        """
        self._apply()
        self._view.check_roles(self._subject.system.name)
        if until.holds(self._view):
            return self._view.last
        agenda = self._agenda
        while True:
            if self._dead:
                raise EnvironmentFailed(next(iter(self._dead.values())))
            due_ns = self._restarts.next_ns(deadline_ns)
            # Time jumps from action to action. If none is due before the limit, it jumps to the
            # limit: a wait of an hour in which nothing happens costs nothing.
            if agenda.due_by(due_ns):
                self._step()
            else:
                agenda.rest_until(due_ns)
                if not (due := self._restarts.due(due_ns)):
                    return None
                for name in due:
                    self.start(self._layout.slot(name))
            # Only a step that recorded something can make a condition true.
            if self._applied < len(self._events):
                self._apply()
                self._view.check_roles(self._subject.system.name)
                if until.holds(self._view):
                    return self._view.last

    def supervise(self) -> None:
        """See `Runtime.supervise`."""
        self._restarts.active = True

    def record(self, body: Struct, cause: Cause | None = None) -> Event:
        return self._record(HARNESS, body, cause)

    def events(self) -> Sequence[Event]:
        """Everything so far, in the order in which it happened."""
        return tuple(self._events)

    # ------------------------------------------------------------------------------- processes

    def start(self, slot: Slot) -> Process:
        """Starts the slot's next process, which has begun when this returns.

        Raises UsageError for a slot that is occupied or is for clients.
        """
        if slot.role == CLIENT:
            raise UsageError(f"{slot.name} is a slot for clients, started by `client`")
        occupant = self.living(slot)
        if occupant is not None:
            raise UsageError(f"{occupant.name} is alive in {slot.name}: it holds one process")
        self.effects.started(slot)
        place = self.place(slot)
        self._starts[slot.name] += 1
        self._dead.pop(slot.name, None)
        self._restarts.started(slot)
        # A machine for each process: the clocks are drawn by the slot's name, so every process of a
        # slot has the same drift and offset, and the random stream by the process's, so a restarted
        # one draws anew.
        machine = self._machine(place.process, slot)
        self._machines[slot.name] = machine
        # Recorded before the program runs, which records in its first step already.
        self._spawned(machine)
        disk = self._disk(slot.name)
        machine.run(self._simulable.simulated_node(place, self._subject.shape, disk, machine))
        return machine.process

    def signal(self, process: Process, what: Signal) -> Receipt:
        """Takes effect at once; an orderly end takes the process's own time."""
        machine = self._found(process)
        if machine is None or not machine.alive:
            return Receipt(False, f"{process.name} is not alive")
        self.effects.signalled(process.slot, what)
        match what:
            case Signal.KILL:
                machine.expected = True
                machine.end()
                self._record_exit(machine, 0, 9)
                return Receipt(not machine.alive, f"{process.name} was ended by {what}")
            case Signal.STOP:
                machine.stop()
                return Receipt(machine.stopped, f"{process.name} is stopped")
            case Signal.CONT:
                machine.go_on()
                return Receipt(not machine.stopped, f"{process.name} goes on")
            case _:
                machine.expected = True
                # A stopped process gets the signal once it goes on, as from a kernel. So the signal
                # has no receipt, and the time in which the process must end does not begin.
                runs = not machine.stopped
                if runs:
                    self.record(ProcessAsked(asked=process.name, signal=what))
                machine.signalled(what)
                how = "was delivered to" if runs else "is pending, for it is stopped:"
                return Receipt(runs, f"{what} {how} {process.name}")

    def lose_power(self, process: Process) -> Receipt:
        """Ends a process together with its machine: its disk loses some of what was never
        synced."""
        receipt = self.signal(process, Signal.KILL)
        if receipt.true:
            slot = process.slot.name
            self.effects.disk(process.slot, Effect.LOSES_UNFLUSHED)
            # A kill loses nothing: what was written is in the kernel. Only with the machine's power
            # goes what was not flushed, and what exactly is drawn.
            self._disk(slot).lose_power(self._stream(f"power/{process.name}").randint)
            return Receipt(True, f"{process.name} ended, and the disk of {slot} lost power")
        return receipt

    def living(self, slot: Slot) -> Process | None:
        machine = self._end_in(slot.name)
        return None if machine is None else machine.process

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        """See `Runtime.copy_disk`."""
        check_at_rest(self, target)
        self.effects.disk(target, Effect.EMPTIES_DISK)
        if source is None:
            # The next process of the slot finds no disk, and so gets a new one, which is empty.
            self._disks.pop(target.name, None)
        else:
            # A copy, since the source's process may go on writing to its own.
            self._disks[target.name] = self._disk(source.name).copy()

    def damage_disk(self, target: Slot, files: str, last_bytes: int) -> Sequence[str]:
        """See `Runtime.damage_disk`."""
        check_at_rest(self, target)
        disk = self._disk(target.name)
        if not isinstance(disk, DamageableDisk):
            raise UsageError(f"the simulated disk of {target.name} cannot be damaged")
        self.effects.disk(target, Effect.DAMAGES_DISK)
        return disk.damage(files, last_bytes)

    def place(self, slot: Slot) -> Place:
        process = f"{slot.name}#{self._starts[slot.name] + 1}"
        return Place(
            run=self._folder.run,
            process=process,
            slot=slot,
            layout=self._layout,
            address=slot.name,
            hosts={other.name: other.name for other in self._layout.slots},
            advertised=slot.name,
            data_dir=self._folder.data_of(slot.name),
            work_dir=self._folder.work_of(process),
            events_path=self._folder.events_of(process),
            seed=self._subject.seed,
        )

    def client(self, spec: ClientSpec) -> SimulatedSession:
        """Starts one of the system's own clients, whichever workload is named.

        Raises UsageError for a malformed name, or a cluster without a slot for clients.
        """
        slot = clients_slot(self._layout, spec)
        name = f"{slot.name}/{spec.name}"
        self._starts[name] += 1
        process = f"{name}#{self._starts[name]}"
        config = WorkerConfig(
            run=self._folder.run,
            process=process,
            events="",
            bootstrap=self.bootstrap,
            hosts={slot.name: slot.name for slot in self._layout.slots},
            client_port=client_port(self._layout),
            options=msgspec.Raw(msgspec.json.encode(spec.options)),
        )
        machine = self._machine(process, slot)
        self._clients[process] = machine
        self._spawned(machine)
        machine.run(self._simulable.simulated_client(config, machine))
        return SimulatedSession(machine, self.signal)

    # ------------------------------------------------------------------------------------ links

    def set_links(self, links: Sequence[Link], state: LinkState) -> Receipt:
        ends = {end for link in links for end in (link.source, link.target)}
        self.effects.set_links(
            links,
            up=state.cut_upstream,
            down=state.cut_downstream,
            slow=bool(state.latency_ms or state.jitter_ms or state.rate_kb),
        )
        return self._on_links(ends, lambda: self._network.set_links(links, state))

    def apply_cut(self, cut: Cut) -> Receipt:
        ends = self._network.ends(cut)
        self.effects.cut(cut)
        return self._on_links(ends, lambda: self._network.apply_cut(cut))

    def lift_cut(self, cut: Cut) -> Receipt:
        return self._on_links(self._network.ends(cut), lambda: self._network.lift_cut(cut))

    def in_use(self, links: Sequence[Link]) -> Receipt:
        return self._network.in_use(links)

    def hold(self, link: Link, what: Hold) -> None:
        self._network.hold(link, what)
        self.effects.held(link)

    def held(self, link: Link) -> HoldCounts:
        return self._network.held(link)

    def release(self, link: Link) -> Receipt:
        return self._network.release(link)

    def heal_links(self) -> Receipt:
        return self._on_links([slot.name for slot in self._layout.slots], self._network.heal)

    # -------------------------------------------------------------------------------------- end

    def close(self, completed: bool = True) -> None:
        """Ends every process and writes the events into the run's folder; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        # Each end is asked for, by `signal`: none counts as a crash.
        for machine in (*self._clients.values(), *self._machines.values()):
            self.signal(machine.process, Signal.KILL)
        why = next(iter(self._dead.values()), "")
        self.record(RunEnded(completed=completed and not why, reason=why))
        self._apply()
        lines: dict[str, list[bytes]] = {}
        encode = self._codec.encode
        for event in self._events:
            # A file for each process, as real processes write them, so that
            # `fencepost.history.merge` reads both in one way.
            lines.setdefault(event.process, []).append(encode(event))
        for process, several in lines.items():
            whole, path = b"".join(several), self._folder.events_of(process)
            with written_to(path, len(whole)):
                path.write_bytes(whole)

    # --------------------------------------------------------------------------------- workings

    def _step(self) -> None:
        # Before the step, in every way that time can pass: a wait may be of days of virtual time.
        check_size(len(self._events), self._most_events, self._agenda.now_ns)
        self._agenda.step()
        if self._watch is not None:
            self._watch(self._nodes())

    def _pass(self, until_ns: int, enough: Callable[[], bool]) -> None:
        """Lets virtual time pass until then, or until `enough` is true; a process that dies does
        not end it."""
        while not enough():
            if not self._agenda.due_by(until_ns):
                self._agenda.rest_until(until_ns)
                return
            self._step()

    def _on_links(self, slots: Collection[str], change: Callable[[], Receipt]) -> Receipt:
        """Changes links while no process at their ends is stopped, as the process runtime does: a
        stopped process answers no probe."""
        machines = (*self._machines.values(), *self._clients.values())
        stopped = [m for m in machines if m.alive and m.stopped and m.slot_name in slots]
        from_ns = self.now_ns()
        for machine in stopped:
            machine.go_on()
        receipt = change()
        for machine in stopped:
            # A process that has ended while it ran stays ended: to be stopped has no effect on it.
            machine.stop()
        resumed = [machine.process for machine in stopped]
        return told(receipt, resumed, (from_ns, self.now_ns()), self.record)

    def _record(self, process: str, body: Struct, cause: Cause | None = None) -> Event:
        # Each process counts its own events; a gap in the numbers would be a lost event.
        number = self._numbers.get(process, 0)
        self._numbers[process] = number + 1
        event = Event(self._run, process, number, self._agenda.now_ns, body, cause=cause)
        self._events.append(event)
        if type(body) is NodeStopped:
            self._stopped[process] = body.reason
        return event

    def _nodes(self) -> Mapping[str, SimulatedProcess]:
        return {m.process.name: m.program for m in self._machines.values() if m.alive}

    def _apply(self) -> None:
        while self._applied < len(self._events):
            event = self._events[self._applied]
            self._applied += 1
            self._view.apply(event)

    def _stream(self, purpose: str) -> Random:
        """A separate stream for each purpose, so that one more draw here changes no other."""
        return Random(f"{self._subject.seed}/{purpose}")

    def _machine(self, process: str, slot: Slot) -> Machine:
        self._pids += 1
        # A stream of its own for each purpose: one draw more in one of them leaves all others as
        # they were.
        skew = self._stream(f"clock/{slot.name}")
        drift_ppb = skew.randint(-MOST_DRIFT_PPB, MOST_DRIFT_PPB)
        if slot.role == CLIENT:
            drift_ppb = 0  # a probe records by the host's own clock when it was sent
        offset_ms = skew.randint(-MOST_OFFSET_MS, MOST_OFFSET_MS)
        clock = Clock(START_NS, drift_ppb, offset_ms)
        # Every port to which a link leads: a simulated node listens on all of them from its start.
        ports = frozenset(k.port for k in self._layout.links if k.target == slot.name)
        return Machine(
            Process(process, slot, self._pids),
            Surroundings(clock, self._stream(process), self._agenda, self._connections, ports),
            record=self._record,
            exited=self._ended,
        )

    def _spawned(self, machine: Machine) -> None:
        process, slot = machine.process, machine.process.slot
        self.record(
            ProcessSpawned(
                started=process.name,
                slot=slot.name,
                role=str(slot.role),
                node_id=slot.node_id,
                pid=process.pid,
            )
        )

    def _ended(self, machine: Machine, code: int, why: str) -> None:
        """A process has ended by itself."""
        process = machine.process
        client = process.slot.role == CLIENT
        machine.expected |= client and code == 0  # a client that ends so is done
        self._record_exit(machine, code, 0, said=why)
        in_order = process.name in self._stopped
        rivalled = self._shares_id(process.slot)
        # As in the process runtime: an end that the process announced, with code 0, or with any
        # where two processes have one id.
        chose = in_order and (code == 0 or rivalled)
        if machine.expected or chose:
            return
        at_ns = self._agenda.now_ns
        if not client and self._restarts.crashed(process.slot, at_ns, rivalled=rivalled):
            return
        why = why or self._stopped.get(process.name, "")
        exit_message = f"{process.name} exited with code {code}, but should be running: {why}"
        exit_message += self._restarts.why_not(process.slot.name)
        if client:
            self._dead[process.name] = exit_message
            self.record(ClientFailed(error=exit_message, fatal=True))
        else:
            self._dead[process.slot.name] = exit_message

    def _shares_id(self, slot: Slot) -> bool:
        """Whether two processes have the id of a node: a system may refuse it to either of them."""
        return slot.duplicate or any(map(self.living, self._layout.rivals(slot)))

    def _record_exit(self, machine: Machine, code: int, signal: int, said: str = "") -> None:
        if machine.stood_ns:
            self.record(Stalled(stalled_ns=machine.stood_ns, of=machine.process.name))
        self.record(
            ProcessExited(
                ended=machine.process.name,
                exit_code=code,
                signal=signal,
                expected=machine.expected,
                said=said,
            )
        )

    def _disk(self, slot: str) -> SimulatedDisk:
        if slot not in self._disks:
            self._disks[slot] = self._simulable.simulated_disk(self._layout.slot(slot))
        return self._disks[slot]

    def _end_in(self, slot: str) -> Machine | None:
        # The newest client first: the slot of clients holds several at once.
        node, clients = self._machines.get(slot), reversed(self._clients.values())
        if node is not None and node.alive:
            return node
        return next((m for m in clients if m.alive and m.slot_name == slot), None)

    def _found(self, process: Process) -> Machine | None:
        machine = self._clients.get(process.name) or self._machines.get(process.slot.name)
        return machine if machine is not None and machine.process == process else None
