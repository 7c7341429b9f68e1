"""The apps of a run as a test sees them: programs of the user's own, started and awaited.

    @pytest.fixture
    def fencepost_shape():
        return Shape(apps={"billing": 2})

    def test_it_survives_a_cut(apps, faults):
        billing = apps.start("billing", ["java", "-jar", "billing.jar", "{bootstrap}"],
                             ready=Ready(line="started"))
        with faults.partition(billing[0].name, "node-1"):
            ...

Each instance has a slot (`billing-1`), and is a target of every fault. At the end of a run, once
everything has healed, each is asked whether it works again (`Program.works_again_ms`); the checks
are asked; then all are asked to end by SIGTERM, and killed if they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import final

from fencepost.events import AppReady, AppWorksAgain, kind_name
from fencepost.model.clock import MS
from fencepost.model.cluster import Node
from fencepost.model.errors import EnvironmentFailed, UsageError, no_such
from fencepost.model.runtime import Condition, RunsApps, Runtime, Signal, let_pass_until
from fencepost.model.secrets import masked
from fencepost.model.system.apps import READY_MS, Parse, Program, Ready, secrets_of
from fencepost.model.system.topology import Slot
from fencepost.supervision.launcher import failed_with

NOT_SIMULATED = "apps are programs: they run on process and docker, and not on simulated"
_BETWEEN_MS = 100
"""How long is waited before a port or a URL is asked once more."""
END_LIMIT_MS = 20_000
"""How long an instance may take to end once it was asked to; then it is killed."""


@final
class Apps:
    """Starts the programs of one run, and ends them."""

    def __init__(self, runtime: Runtime, parse: Parse, logs: Callable[[str], Path]) -> None:
        """`parse` makes events of the JSON objects that programs print: the workload's; `logs` is
        the log of a process."""
        self._runtime = runtime
        self._logs = logs
        self._parse = parse
        self._programs: dict[str, Program] = {}
        self.killed: list[str] = []
        """The processes that did not end when they were asked to."""

    def start(
        self,
        name: str,
        argv: Sequence[str | PathLike[str]] = (),
        *,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        folder: str | PathLike[str] = "",
        ready: Ready | None = None,
        ready_ms: int = READY_MS,
        works_again_ms: int = 0,
        may_end: bool = False,
        restarts: bool = True,
        secrets: Sequence[str] = (),
        image: str = "",
        struck: bool = False,
    ) -> tuple[Node, ...]:
        """Starts every instance of an app, and returns once all are ready; see `Program`.

        Raises UsageError for an app that `Shape.apps` does not name, or a program that is none, and
        EnvironmentFailed for one that cannot be started, ends, or is not ready in time.
        """
        return self.run(
            Program(
                name=name,
                argv=tuple(fspath(word) for word in argv),
                environment=dict(environment or {}),
                files=dict(files or {}),
                folder=fspath(folder),
                ready=ready,
                ready_ms=ready_ms,
                works_again_ms=works_again_ms,
                may_end=may_end,
                restarts=restarts,
                secrets=tuple(secrets),
                image=image,
                struck=struck,
            ),
        )

    def run(self, program: Program) -> tuple[Node, ...]:
        """As `start`, for a whole program."""
        runtime = _running(self._runtime)
        runtime.install(program, self._parse)
        slots = self._runtime.layout.instances(program.name)
        self._programs[program.name] = program
        for slot in slots:
            self._runtime.start(slot)
        deadline_ns = self._runtime.now_ns() + program.ready_ms * MS
        try:
            for slot in slots:
                self._await_ready(slot, program, deadline_ns)
        except EnvironmentFailed:
            # It would be started again and again, and say the same.
            for process in filter(None, map(self._runtime.living, slots)):
                self._runtime.signal(process, Signal.KILL)
            raise
        return tuple(map(Node, slots))

    def __getitem__(self, slot: str) -> Node:
        """The instance in the slot of that name; raises UsageError with the nearest right one."""
        slots = {one.name: one for one in self._runtime.layout.instances()}
        if slot not in slots:
            raise no_such("slot of an app", slot, slots)
        return Node(slots[slot])

    def check_recovery(self) -> None:
        """Asks each instance whether it works again, within its bound from now on; records it."""
        began_ns = self._runtime.now_ns()
        for app, program in self._programs.items():
            bound_ns = program.works_again_ms * MS
            for slot in self._runtime.layout.instances(app) if bound_ns else ():
                why = self._asked(slot, began_ns + bound_ns)
                self._runtime.record(
                    AppWorksAgain(
                        app=app,
                        slot=slot.name,
                        works=not why,
                        took_ms=(self._runtime.now_ns() - began_ns) // MS,
                        bound_ms=program.works_again_ms,
                        why=why,
                    )
                )

    def stop(self, name: str = "") -> None:
        """Asks the instances of an app, or of all, to end by SIGTERM, and waits; one that does not
        end within 20 s is killed, and the run says so."""
        runtime = self._runtime
        living = [p for slot in runtime.layout.instances(name) if (p := runtime.living(slot))]
        for process in living:
            runtime.signal(process, Signal.TERM)
        names = frozenset(process.name for process in living)
        ended = Condition("the apps to end", lambda view: names.isdisjoint(view.alive))
        if runtime.advance(ended, runtime.now_ns() + END_LIMIT_MS * MS) is not None:
            return
        for process in living:
            if process.name in runtime.view.alive:
                self.killed.append(process.name)
                runtime.signal(process, Signal.KILL)

    # --------------------------------------------------------------------------------- workings

    def _await_ready(self, slot: Slot, program: Program, deadline_ns: int) -> None:
        """Lets time pass until the instance is ready, once; raises EnvironmentFailed."""
        ready, process = program.ready, self._runtime.view.newest[slot.name]
        if ready is None:
            return
        kind = kind_name(AppReady)
        printed = Condition("its line", lambda view: (process, kind) in view.latest)
        ended = Condition("its end", lambda view: process not in view.alive)
        why = "it printed no such line"
        while not printed.holds(self._runtime.view):
            if ended.holds(self._runtime.view):
                raise self._failed(process, "ended before it was ready", program)
            now_ns = self._runtime.now_ns()
            if not ready.line:
                why = _running(self._runtime).works(slot)
                if not why:
                    self._runtime.record(AppReady(ready=process))
                    return
            if now_ns >= deadline_ns:
                late = f"was not ready within {program.ready_ms} ms: {why}"
                raise self._failed(process, late, program)
            step_ns = deadline_ns if ready.line else min(deadline_ns, now_ns + _BETWEEN_MS * MS)
            self._runtime.advance(printed | ended, step_ns)

    def _failed(self, process: str, how: str, program: Program) -> EnvironmentFailed:
        error = failed_with(f"{process} {how}", self._logs(process))
        secrets = secrets_of(program)
        return EnvironmentFailed(
            masked(str(error), secrets), masked(error.detail, secrets), error.log
        )

    def _asked(self, slot: Slot, deadline_ns: int) -> str:
        """Asks the instance until it is ready or the time is over; why it is not, or empty."""
        while why := _running(self._runtime).works(slot):
            now_ns = self._runtime.now_ns()
            if now_ns >= deadline_ns:
                return why
            let_pass_until(self._runtime, min(deadline_ns, now_ns + _BETWEEN_MS * MS))
        return ""


def _running(runtime: Runtime) -> RunsApps:
    if not isinstance(runtime, RunsApps):
        raise UsageError(NOT_SIMULATED)
    return runtime
