"""The conformance kit: checks of a plugin's system, faults, workloads, rules, log parsers and event
kinds.

    from fencepost.testing import kit

    def test_my_kind():
        kit.check_event_kind(LampSwitched, LampSwitched(room="hall", on=True))

    def test_my_system(tmp_path):
        kit.check_system("acme/lamps", tmp_path)

    def test_my_workload(tmp_path):
        with kit.started("acme/lamps", tmp_path, workload="lamp_clients") as run:
            kit.check_workload(run)

Each check raises AssertionError with a sentence that names the fault. A check that takes a run
needs a cluster, which `started` starts. Several checks can share one. The other checks are pure;
`check_system` starts a cluster and makes all checks of a system on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from fencepost.events import ClientFailed, Event, NodeStopped, ProcessExited, kind_name
from fencepost.events.traits import OperationEvent, OperationOutcome
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import MS
from fencepost.model.faults.fault import Fault, Injected, Passing
from fencepost.model.runtime import (
    HEALTHY,
    ClientSpec,
    Condition,
    Receipt,
    Runtime,
    Signal,
    let_pass_until,
)
from fencepost.model.system.capabilities import Probed
from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import Link, Slot
from fencepost.model.view import View
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost.testing.pure_checks import (
    check_event_kind,
    check_fault,
    check_known_finding,
    check_log_parser,
    check_rule,
    findings_of,
)

__all__ = [
    "check_cuts",
    "check_deaths",
    "check_event_kind",
    "check_fault",
    "check_history",
    "check_injection",
    "check_known_finding",
    "check_links",
    "check_log_parser",
    "check_rule",
    "check_starts",
    "check_system",
    "check_workers",
    "check_workload",
    "findings_of",
    "started",
]


@contextmanager
def started(
    system: str,
    out: Path,
    *,
    runtime: str = "process",
    shape: Shape | None = None,
    workload: str = "",
    plugins: Plugins | None = None,
) -> Iterator[Run]:
    """A ready cluster of that system, for the checks that take a run; it ends with the block. Its
    files are below `out`. Without a `workload` it is the system's own.

    Raises UsageError for an unknown system, runtime or workload, EnvironmentFailed when the cluster
    does not become ready.
    """
    loaded = plugins or load()
    spec = RunSpec(loaded.system(system), shape or Shape(), runtime, seed=1, workload=workload)
    with Run.start(spec, loaded, RunFolder.create(out / "kit")) as run:
        yield run


def check_links(run: Run) -> None:
    """Every node is at an end of some link, and a probe is answered through each link between live
    processes: the node listens where the layout says."""
    runtime = run.runtime
    layout = runtime.layout
    for slot in layout.nodes():
        assert any(slot.name in (link.source, link.target) for link in layout.links), (
            f"no link of the layout leads to or from {slot.name}: no fault could cut it off"
        )
    view = runtime.view
    occupied = {view.slot_of[process] for process in view.alive}
    # A healthy link is set to be healthy: that changes nothing, and its receipt is an answered
    # probe.
    for link in layout.links:
        if {link.source, link.target} <= occupied:
            receipt = runtime.set_links([link], HEALTHY)
            assert receipt.true, (
                f"no probe is answered through {_named(link)}: {receipt.evidence}; {_remedy(run)}"
            )


def check_cuts(run: Run) -> None:
    """A node of each role can be cut off from all others in both directions, and the first node in
    either direction alone. Each cut has a receipt. That needs traffic of the node on its links: a
    node that dials others directly, past its links, gets no receipt."""
    names = [node.name for node in run.base.nodes]
    assert len(names) > 1, "the conformance kit needs a cluster of at least two nodes"
    first, *others = names
    for victim in _one_a_role(run, 0):
        _inject(run, "isolate", node=victim.name)
    _inject(run, "cut", sources=first, targets=others)
    _inject(run, "cut", sources=others, targets=first)


def check_deaths(run: Run) -> None:
    """A node of each role is killed, and one is asked to end; each comes back as a new process, and
    the cluster recovers."""
    victims = _one_a_role(run, -1)
    for fault, slot in [*(("kill", slot) for slot in victims), ("terminate", victims[-1])]:
        before = run.runtime.living(slot)
        assert before is not None, f"no process runs in {slot.name}"
        _inject(run, fault, node=slot.name)
        after = run.runtime.living(slot)
        assert after is not None, f"{slot.name} did not come back after {fault}"
        assert after.name != before.name, f"{before.name} outlived {fault}"


def check_injection(run: Run, fault: Fault, *, target_dies: bool = False) -> None:
    """A fault has a receipt, at once or in time, and heals with a receipt. Healing it again does no
    harm, and the cluster recovers.

    With `target_dies` the processes among its targets are killed before it heals: healing then
    raises nothing, and the cluster recovers once all nodes were started again.
    """
    active = run.faults.inject(_HealedTwice(fault, target_dies))
    receipt = active.await_receipt()
    assert receipt.true, f"{fault.name} has no receipt: {receipt.evidence}"
    healed = active.heal()
    assert target_dies or healed.true, f"{fault.name} did not heal: {healed.evidence}"
    for slot in run.runtime.layout.nodes():
        if run.runtime.living(slot) is None:
            assert target_dies, f"{fault.name} healed, and no process runs in {slot.name}"
            run.runtime.start(slot)
    recovery = run.base.await_recovery()
    assert recovery.recovered, (
        f"the cluster does not recover from {fault.name}: {'; '.join(recovery.missing)}"
    )


def check_workload(run: Run, *specs: ClientSpec) -> None:
    """The workers of the run's workload start, complete operations, and end when they are asked to.

    Without `specs` they are those that the workload's own `load` starts. Each records
    `client.started`, work of its own, and `node.stopped`, and exits with code 0. If its events
    record operations, at least one of them is done. Each begins once and ends at most once.
    """
    for spec in specs:
        run.workers.start(spec)
    if not specs:
        run.clients.load()
    workers = [session.process for session in run.workers.running]
    assert workers, (
        f"the workload {run.spec.clients} starts no worker by `load`: give the check a ClientSpec"
    )
    for worker in workers:
        limit_ms = run.base.recovery_bound_ms
        assert run.base.comes_to(_records(worker, "client.started"), limit_ms), (
            f"{worker} does not record client.started: see `run_worker`"
        )
        assert run.base.comes_to(_works(worker), limit_ms), f"{worker} completes no operation"
    run.workers.drain()
    check_workers(workers, run.runtime.events())


def check_workers(workers: Sequence[str], history: Sequence[Event]) -> None:
    """These workers, which were asked to end, ended in order by the events of a history: no
    failure, exit code 0, `node.stopped` last, and operations that begin and end once."""
    for worker in workers:
        _check_end(worker, history)
    _check_operations([event for event in history if event.process in workers])


def check_history(run: Run) -> RunResult:
    """Ends a run and returns its result: it reached its planned end, its history has no gap, the
    cluster has recovered, and every fault has a receipt."""
    result = run.finish()
    assert result.trouble is None, str(result.trouble)
    assert result.end.complete, f"the history has gaps: {result.end.lacks}"
    assert result.recovered is not None
    assert result.recovered.recovered, "; ".join(result.recovered.missing)
    assert not result.missed, f"without a receipt: {'; '.join(result.why_missed())}"
    assert not result.unread, f"not read to the end: {', '.join(result.unread)}"
    return result


def check_starts(run: Run) -> None:
    """Where nodes can be duplicated, each process says that it has started, and as which node."""
    layout, view = run.runtime.layout, run.runtime.view
    if not any(slot.duplicate for slot in layout.slots):
        return
    for slot in layout.nodes():
        process = view.newest.get(slot.name, "")
        known = view.node_of.get(process)
        duplicated = any(one.duplicate for one in layout.rivals(slot))
        assert known is not None or not duplicated, (
            f"{process} has recorded no fencepost.NodeStarted, which the fault duplicate_id needs"
        )
        assert known is None or known[1] == slot.node_id, (
            f"{process} says that it is node {known and known[1]}, not {slot.node_id}"
        )


def check_system(
    name: str,
    out: Path,
    *,
    runtime: str = "process",
    shape: Shape | None = None,
    plugins: Plugins | None = None,
) -> RunResult:
    """A system starts and becomes ready; its workload runs and ends; then, under load, its links
    answer, cuts are measured, nodes are paused, slowed, die and come back; and its history is
    whole. Returns the result of its run.

    Raises UsageError for an unknown system or runtime, EnvironmentFailed when it does not start.
    """
    with started(name, out, runtime=runtime, shape=shape, plugins=plugins) as run:
        check_starts(run)
        check_workload(run)
        run.clients.load()
        check_links(run)
        check_cuts(run)
        nodes = [node.name for node in run.base.nodes]
        _inject(run, "pause", node=nodes[0])
        # All links between nodes, since two nodes that follow a third one may have no connection.
        _inject(run, "slow_link", sources=nodes, targets=nodes, latency_ms=20)
        check_deaths(run)
        return check_history(run)


@final
@dataclass(frozen=True, slots=True)
class _HealedTwice:
    """A fault whose healing is applied twice, after its targets have died if that is asked for."""

    fault: Fault
    target_dies: bool

    @property
    def name(self) -> str:
        return self.fault.name

    def arguments(self) -> Mapping[str, object]:
        return self.fault.arguments()

    def inject(self, runtime: Runtime) -> Injected:
        injected = self.fault.inject(runtime)
        if isinstance(self.fault, Passing) and self.fault.lasts_ms is not None:
            let_pass_until(runtime, runtime.now_ns() + self.fault.lasts_ms * MS)

        def heal() -> Receipt:
            if self.target_dies:
                # A heal has to cope with a target that died meanwhile.
                _kill(runtime, injected.targets)
            # Faults promise that they may be healed twice (`Injected`).
            first, second = injected.heal(), injected.heal()
            return Receipt(
                first.true and second.true, f"{first.evidence}; again: {second.evidence}"
            )

        return replace(injected, heal=heal)


def _kill(runtime: Runtime, targets: Sequence[str]) -> None:
    for slot in runtime.layout.nodes():
        process = runtime.living(slot)
        if process is not None and {process.name, slot.name} & {*targets}:
            runtime.signal(process, Signal.KILL)


def _one_a_role(run: Run, place: int) -> Sequence[Slot]:
    """For each role, its slot at that index; a slot with two roles is named once."""
    layout = run.runtime.layout
    return list(dict.fromkeys(layout.of(role)[place] for role in layout.roles))


def _inject(run: Run, fault: str, **arguments: object) -> None:
    check_injection(run, run.plugins.fault(fault, **arguments))


def _named(link: Link) -> str:
    return f"the link {link}"


def _remedy(run: Run) -> str:
    system = run.spec.system
    if isinstance(system, Probed):
        return f"the probe of {system.name} does not fit this port, or nothing listens there"
    return f"{system.name} has no `probe` (fencepost.Probed), so a line of HTTP was sent"


def _records(process: str, kind: str) -> Condition:
    return Condition(f"{kind} of {process}", lambda view: (process, kind) in view.latest)


def _works(process: str) -> Condition:
    """The process has completed an operation or, if its kinds record no operations, any work."""

    def holds(view: View) -> bool:
        bodies = [e.body for (p, kind), e in view.latest.items() if p == process]
        operations = [body for body in bodies if isinstance(body, OperationEvent)]
        done = any(
            one.outcome is OperationOutcome.OK
            for body in operations
            for one in body.client_operations()
        )
        # More than its first event: a worker whose kinds record no operations has done something.
        return done or (not operations and len(bodies) > 1)

    return Condition(f"{process} to complete an operation", holds)


def _check_end(worker: str, history: Sequence[Event]) -> None:
    ends = [
        event.body
        for event in history
        if isinstance(event.body, ProcessExited) and event.body.ended == worker
    ]
    assert ends, f"{worker} does not end when it is asked to"
    own = [event.body for event in history if event.process == worker]
    failures = [body.error for body in own if isinstance(body, ClientFailed)]
    assert not failures, f"{worker} failed: {'; '.join(failures)}"
    assert (ends[0].exit_code, ends[0].signal) == (0, 0), (
        f"{worker} ends with exit code {ends[0].exit_code} and signal {ends[0].signal}, not 0"
    )
    assert own, f"{worker} has recorded nothing"
    assert isinstance(own[-1], NodeStopped), (
        f"the last event of {worker} is {kind_name(type(own[-1]))}, not node.stopped"
    )


def _check_operations(history: Sequence[Event]) -> None:
    """No name begins twice or ends twice, or ends before it begins. An operation without a name
    cannot be distinguished from others."""
    begun: set[str] = set()
    ended: set[str] = set()
    for event in history:
        body = event.body
        for one in body.client_operations() if isinstance(body, OperationEvent) else ():
            if not one.name:
                continue
            if one.outcome is None:
                assert one.name not in begun, f"two operations are named {one.name}"
                assert one.name not in ended, f"the operation {one.name} ends before it begins"
                begun.add(one.name)
            else:
                assert one.name not in ended, f"the operation {one.name} ends twice"
                ended.add(one.name)
