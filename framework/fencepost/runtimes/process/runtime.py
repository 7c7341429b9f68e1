"""The runtime of real processes: a run's nodes and clients behind links, on any backend.

    with ProcessRuntime(Subject(system, Shape(), seed=7), RunFolder.create(path)) as runtime:
        for slot in runtime.layout.nodes():
            runtime.start(slot)
        runtime.advance(ready, runtime.now_ns() + 20 * SECOND)

It satisfies `fencepost.model.runtime.Runtime`. The backend is a parameter: with this host as
backend it is the process runtime, with a container engine the docker runtime. Constructing it opens
the backend and starts the toxiproxy of every slot that is to be occupied; a slot's links are there
before its first process. `close` (or leaving the `with`) ends all processes;
`fencepost.history.merge.merge` then makes the one history of the run's folder.

Spawns, ends, and stalls of the harness are recorded here; phases, faults and tests by the caller.
A client worker is started by the command `workloads[spec.workload]` with one more word, the path of
a `fencepost.model.system.worker_config.WorkerConfig` in JSON. Its standard input carries one JSON
object a line; the end of it asks the worker to finish and end.
"""

from __future__ import annotations

import os
import selectors
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self, final

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
    ProcessLeft,
    ProcessSpawned,
    RunEnded,
    RunStarted,
    Stalled,
)
from fencepost.events.words import because
from fencepost.history import merge as history
from fencepost.history.feed import Feed
from fencepost.history.recorder import Recorder
from fencepost.history.run_end import HARNESS
from fencepost.history.run_folder import RunFolder, info_of
from fencepost.injection.network import Network
from fencepost.injection.probes import unanswered_probe
from fencepost.injection.watch import LinkWatch
from fencepost.model.clock import BEAT_S, SECOND, STALL_NS, now_ns
from fencepost.model.disk import if_full
from fencepost.model.errors import EnvironmentFailed, UsageError, no_such
from fencepost.model.faults.effects import Effects
from fencepost.model.faults.handles import Handle
from fencepost.model.faults.hold import Hold, HoldCounts
from fencepost.model.runtime import (
    ORDERLY,
    ClientSpec,
    Condition,
    LinkState,
    Process,
    Receipt,
    Signal,
    check_at_rest,
    clients_slot,
)
from fencepost.model.system.apps import Listener, Parse, Program, bootstrap_of, own_port
from fencepost.model.system.capabilities import (
    Command,
    Launchable,
    LogParser,
    ParsesLogs,
    Place,
    layout_of,
    told_ports,
)
from fencepost.model.system.subject import Subject
from fencepost.model.system.topology import CLIENT, Cut, Layout, Link, Slot
from fencepost.model.view import View
from fencepost.runtimes.process.apps import MOST_LOG_BYTES, Apps
from fencepost.runtimes.process.backend import BackendKind
from fencepost.runtimes.process.host import host_backend
from fencepost.runtimes.process.log_following import ParsedLog, ParsedLogs
from fencepost.runtimes.process.name_service import resolving
from fencepost.runtimes.process.processes import Processes, Tracked, died
from fencepost.runtimes.process.secrets import (
    probe_of_secured,
    secrets_folder,
    write_client_files,
)
from fencepost.runtimes.process.worker_session import WorkerSession, write_worker_config
from fencepost.runtimes.restarts import Restarts
from fencepost.runtimes.resuming import told
from fencepost.supervision.addresses import check_layout
from fencepost.supervision.launcher import Child, Exit, failed_with, last_said


