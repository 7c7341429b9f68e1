"""Client workers as the harness sees them: started, sent commands, and waited for.

The harness holds no client object and starts no thread: every call starts a worker or sends it a
command, and lets time pass until an event answers. A workload's facade (`Workload.clients`) gives
its workers an API of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Protocol, final, runtime_checkable

from fencepost.events import ClientFailed, Event, ProcessSpawned, Stalled
from fencepost.model.clock import MS
from fencepost.model.cluster import Cluster
from fencepost.model.runtime import ClientSession, ClientSpec, Condition
from fencepost.model.system.apps import Parse

END_LIMIT_MS = 20_000
"""How long a worker may take to end once it was asked to; longer than the worker's own limits."""


class Clients(Protocol):
    """The interface of a workload's facade, which the fixture `clients` returns."""

    def load(self, selectors: Sequence[str] = ()) -> None:
        """Starts clients that work in the background as long as the run lasts.

        `selectors` are the ones that the run's schedule uses (`@leader/orders/0`): the clients must
        use the partitions, leases or keys that they name.
        """
        ...

    def probe(self, random: Random, victims: Sequence[str]) -> None:
        """Lets a client send requests to a node; `victims` are the slots that faults affect now."""
        ...

    def read_finally(self) -> Sequence[str]:
        """Reads everything, after all faults healed and the clients ended.

        Returns the names of what could not be read to its end.
        """
        ...


@runtime_checkable
class Administers(Protocol):
    """A workload's facade that carries out the administration of a schedule, the `operations` of
    the workload. Each has plain data as its arguments, so a recorded schedule is carried out in the
    same way."""

    @property
    def administering(self) -> bool:
        """Whether an operation is not completed yet."""
        ...

    def concerns(self, operation: str, arguments: Mapping[str, object]) -> Sequence[str]:
        """The names of the slots that an operation concerns now, in order; raises UsageError for an
        operation that does not exist."""
        ...

    def administer(self, operation: str, arguments: Mapping[str, object]) -> None:
        """Has a client begin an operation, behind those that are not completed. Waits for no
        answer; a node that the operation stops has ended on return.

        Raises UsageError for an operation that does not exist, or that has other arguments.
        """
        ...


