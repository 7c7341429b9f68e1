"""The life of one run; pytest, the command line and the demo all use it.

    with Run.start(spec, plugins, folder) as run:     # start: nodes, links, ready
        run.enter("inject")                            # load, inject: the caller's, by the facades
        run.clients.produce("orders")
        run.faults.kill(run.cluster.leader("orders", 0))
        result = run.finish()                          # heal, drain, read, end; merge and judge
    result.check(marked=("RP-13",))

Phases are start, load, inject, heal, drain, read, end; each is an event. Even after an error, every
fault is healed, every process ended, and the recorded events are merged and judged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, final

from msgspec import Struct

from fencepost.events import ClusterRecovered, Event, PhaseStarted, kind_name
from fencepost.events.run import RunPhase
from fencepost.history.run_end import NEVER_NS, RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.verdicts import Judgement, Outcome, Verdict
from fencepost.model.check import Check
from fencepost.model.clock import MS, wall_clock
from fencepost.model.cluster import Cluster
from fencepost.model.disk import written_to
from fencepost.model.errors import (
    EnvironmentFailed,
    FencepostError,
    Inconclusive,
    UsageError,
    Violation,
    no_such,
)
from fencepost.model.extras import check_extra
from fencepost.model.faults.handles import Limited
from fencepost.model.machine import check_platform
from fencepost.model.runtime import Condition, Receipt, Runtime
from fencepost.model.system.apps import Program
from fencepost.model.system.attachment import Attached
from fencepost.model.system.capabilities import (
    Command,
    Contained,
    Faceted,
    Fetched,
    Launchable,
    Observed,
    StartsInOrder,
    StatesBounds,
    System,
    check_shape,
    layout_of,
)
from fencepost.model.system.shape import Shape
from fencepost.model.system.simulable import Simulable
from fencepost.model.system.subject import Subject
from fencepost.model.system.topology import Slot
from fencepost.model.text import printable
from fencepost.model.versions import named_image
from fencepost.model.view import View
from fencepost.plugins.manager import Plugins
from fencepost.runs.apps import NOT_SIMULATED, Apps
from fencepost.runs.checks import ask
from fencepost.runs.coverage import states_of
from fencepost.runs.disks import supply
from fencepost.runs.faults import Faults
from fencepost.runs.schedule import selecting
from fencepost.workloads.workers import BareClients, Clients, Workers

DAMAGE_NAMED = 3
"""How many unreadable events the error about a cluster that is not ready names."""
START_LIMIT_MS = 60_000
"""How long a cluster may take from its first process until it is ready."""

OnPhase = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to run: a system of a shape, on a runtime, with a seed and a workload's clients.

    Without a `workload` the system's own is used. `lossy`: a simulated network also breaks
    connections at random; a real one is not affected. `programs` are started in the slots of their
    apps once the cluster is ready; a test starts the others (`fencepost.runs.apps`). `checks` are
    asked at the end (`fencepost.model.check`).
    """

    system: System
    shape: Shape = field(default_factory=Shape)
    runtime: str = "process"
    seed: int = 0
    workload: str = ""
    lossy: bool = False
    programs: tuple[Program, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def clients(self) -> str:
        """The name of the workload: the one asked for, or the system's own."""
        return self.workload or self.system.workload

    def fetch(self) -> None:
        """Fetches, or builds, what the nodes run if they run as processes, or in an image that was
        named, unless it is there. That takes minutes, so it is done before anything is measured.
        Raises EnvironmentFailed."""
        if isinstance(self.system, Fetched) and (
            self.runtime == "process" or (self.runtime == "docker" and _only_in_image(self.system))
        ):
            self.system.fetch()


def _subject(spec: RunSpec, plugins: Plugins) -> Subject:
    checks = {one.id: one.says for one in spec.checks}
    return Subject(spec.system, spec.shape, spec.seed, plugins.event_kinds, checks)


def _programs(plugins: Plugins) -> Mapping[str, Command]:
    return {
        name: Command((sys.executable, *one.argv), preload=one.preload)
        for name, one in plugins.workloads.items()
    }


def _process(spec: RunSpec, plugins: Plugins, folder: RunFolder) -> Runtime:
    # Imported only when needed: these imports would cost a tenth of a second in every pytest
    # session in whose environment Fencepost is installed.
    from fencepost.runtimes.process.runtime import ProcessRuntime  # noqa: PLC0415

    return ProcessRuntime(_subject(spec, plugins), folder, workloads=_programs(plugins))


def _simulated(spec: RunSpec, plugins: Plugins, folder: RunFolder) -> Runtime:
    from fencepost.runtimes.simulated.network import LOSSY, NetworkProfile  # noqa: PLC0415
    from fencepost.runtimes.simulated.runtime import SimulatedRuntime  # noqa: PLC0415

    profile = LOSSY if spec.lossy else NetworkProfile()
    return SimulatedRuntime(_subject(spec, plugins), folder, profile=profile)


def _docker(spec: RunSpec, plugins: Plugins, folder: RunFolder) -> Runtime:
    from fencepost.runtimes.docker.host import docker_backend  # noqa: PLC0415
    from fencepost.runtimes.process.runtime import ProcessRuntime  # noqa: PLC0415

    if not isinstance(spec.system, Contained):
        raise UsageError(f"{spec.system.name} has no image: its nodes cannot run in containers")
    return ProcessRuntime(
        _subject(spec, plugins),
        folder,
        workloads=_programs(plugins),
        backend=docker_backend(spec.system.image),
    )


def _attached(spec: RunSpec, plugins: Plugins, folder: RunFolder) -> Runtime:
    from fencepost.runtimes.attached.backend import attached_backend  # noqa: PLC0415
    from fencepost.runtimes.process.runtime import ProcessRuntime  # noqa: PLC0415

    if not isinstance(spec.system, Attached):
        raise UsageError(f"{spec.system.name} is attached to no cluster")
    return ProcessRuntime(
        _subject(spec, plugins),
        folder,
        workloads=_programs(plugins),
        backend=attached_backend(spec.system),
    )


RUNTIMES: Mapping[str, Callable[[RunSpec, Plugins, RunFolder], Runtime]] = {
    "process": _process,
    "simulated": _simulated,
    "docker": _docker,
    "attached": _attached,
}

POWERED = frozenset({"simulated"})
"""The runtimes whose machines can lose power (`Powered`)."""


def check_runtime(name: str) -> None:
    """Raises UsageError, with the nearest right name, for a runtime that does not exist, and
    EnvironmentFailed when this machine lacks what it needs: Linux, toxiproxy or a container
    engine."""
    if name not in RUNTIMES:
        raise no_such("runtime", name, RUNTIMES)
    if name == "simulated":
        return
    check_platform()
    if name == "process":
        from fencepost.injection.toxiproxies import present_toxiproxy  # noqa: PLC0415
        from fencepost.supervision.addresses import check_loopback  # noqa: PLC0415

        present_toxiproxy(os.environ)
        check_loopback()
    if name == "docker":
        check_extra("docker", "the docker runtime")
        from fencepost.runtimes.docker.engine import connect  # noqa: PLC0415

        connect(os.environ).close()


def _only_in_image(system: System) -> bool:
    """Whether what a system runs was named as an image, and is nowhere else."""
    return named_image(system.name.partition("@")[2]) != ""


def runtimes_of(system: System) -> Sequence[str]:
    """The runtimes on which a system can run."""
    programs = isinstance(system, Launchable) and not isinstance(system, Attached)
    able = {
        "process": programs and not _only_in_image(system),
        "simulated": isinstance(system, Simulable),
        "docker": isinstance(system, Contained),
        "attached": isinstance(system, Attached),
    }
    return [name for name in RUNTIMES if able[name]]


def _check_shape(spec: RunSpec) -> None:
    check_shape(spec.system, spec.shape)
    if spec.shape.security and spec.runtime != "process":
        raise UsageError(
            f"the {spec.runtime} runtime keeps no secrets: the security '{spec.shape.security}' "
            "needs the process runtime"
        )


def check_spec(spec: RunSpec) -> None:
    """Raises UsageError for a shape that the system, or a system that the runtime, does not have,
    before anything is started: a command of many runs would take it for a failed start."""
    _check_shape(spec)
    layout = layout_of(spec.system, spec.shape)
    able = runtimes_of(spec.system)
    if spec.runtime not in able:
        runtimes = " and ".join(able)
        raise UsageError(f"{spec.system.name} runs on {runtimes}, and not on {spec.runtime}")
    if spec.runtime == "simulated" and spec.shape.apps:
        raise UsageError(NOT_SIMULATED)
    if spec.runtime in ("process", "docker"):
        from fencepost.supervision.addresses import check_layout  # noqa: PLC0415

        check_layout(layout)


@final
@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run: the verdict of every clause, and the facts that qualify it.

    `missed` has the faults without a receipt by their ids, each with its measurement, `unread`
    names what could not be read to its end, `trouble` is the error that kept the run from its
    planned end.
    """

    folder: RunFolder
    judgement: Judgement
    end: RunEnd
    missed: Mapping[str, Receipt] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    recovered: ClusterRecovered | None = None
    trouble: FencepostError | Violation | None = None
    injected: int = 0
    """How many faults were injected."""
    silent: tuple[str, ...] = ()
    """The client processes that did not end when they were asked to, and had to be ended."""
    killed: tuple[str, ...] = ()
    """The processes of apps that did not end when they were asked to, and were killed."""
    recovery_judged_by: frozenset[str] = frozenset()
    """The clauses that judge whether the cluster recovered (`Clause.judges`)."""

    @property
    def whole(self) -> bool:
        """Whether the run reached its planned end, or an end after which nothing was promised."""
        return self.trouble is None or self._is_excused(self.trouble)

    def remarks(self) -> Sequence[str]:
        """What a run says though nothing failed: the clauses that it violated as known, the apps
        that had to be killed, and that this machine stalled."""
        known = {clause: one.known for clause, one in self.judgement.verdicts.items() if one.known}
        said = [f"{clause} is violated as known: {', '.join(ids)}" for clause, ids in known.items()]
        said += [f"{one} did not end when it was asked to, and was killed" for one in self.killed]
        stalled = self.end.stalled_in_words
        return [*said, stalled] if stalled else said

    def check(self, marked: Sequence[str] = ()) -> None:
        """Returns if no clause was violated and every marked one holds.

        Raises Violation, with the explanation, for a violated clause or a marked clause that was
        not exercised; `trouble`, if there is any; Inconclusive if the evidence decides nothing, or
        a cluster did not recover of which no clause says so; UsageError for a marked clause that no
        loaded rule judges.
        """
        # The order decides which failure is named. A violation is proven by the history, whatever
        # else went wrong, so it comes first; an error that cut the run short comes before what is
        # only lacking.
        if self.judgement.broken:
            raise Violation(explain_violations(self.judgement.verdicts))
        if self.trouble is not None and not self._is_excused(self.trouble):
            raise self.trouble
        # A link failed without a fault: the cluster may not have recovered because of that.
        if self.end.doubtful_from_ns < NEVER_NS:
            self._check_evidence()
        if (stuck := self._stuck()) is not None:
            raise Inconclusive(
                f"the cluster had not recovered {stuck.bound_ms} ms after everything "
                f"healed: {'; '.join(stuck.missing)}"
            )
        self._check_evidence()
        for clause in marked:
            self._check_marked(clause)

    def what_went_wrong(self, before: FencepostError | Violation | None = None) -> str:
        """The failure that is not a violation, in one sentence; empty if there is none. `before` is
        an error from before the end of the run. Once a run was forfeited, no node need run on, and
        the cluster need not recover; but a node that ends without a word has crashed."""
        if (stuck := self._stuck()) is not None:
            return f"not recovered: {'; '.join(stuck.missing)}"
        trouble = before or self.trouble
        return "" if trouble is None or self._is_excused(trouble) else str(trouble)

    def why_missed(self) -> Sequence[str]:
        """Each fault without a receipt: what was measured, and what to look at."""
        return [f"{fault_id} ({one.why_missed})" for fault_id, one in self.missed.items()]

    def _stuck(self) -> ClusterRecovered | None:
        """The recovery that failed, if one was owed still, and no violated clause says so: that one
        may be known, and then fails nothing. It is no verdict: either nobody promised a bound, or
        the clause of that promise excuses it or is undecided."""
        recovered = self.recovered
        if recovered is None or recovered.recovered or self.judgement.forfeited is not None:
            return None
        judged = self.recovery_judged_by.intersection(self.judgement.of(Outcome.VIOLATED))
        return None if judged else recovered

    def _is_excused(self, trouble: FencepostError | Violation) -> bool:
        """Whether it is the end of a node that was promised nothing any more."""
        forfeited = self.judgement.forfeited
        ended = forfeited is not None and bool(forfeited.ended)
        return ended and isinstance(trouble, EnvironmentFailed)

    def _check_evidence(self) -> None:
        # An incomplete history comes first: it makes every other fact doubtful.
        if not self.judgement.whole(self.end):
            raise Inconclusive(f"the history is not complete: {self.end.lacks}")
        if self.silent:
            names = ", ".join(self.silent)
            raise Inconclusive(f"clients that did not answer, and had to be ended: {names}")
        if self.missed:
            raise Inconclusive(f"without a receipt: {'; '.join(self.why_missed())}")
        if self.unread:
            raise Inconclusive(f"not read to the end: {', '.join(self.unread)}")

    def _check_marked(self, clause: str) -> None:
        verdict = self.judgement.verdicts.get(clause)
        if verdict is None:
            raise UsageError(f"no loaded rule judges {clause}")
        match verdict.verdict:
            case Outcome.UNKNOWN:
                raise Inconclusive(f"{clause} is unknown: {verdict.reason}")
            # A test that is marked with a clause says that it exercises it: if not, the test is
            # wrong.
            case Outcome.NOT_EXERCISED:
                raise Violation(f"the test is marked {clause}, which nothing in it exercised")


RECOVERED = kind_name(ClusterRecovered)


def explain_violations(verdicts: Mapping[str, Verdict]) -> str:
    """The violated clauses: each with its sentence, and its first violation explained, which is one
    that is not known, if there is any. Clauses with such a violation come first."""
    lines: list[str] = []
    violated = [(c, v) for c, v in verdicts.items() if v.verdict is Outcome.VIOLATED]
    for new in (True, False):
        for clause, verdict in violated:
            if (verdict.first_new is not None) is not new:
                continue
            first = verdict.first_new or verdict.violations[0]
            lines.append(f"{clause} is violated{_how_often(verdict)}: {verdict.sentence}")
            lines.append(f"  {first.says} ({first.at}, evidence: {first.evidence})")
            lines += (f"  {line}" for line in first.explanation)
    return printable("\n".join(lines))


def _how_often(verdict: Verdict) -> str:
    """How many violations of a clause there were, and which known findings are among them."""
    findings = sorted({one.known for one in verdict.violations if one.known})
    named = ", ".join(findings)
    if findings and verdict.first_new is not None:
        return f" ({verdict.violated} times: {verdict.new} new, the others known as {named})"
    times = f" ({verdict.violated} times)" if verdict.violated > 1 else ""
    return f"{times}, known as {named}" if findings else times


def new_folder(out: Path, label: str) -> RunFolder:
    """A new run folder below `out`, which is made as `out_folder` says.

    Raises EnvironmentFailed if it cannot be made.
    """
    return RunFolder.create_below(out_folder(out), label, wall_clock())


def out_folder(out: Path) -> Path:
    """The folder below which runs are made.

    If `out` is made here, version control ignores it, and runs in it are not shared with a group,
    wherever it is: `mode_below`. A folder that was there before, such as the root of a project,
    keeps its mode and gets no .gitignore: that would hide the user's own new files from git.
    Raises EnvironmentFailed if it cannot be made.
    """
    with written_to(out):
        if not out.exists():
            out.mkdir(parents=True, exist_ok=True)
            out.chmod(out.stat().st_mode & 0o777)
            (out / ".gitignore").write_text("*\n")
    return out


def _prints_nothing(said: Mapping[str, object]) -> Sequence[Struct]:
    """That of a workload without a form of its own."""
    raise UsageError("the workload of this run publishes no form in which a program tells of it")


def _ignore(phase: str) -> None:
    """The default for callers that do not follow the phases."""


@final
class Run:
    """A run between its start and its end; the caller uses it through its facades."""

    def __init__(
        self, runtime: Runtime, spec: RunSpec, plugins: Plugins, folder: RunFolder
    ) -> None:
        system, shape = spec.system, spec.shape
        self.spec = spec
        self.folder = folder
        self.runtime = runtime
        self.base = Cluster(
            runtime,
            lambda view: system.missing(view, runtime.layout),
            system.recovery_bound_ms(shape),
            shape,
            system,
        )
        """The framework's own cluster."""
        self.cluster: object = (
            system.facade(self.base) if isinstance(system, Faceted) else self.base
        )
        """The value of the fixture `cluster`: the system's facade, if it has one."""
        self.workers = Workers(self.base, spec.clients)
        make = plugins.workload(spec.clients).clients or BareClients
        self.clients: Clients = make(self.workers, self.cluster)
        """The value of the fixture `clients`: the workload's facade."""
        self.faults = Faults(
            runtime,
            plugins,
            folder.schedule,
            selecting(system, runtime.layout),
            states=lambda slot, under: states_of(system, slot, runtime.view, runtime.layout, under),
            clients=self.clients,
        )
        parse = plugins.workload(spec.clients).parse or _prints_nothing
        self.apps = Apps(runtime, parse, folder.log_of)
        """The value of the fixture `apps`: the programs of the user's."""
        self.plugins = plugins
        self._on_phase: OnPhase = _ignore

    @classmethod
    def start(
        cls, spec: RunSpec, plugins: Plugins, folder: RunFolder, on_phase: OnPhase = _ignore
    ) -> Self:
        """Starts the cluster and waits until it is ready; enters the phase load.

        Raises UsageError for a bad spec, and at once for a node that starts in a role that no slot
        has; EnvironmentFailed when the cluster does not get ready;
        then no process is left running.
        """
        check_runtime(spec.runtime)
        plugins.workload(spec.clients)
        _check_shape(spec)
        # Not while nodes are waited for: the first start of a release took longer than they may.
        spec.fetch()
        # From here on something may run: every error below ends it.
        runtime = RUNTIMES[spec.runtime](spec, plugins, folder)
        try:
            run = cls(runtime, spec, plugins, folder)
            run._on_phase = on_phase
            run.enter("start")
            if isinstance(spec.system, StatesBounds):
                # Recorded before the first node starts: rules about time need the bounds before
                # anything can be late.
                for body in spec.system.stated(spec.shape):
                    run.record(body)
            run._start_nodes()
            for program in spec.programs:
                run.apps.run(program)
            run.enter("load")
        except BaseException:
            runtime.close(completed=False)
            raise
        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends every process that still runs; the history of a run that was not finished is
        incomplete."""
        # Does nothing after `finish`, which has closed the runtime already.
        self.runtime.close(completed=False)

    def enter(self, phase: RunPhase) -> None:
        """Begins a phase."""
        self.runtime.record(PhaseStarted(phase=phase))
        self._on_phase(phase)

    def record(self, body: Struct) -> Event:
        """Adds an event of the harness, such as a test's beginning."""
        return self.runtime.record(body)

    def finish(self) -> RunResult:
        """Heals, waits for recovery, drains, reads everything, ends, merges and judges.

        Errors on the way are in the result; only an interrupt is raised, after everything was
        ended.
        """
        trouble: FencepostError | Violation | None = None
        unread: Sequence[str] = ()
        recovered: ClusterRecovered | None = None
        try:
            # Each phase needs the one before it: recovery is awaited once nothing acts any more;
            # clients finish what they began once the cluster can answer; and everything is read
            # once nothing is written.
            self.enter("heal")
            self.faults.heal_all()
            # A fault whose injection failed half-way is not among them, and may have left a cut.
            self.runtime.heal_links()
            recovered = self.base.await_recovery()
            self.record(recovered)
            self.apps.check_recovery()
            self.enter("drain")
            self.workers.drain()
            # While apps still work: what they owe may take a moment.
            ask(self.spec.checks, self, self.runtime)
            self.apps.stop()
            self.enter("read")
            unread = self.clients.read_finally()
            self.enter("end")
        # The rest of the phases is left out, but what was recorded is judged all the same.
        except (FencepostError, Violation) as failed:
            trouble = failed
        except BaseException:
            self.runtime.close(completed=False)
            raise
        self.runtime.close(completed=trouble is None)
        if isinstance(self.runtime, Limited) and self.runtime.left:
            left = "; ".join(self.runtime.left)
            # It comes before any other trouble: somebody has to look after it.
            trouble = EnvironmentFailed(f"the attached cluster is not as it was before: {left}")
        # After the end: a disk is read only once no process writes to it. Before the judgement:
        # what the disks have closes gaps of the history.
        supply(_subject(self.spec, self.plugins), self.folder)
        judgement, end = judge_folder(self.folder, self.plugins.promises)
        self.plugins.run_judged(self.folder.path)
        injected = self.faults.injected
        # Now, and not at the injection: a fault may have had its receipt later.
        missed = {a.fault_id: a.receipt for a in injected if not a.receipt.true}
        return RunResult(
            folder=self.folder,
            judgement=judgement,
            end=end,
            missed=missed,
            unread=tuple(unread),
            recovered=recovered,
            trouble=trouble,
            injected=len(injected),
            silent=tuple(self.workers.silent),
            killed=tuple(self.apps.killed),
            recovery_judged_by=frozenset(
                one.id for one in self.plugins.clauses.values() if one.judges == RECOVERED
            ),
        )

    def _start_nodes(self) -> None:
        runtime, system = self.runtime, self.spec.system
        deadline_ns = runtime.now_ns() + START_LIMIT_MS * MS
        # Without duplicates and spares: these are started by faults and tests.
        waiting = runtime.layout.nodes()
        while waiting:
            # One deadline for the whole start: nodes that wait for each other must not add up their
            # limits.
            if runtime.advance(self._one_may_start(waiting), deadline_ns) is None:
                raise self._not_ready()
            for slot in (ready := self._may_start(waiting, runtime.view)):
                runtime.start(slot)
            waiting = tuple(slot for slot in waiting if slot not in ready)
        if isinstance(system, Observed):
            # Before the cluster is ready, since its first events count: those by which authority is
            # gained first.
            for observer in system.observers(self.spec.shape):
                runtime.client(observer)
        if runtime.advance(self.base.recovered, deadline_ns) is None:
            raise self._not_ready()
        # Only from here on is a node that ends by itself started again. One that cannot start says
        # so best by its first end.
        runtime.supervise()

    def _may_start(self, waiting: Sequence[Slot], view: View) -> Sequence[Slot]:
        system, layout = self.spec.system, self.runtime.layout
        if not isinstance(system, StartsInOrder):
            return waiting
        return [slot for slot in waiting if system.may_start(slot, view, layout)]

    def _one_may_start(self, waiting: Sequence[Slot]) -> Condition:
        return Condition("a node that may start", lambda view: bool(self._may_start(waiting, view)))

    def _not_ready(self) -> EnvironmentFailed:
        lacks = list(self.base.missing(self.runtime.view))
        lacks += self.runtime.damage[:DAMAGE_NAMED]
        return EnvironmentFailed(
            f"{self.spec.system.name} was not ready after {START_LIMIT_MS // 1000} s: "
            f"{'; '.join(lacks)} (logs in {self.folder.logs})"
        )