@final
class ProcessRuntime:
    """See the module. For one thread."""

    def __init__(
        self,
        subject: Subject,
        folder: RunFolder,
        *,
        workloads: Mapping[str, Command] | None = None,
        backend: BackendKind | None = None,
    ) -> None:
        """`backend` is where processes run (by default this host).

        Raises UsageError for a system without programs or a bad shape, EnvironmentFailed if
        toxiproxy is missing, a port is taken, or something that the backend needs is missing.
        """
        system = subject.system
        if not isinstance(system, Launchable):
            raise UsageError(f"{system.name} cannot be started as processes")
        self._subject, self._launchable, self._folder = subject, system, folder
        self._workloads = dict(workloads or {})
        self._layout = layout_of(system, subject.shape)
        # Before anything is made: a layout that does not fit would fail in the middle of the start.
        (check_layout if backend is None else backend.check)(self._layout)
        self._codec = Codec(subject.kinds)
        self._view = View(system.folds, self._layout.roles)
        self._pending: deque[Event] = deque()
        self._starts: Counter[str] = Counter()
        self._dead: dict[str, EnvironmentFailed] = {}
        """What should run, does not, and is not started again."""
        self._restarts = Restarts()
        self._may_die: set[str] = set()
        self._clean_exits: set[str] = set()
        self._closed = False
        self._sessions: list[WorkerSession] = []
        self._finish = ExitStack()
        try:
            self._open(backend or host_backend())
        except BaseException:
            self._finish.close()
            raise

    def _open(self, backend: BackendKind) -> None:
        subject, folder, layout, finish = self._subject, self._folder, self._layout, self._finish
        own_events = folder.events_of(HARNESS)
        info = info_of(folder.run, subject, backend.runtime, now_ns(), tools=backend.tools)
        # Written before anything is started: a run that dies while it starts has a folder that says
        # what it was.
        folder.write_info(info)
        # Everything that is opened below is closed in the opposite order, by `finish`.
        self._recorder = Recorder.open(own_events, folder.run, HARNESS, subject.kinds)
        finish.callback(self._recorder.close)
        name = subject.system.name
        self.record(RunStarted(system=name, runtime=backend.runtime, seed=subject.seed))
        # The harness's own events are applied when they are recorded, not when they are read back.
        self._feed = Feed(folder.events, self._codec, own_events)
        finish.callback(self._feed.close)
        self._parsed_logs = ParsedLogs()
        finish.callback(self._parsed_logs.close)
        self._apps = Apps(layout, folder, contained=backend.runtime == "docker")
        self._limits, self._may_restart = backend.limits, backend.restarts
        self._backend = backend.open(layout, folder)
        finish.callback(self._backend.close)
        secrets = secrets_folder(subject, layout, self._backend.addresses)
        self._secrets = finish.enter_context(secrets)
        self._launcher = self._backend.launcher
        self._processes = Processes(self._launcher)
        self.effects = Effects(layout)
        self._links = self._backend.links
        # The toxiproxies start side by side here, and are waited for by `open` when a slot needs
        # its links. A duplicate or a spare may never start, so it has none before it does.
        self._links.begin(slot for slot in layout.slots if not slot.duplicate and not slot.spare)
        self._network = Network(
            layout,
            self._links,
            self._backend.prober(
                subject.system, self._processes.living, probe_of_secured(subject, self._secrets)
            ),
            lambda slot: self._processes.living(slot) is not None,
            unanswered=unanswered_probe(subject.system),
        )
        self._watch = LinkWatch(self._links, self._network.silent, now_ns())
        self._waiting = finish.enter_context(selectors.DefaultSelector())
        # All that can happen has a descriptor: events files that grow, logs that grow, ends of
        # processes.
        self._waiting.register(self._feed.fileno(), selectors.EVENT_READ)
        self._waiting.register(self._parsed_logs.fileno(), selectors.EVENT_READ)
        self._waiting.register(self._launcher.fileno(), selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(completed=kind is None)

    # ------------------------------------------------------------------------- time and events

    @property
    def folder(self) -> RunFolder:
        return self._folder

    @property
    def codec(self) -> Codec:
        """The codec of this run's events, those of plugins included."""
        return self._codec

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def view(self) -> View:
        """The state of the cluster, by all events received so far."""
        if not self._closed:
            self._take_in()
            self._apply_pending()
        return self._view

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """See `Runtime.bootstrap`; the clients' links exist from now on."""
        layout = self._layout
        if clients := layout.of(CLIENT):
            return self._bootstrap(clients[0])
        return tuple(f"{self._advertised(layout.slot(n))}:{port}" for n, port in layout.bootstrap)

    @property
    def names(self) -> Mapping[str, str]:
        """See `Runtime.names`."""
        # Only slots to which clients have a link: there is no address for the others.
        targets = {link.target for link in self._layout.links if link.source in self._clients()}
        return {name: self._advertised(self._layout.slot(name)) for name in sorted(targets)}

    @property
    def secrets(self) -> Path | None:
        """See `Runtime.secrets`."""
        return self._secrets

    def _clients(self) -> Collection[str]:
        return {slot.name for slot in self._layout.of(CLIENT)}

    def _bootstrap(self, client: Slot) -> tuple[str, ...]:
        """Where the clients in a slot connect first; their links exist from now on."""
        self._links.open([client])
        seen, slot = self._backend.addresses.seen, self._layout.slot
        first = bootstrap_of(self._layout, client, told_ports(self._subject.system))
        return tuple(f"{seen(client, slot(name))}:{port}" for name, port in first)

    def _listeners(self, node: Slot) -> tuple[Listener, ...]:
        """Where a node listens for each instance of an app; none for a client."""
        told, seen = told_ports(self._subject.system), self._backend.addresses.seen
        clients = {slot.name: slot for slot in self._layout.instances()}
        own = {own_port(slot, port, told) for slot in clients.values() for port in told}
        return tuple(
            Listener(link.source, link.port, seen(clients[link.source], node))
            for link in self._layout.links
            if link.target == node.name and link.source in clients and link.port in own
        )

    @property
    def lacks(self) -> Mapping[Handle, str]:
        """See `Limited.lacks`."""
        return self._limits.lacks

    def check_links(self, pairs: Sequence[tuple[str, str]]) -> None:
        """See `Limited.check_links`."""
        self._limits.check_links(pairs)

    @property
    def left(self) -> Sequence[str]:
        """See `Limited.left`."""
        return self._backend.left

    @property
    def damage(self) -> Sequence[str]:
        return self._feed.damage

    def now_ns(self) -> int:
        return now_ns()

    def advance(self, until: Condition, deadline_ns: int) -> Event | None:
        """See `Runtime.advance`.

        The error of a process that ended is raised again until another was started in its slot,
        and that of a log parser always: what its log had to tell is never known.
        """
        self._take_in()
        self._apply_pending()
        self._check_parsers()
        self._view.check_roles(self._subject.system.name)
        if until.holds(self._view):
            return self._view.last
        woke_ns = now_ns()
        while True:
            self._check_parsers()
            # Pending events were applied before this: if a condition came true and then a process
            # died, the wait has succeeded. The error is not removed, so each later wait raises it
            # too, until `start` has put another process into the slot.
            if self._dead:
                raise next(iter(self._dead.values()))
            if (left := deadline_ns - now_ns()) <= 0:
                return None
            # A wait ends at the next start that is due, at the deadline, or by an event, whichever
            # is first.
            due_ns = self._restarts.next_ns(deadline_ns)
            woke_ns = self._wait(max(0, min(left, due_ns - now_ns())) / SECOND, woke_ns)
            for name in self._restarts.due(woke_ns):
                self.start(self._layout.slot(name))
            # One event at a time, and no further than the deciding one. What is still pending
            # belongs to the next wait: a condition that is true for one event only must not be
            # passed over.
            while self._pending:
                event = self._pending.popleft()
                self._view.apply(event)
                self._view.check_roles(self._subject.system.name)
                if until.holds(self._view):
                    return event

    def _check_parsers(self) -> None:
        if (failed := self._parsed_logs.failed) is not None:
            raise failed

    def supervise(self) -> None:
        """See `Runtime.supervise`."""
        self._restarts.active = self._may_restart

    def record(self, body: Struct, cause: Cause | None = None) -> Event:
        return self._record(body, cause)

    def events(self) -> Sequence[Event]:
        """Everything recorded so far, read back from the run's folder, in happens-before order."""
        return history.so_far(self._folder, self._codec)

    # ------------------------------------------------------------------------------- processes

    def start(self, slot: Slot) -> Process:
        """Starts the slot's next process; returns before it is ready.

        Raises UsageError for a slot that is occupied or is for clients, EnvironmentFailed when the
        program cannot be started.
        """
        if slot.role == CLIENT and not slot.app:
            raise UsageError(f"{slot.name} is a slot for clients, started by `client`")
        self._take_in()
        occupant = self._processes.living(slot.name)
        if occupant is not None:
            raise UsageError(f"{occupant.name} is alive in {slot.name}: it holds one process")
        app = self._apps.of(slot)
        # No fault says what it did: `fault.injected` takes it from these notes.
        self.effects.started(slot)
        place = self.place(slot)
        if app:
            write_client_files(self._subject, self._secrets, slot.name)
        child = app.child(place, self._bootstrap(slot)) if app else self._node(place)
        # A slot's links exist before its process, which would dial nothing otherwise, and might
        # give up.
        self._links.open([slot])
        self._dead.pop(slot.name, None)
        self._restarts.started(slot)
        self._starts[slot.name] += 1
        process = self._spawn(child, slot)
        system, shape = self._launchable, self._subject.shape
        if app:
            self._record(app.started(process.name))
            self._parse(app.output(process.name), place, child.log, MOST_LOG_BYTES)
        elif isinstance(system, ParsesLogs) and (parser := system.log_parser(slot, shape)):
            self._parse(parser, place, child.log)
        return process

    def install(self, program: Program, parse: Parse) -> None:
        """See `RunsApps.install`."""
        self._apps.install(program, parse)

    def works(self, slot: Slot) -> str:
        """See `RunsApps.works`."""
        app = self._apps.of(slot)
        return app.asked(self.place(slot)) if app else ""

    def _node(self, place: Place) -> Child:
        command = resolving(self._launchable.command(place, self._subject.shape), place)
        return Child(
            place.process,
            command.argv,
            place.work_dir,
            self._folder.log_of(place.process),
            command.environment,
            files=command.files,
            slot=place.slot,
            preload=command.preload,
            inherits=False,
        )

    def _parse(self, parser: LogParser, place: Place, log: Path, most: int = 0) -> None:
        """Makes events of what a process prints; see `ParsedLogs.follow`."""
        events = self._folder.events_of(place.process)
        recorder = Recorder.open(events, self._folder.run, place.process, self._subject.kinds)
        parsed = ParsedLog(parser, recorder, self._subject.system.name, log)
        self._parsed_logs.follow(log, parsed, most)

    def signal(self, process: Process, what: Signal) -> Receipt:
        """See `Processes.signal`; raises UsageError for a signal that a node of somebody else's
        cannot get (`Limited`)."""
        self._limits.check_signal(process.slot.name, what)
        self.effects.signalled(process.slot, what)
        receipt = self._processes.signal(process, what)
        # Only a signal that was delivered: the promise to end in time begins here.
        if receipt.true and what in ORDERLY:
            self._record(ProcessAsked(asked=process.name, signal=what))
        self._take_in()
        return receipt

    def living(self, slot: Slot) -> Process | None:
        self._take_in()
        return self._processes.living(slot.name)

    def copy_disk(self, source: Slot | None, target: Slot) -> None:
        check_at_rest(self, target)
        self._links.open([target])
        self.effects.disk(target, Effect.EMPTIES_DISK)
        self._backend.copy_disk(source, target)

    def damage_disk(self, target: Slot, files: str, last_bytes: int) -> Sequence[str]:
        check_at_rest(self, target)
        self.effects.disk(target, Effect.DAMAGES_DISK)
        return self._backend.damage_disk(target, files, last_bytes)

    def place(self, slot: Slot) -> Place:
        """The place of the slot's next process."""
        process = f"{slot.name}#{self._starts[slot.name] + 1}"
        addresses, home = self._backend.addresses, self._backend.home(slot, process)
        return Place(
            run=self._folder.run,
            process=process,
            slot=slot,
            layout=self._layout,
            address=addresses.own(slot),
            hosts={other.name: addresses.seen(slot, other) for other in self._layout.slots},
            advertised=self._advertised(slot),
            data_dir=home.data_dir,
            work_dir=home.work_dir,
            events_path=home.events_path,
            seed=self._subject.seed,
            image=home.image,
            secrets=self._secrets,
            listeners=self._listeners(slot),
        )

    def client(self, spec: ClientSpec) -> WorkerSession:
        """Starts a client worker; see the module.

        Raises UsageError for an unknown workload, a malformed name, or a cluster without a slot for
        clients; EnvironmentFailed when it cannot be started.
        """
        program = self._workloads.get(spec.workload)
        if program is None:
            raise no_such("workload", spec.workload, self._workloads)
        slot = clients_slot(self._layout, spec)
        name = f"{slot.name}/{spec.name}"
        self._starts[name] += 1
        process = f"{name}#{self._starts[name]}"
        where, bootstrap = (
            (self._folder, self._layout, self._backend.addresses),
            self._bootstrap(slot),
        )
        access = self._subject.shape.security, self._secrets
        config = write_worker_config(*where, process, spec, bootstrap=bootstrap, access=access)
        # Only the worker has the reading end once `theirs` is closed. So a command to a worker that
        # has ended fails at once, and the end of `ours` is the end of its input.
        theirs, ours = os.pipe()
        # A worker that reads no commands must not stop the harness.
        os.set_blocking(ours, False)
        try:
            argv = [*program.argv, os.fspath(config)]
            log = self._folder.log_of(process)
            child = Child(
                process, argv, config.parent, log, stdin=theirs, slot=slot, preload=program.preload
            )
            started = self._spawn(child, slot)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        if spec.may_die:
            self._may_die.add(process)
        session = WorkerSession(started, self._processes, ours)
        self._sessions.append(session)
        return session

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

    def bypassing(self) -> Sequence[str]:
        """See `SeesBypass.bypassing`."""
        return self._network.bypassing()

    def hold(self, link: Link, what: Hold) -> None:
        self._network.hold(link, what)
        self.effects.held(link)

    def held(self, link: Link) -> HoldCounts:
        return self._network.held(link)

    def release(self, link: Link) -> Receipt:
        return self._network.release(link)

    def heal_links(self) -> Receipt:
        return self._on_links({slot.name for slot in self._layout.slots}, self._network.heal)

    # -------------------------------------------------------------------------------------- end

    def close(self, completed: bool = True) -> None:
        """Ends every process that it started, in bounded time; may be called twice.

        The run counts as completed unless `completed` is false, or a process had died that should
        be alive.
        """
        if self._closed:
            return
        self._closed = True
        # The steps of the end, in this order: ends that nobody asked for are taken in; the links
        # are checked while the nodes that use them still run; clients are asked to finish; then
        # everything is killed, and each end from there on is expected. A node that dies while its
        # links are probed has died unexpectedly, and the links have not failed.
        with self._finish:
            try:
                self._take_in()
                self._apply_pending()
                # A run that failed is not checked: the links of dead nodes carry no answer.
                if completed and not self._dead:
                    ready = not self._subject.system.missing(self._view, self._layout)
                    for failed in self._watch.at_end(now_ns(), ready, self._lives):
                        self._record(failed)
                for session in self._sessions:
                    session.stop()
                self._take_in()  # from now on every end is expected
                self._processes.kill_all()
                self._take_in()
                for process in self._processes.adopted():
                    self._record(ProcessLeft(left=process.name))
                self._parsed_logs.close_holes()
                self._apps.mask_kept()
            except EnvironmentFailed:  # the supervisor and every process are gone
                completed = False
            # The last event is recorded also where the supervisor is gone: without `run.ended`, a
            # reader could not tell a run that was cut short from one that goes on.
            why = next(map(str, self._dead.values()), "")
            self._record(RunEnded(completed=completed and not why, reason=why))
            self._apply_pending()

    # --------------------------------------------------------------------------------- workings

    def _record(self, body: Struct, cause: Cause | None = None, at_ns: int | None = None) -> Event:
        event = self._recorder.record(body, cause, at_ns)
        self._pending.append(event)
        return event

    def _apply_pending(self) -> None:
        while self._pending:
            self._view.apply(self._pending.popleft())

    def _wait(self, limit_s: float, since_ns: int) -> int:
        """Waits for events, exits or the next beat, and takes them in; returns the time of the
        wake-up.

        A stall is measured from the last wake-up, wherever in its code the harness stalled.
        """
        wanted_s = min(limit_s, BEAT_S)
        self._waiting.select(wanted_s)
        woke_ns = now_ns()
        # If the harness was woken late, its machine was busy or stood still, and so perhaps did the
        # nodes: bounds in time are judged with this in mind.
        late_ns = woke_ns - since_ns - int(wanted_s * SECOND)
        if late_ns > STALL_NS:
            self._record(Stalled(stalled_ns=late_ns))
        self._take_in()
        for failed in self._watch.check(woke_ns):
            self._record(failed)
        return woke_ns

    def _take_in(self) -> None:
        """Adds new events to the pending ones; a process's end comes after all events that it
        wrote."""
        self._read_feed()
        ends = self._launcher.exits()
        if ends:
            self._read_feed()
            for end in ends:
                self._note_end(end)

    def _read_feed(self) -> None:
        self._parsed_logs.read()  # writes the files that the feed follows
        for event in self._feed.read():
            self._pending.append(event)
            if type(event.body) is NodeStopped:
                self._clean_exits.add(event.process)

    def _note_end(self, end: Exit) -> None:
        # A toxiproxy that was replaced is no longer among them. Any other one ends the run at the
        # next wait.
        if end.name in self._links.processes:
            log = self._folder.log_of(end.name)
            self._dead[end.name] = failed_with(f"{end.name} {end}, but should be running", log)
        tracked = self._processes.ended(end)
        if tracked is None:
            return
        slot = tracked.process.slot
        expected = tracked.expected or _is_done(tracked, end) or self._apps.may_end(slot, end)
        lacked = "" if expected else self._lacked(slot)
        if tracked.stopped:  # it never wakes to say so itself
            stood_ns = max(0, end.at_ns - tracked.stopped_ns)
            self._record(Stalled(stalled_ns=stood_ns, of=end.name), at_ns=end.at_ns)
        self._record(
            ProcessExited(
                ended=end.name,
                exit_code=end.code,
                signal=end.signal,
                expected=expected,
                said="" if expected else self._apps.masked(slot, last_said(tracked.log)),
                lacked=lacked,
            ),
            at_ns=end.at_ns,
        )
        if slot.app:
            # It ends no run, whatever its program does: it is the user's.
            if not expected and self._apps.restarts(slot):
                self._restarts.crashed(slot, end.at_ns)
            return
        if not self._died(tracked, end):
            return
        if slot.role == CLIENT:
            self._record(ClientFailed(error=f"{end.name} {end}", fatal=True))
            # `may_die` excuses a crash of the client's library, which is a signal. An exit code is
            # the worker's own, and means that its program is wrong.
            if end.name not in self._may_die or not end.signal:
                self._dead[end.name] = died(tracked)
        # A machine that lacks space would end the next process as well, so none is started.
        elif lacked or not self._restarts.crashed(slot, end.at_ns, rivalled=self._shares_id(slot)):
            why = f"{self._restarts.why_not(slot.name)}{because(lacked, '; ')}"
            self._dead[slot.name] = died(tracked, why)

    def _lacked(self, slot: Slot) -> str:
        """What a process in this slot lacked of the machine; empty: nothing is known."""
        # A disk may be a mount of its own.
        full = if_full(self._folder.path) or if_full(self._folder.data_of(slot.name))
        return full.removeprefix("; ")

    def _shares_id(self, slot: Slot) -> bool:
        return self._processes.share_id(slot, self._layout.rivals(slot))

    def _lives(self, slot: str) -> bool:
        return self.living(self._layout.slot(slot)) is not None

    def _died(self, tracked: Tracked, end: Exit) -> bool:
        """Whether this end was not asked for, and the process did not end in order."""
        slot, in_order = tracked.process.slot, end.name in self._clean_exits
        # In order: with its own last event (`node.stopped`), and code 0. A process that exits with
        # 0 and without that event counts as one that crashed.
        chose = _is_done(tracked, end) or (end.code == 0 and in_order)
        # Where two processes have one id, a system may refuse it to either, with any code, if it
        # says so.
        refused = in_order and self._shares_id(slot)
        return not (tracked.expected or (end.signal == 0 and (chose or refused)))

    def _spawn(self, child: Child, slot: Slot) -> Process:
        process, at_ns = self._processes.start(child, slot)
        self._record(
            ProcessSpawned(
                started=process.name,
                slot=slot.name,
                role=str(slot.role),
                node_id=slot.node_id,
                pid=process.pid,
            ),
            at_ns=at_ns,
        )
        return process

    def _on_links(self, slots: Collection[str], change: Callable[[], Receipt]) -> Receipt:
        """Changes links while no process at their ends is stopped; then notes which have ended."""
        self._take_in()
        from_ns = now_ns()
        # A stopped node answers no probe, and one that takes no data may hang its peers'
        # toxiproxies.
        with self._processes.resumed(slots) as resumed:
            receipt = change()
        self._take_in()
        return told(receipt, resumed, (from_ns, now_ns()), self._record)

    def _advertised(self, slot: Slot) -> str:
        clients, addresses = self._layout.of(CLIENT), self._backend.addresses
        return addresses.seen(clients[0], slot) if clients else addresses.own(slot)


def _is_done(tracked: Tracked, end: Exit) -> bool:
    """Whether it is a worker that ended by itself, without an error."""
    slot = tracked.process.slot
    return slot.role == CLIENT and not slot.app and end.code == 0 and end.signal == 0