class MakeClients(Protocol):
    """Makes a workload's facade; `cluster` is the system's facade for tests."""

    def __call__(self, workers: Workers, cluster: object) -> Clients:
        """Makes the facade for one run, whose workers it starts by `workers`."""
        ...


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of clients: `argv`, after the Python interpreter, starts one worker.

    `clients` makes what the fixture `clients` returns; without it tests start workers by
    `workers.start`. `preload` is that of `Command`, for `argv` `("-m", module)`. `operations` are
    the names of what random schedules may have an administrator ask for (`Administers`). `parse`
    makes events of what a program of the user's prints, in the form that the workload publishes.
    """

    argv: tuple[str, ...]
    clients: MakeClients | None = None
    preload: bool = False
    operations: tuple[str, ...] = ()
    parse: Parse | None = None


@final
class Workers:
    """The client workers of one run."""

    def __init__(self, cluster: Cluster, workload: str) -> None:
        self.cluster = cluster
        self.workload = workload
        """The workload of workers that are started by `start_kind`."""
        self._runtime = cluster.runtime
        self._running: list[ClientSession] = []
        self._started: dict[str, int] = {}
        self._operations = 0
        self._silent: list[str] = []

    @property
    def running(self) -> Sequence[ClientSession]:
        """The workers that were started and not yet waited for."""
        return tuple(self._running)

    def start(self, spec: ClientSpec) -> ClientSession:
        """Starts a worker; at the end of the run it is asked to end and waited for.

        Raises UsageError for an unknown workload or a malformed name.
        """
        session = self._runtime.client(spec)
        self._running.append(session)
        return session

    def start_kind(
        self, kind: str, options: Mapping[str, object], may_die: bool = False
    ) -> ClientSession:
        """Starts a worker named `kind-1`, `kind-2`, ... of the run's workload; as `start`."""
        # Named in the order of their starts, so the names are the same in each run of a test.
        self._started[kind] = self._started.get(kind, 0) + 1
        name = f"{kind}-{self._started[kind]}"
        return self.start(ClientSpec(name, self.workload, options, may_die))

    def next_operation(self) -> str:
        """A name for an operation that is unique in the run."""
        self._operations += 1
        return f"op-{self._operations}"

    def command(
        self,
        session: ClientSession,
        command: Mapping[str, object],
        answered: Condition,
        limit_ms: int,
    ) -> None:
        """Sends a worker a command and waits for the answer.

        The worker keeps the limit; END_LIMIT_MS are added for its start, and for a worker that
        hangs. Raises as `Cluster.eventually` does.
        """
        session.tell(command)
        # Longer than the worker's own limit: it reports a time-out itself, which is an answer. Only
        # a worker that hangs exceeds both.
        self.cluster.eventually(answered, limit_ms + END_LIMIT_MS)

    def await_end(self, sessions: Sequence[ClientSession], limit_ms: int = END_LIMIT_MS) -> bool:
        """Waits until each worker has ended; returns whether they ended by themselves.

        A worker that hangs is ended, and its failure is recorded: its library is at fault, and the
        events of the other clients still count.
        """
        names = frozenset(session.process for session in sessions)
        ended = Condition("clients to end", lambda view: names.isdisjoint(view.alive))
        in_time = self._runtime.advance(ended, self._runtime.now_ns() + limit_ms * MS) is not None
        if not in_time:
            for session in sessions:
                # Others of them may have ended in time.
                if session.process in self._runtime.view.alive:
                    self._end_silent(session, limit_ms)
        self._running = [session for session in self._running if session.process not in names]
        return in_time

    def _end_silent(self, session: ClientSession, limit_ms: int) -> None:
        """Ends a worker that did not end when it was asked to. What it waited for since its last
        event proves nothing about the cluster: it may have been stopped, or its library stuck."""
        process = session.process
        # Its start counts as an event, so there is one for a worker that never recorded any.
        last_ns = max(e.at_ns for e in self._runtime.events() if _is_of(e, process))
        why = f"{process} did not end within {limit_ms} ms, and was ended"
        self._runtime.record(ClientFailed(error=why, fatal=True))
        # A stall of its own: what it waited for in vain must accuse nobody.
        self._runtime.record(Stalled(stalled_ns=self._runtime.now_ns() - last_ns, of=process))
        self._silent.append(process)
        session.end()

    @property
    def silent(self) -> Sequence[str]:
        """The processes of workers that were ended since they did not end when asked to."""
        return tuple(self._silent)

    def drain(self) -> None:
        """Asks every worker to end and waits until each has; open operations are unknown."""
        running = tuple(self._running)
        # All are asked first, then all are awaited: their ends take place side by side.
        for session in running:
            session.stop()
        self.await_end(running, END_LIMIT_MS)


def _is_of(event: Event, process: str) -> bool:
    """Whether an event is a process's own, or its start."""
    body = event.body
    return event.process == process or (
        isinstance(body, ProcessSpawned) and body.started == process
    )


@final
class BareClients:
    """The facade of a workload without one."""

    def __init__(self, workers: Workers, cluster: object) -> None:
        self._workers = workers

    def start(self, spec: ClientSpec) -> ClientSession:
        """See `Workers.start`."""
        return self._workers.start(spec)

    def load(self, selectors: Sequence[str] = ()) -> None:
        """Does nothing: the framework does not know what its workers can do."""

    def probe(self, random: Random, victims: Sequence[str]) -> None:
        """Does nothing."""

    def read_finally(self) -> Sequence[str]:
        """Reads nothing and returns no names: the framework does not know what exists."""
        return ()
