"""The demo: one cluster struck wherever authority changes hands, twice; the second time with one
protection switched off, which must be found.

The strikes are the same both times and name their targets by what they do just then: the leader of
a partition, the active controller. Between them nothing is awaited by the clock, only by events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from fencepost.events.kinds import FaultStruck
from fencepost.history.run_folder import RunFolder
from fencepost.judging.judge import Outcome
from fencepost.model.clock import now_ns, wall_clock
from fencepost.model.errors import UsageError
from fencepost.model.runtime import Condition
from fencepost.model.systems import Defect, HasDefects, Shape, System
from fencepost.plugins.manager import Plugins
from fencepost.runs.run import Run, RunResult, RunSpec

PLANTED = "serves-without-lease"
PLANTED_CLAUSE = "QC-17"
TOPICS = ("orders", "payments", "audit")
PARTITIONS = 6
WARM = 30
"""How many messages each client has written or read before the first strike."""

Tell = Callable[[str], None]
"""Told, in one line, what is happening now."""


@final
@dataclass(frozen=True, slots=True)
class DemoRun:
    """One of the demo's runs: its defect, if any, what it came to, and its faults' receipts."""

    defect: str | None
    result: RunResult
    receipts: Sequence[FaultStruck]


@final
@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo came to. `planted` are the clauses the planted defect breaks."""

    runs: Sequence[DemoRun]
    planted: Sequence[str]
    page: Path
    elapsed_s: float
    found: Sequence[str] = field(default=())

    @property
    def clean(self) -> bool:
        """Whether the clean run broke and left open nothing, every receipt is true, and the
        planted defect was found."""
        healthy = self.runs[0].result
        verdicts = healthy.judgement
        return (
            not verdicts.of(Outcome.VIOLATED)
            and not verdicts.of(Outcome.UNKNOWN)
            and healthy.trouble is None
            and all(r.receipt for run in self.runs for r in run.receipts)
            and bool(set(self.planted) & set(self.found))
        )

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost demo --json` prints."""
        return {
            "runs": [
                {
                    "path": str(run.result.folder.path),
                    "defect": run.defect,
                    "verdicts": {
                        clause: {
                            "verdict": str(v.verdict),
                            "exercised": v.exercised,
                            "witness": None if v.witness is None else str(v.witness),
                        }
                        for clause, v in run.result.judgement.verdicts.items()
                    },
                    "receipts": [
                        {
                            "fault": r.fault_id,
                            "targets": list(r.targets),
                            "true": r.receipt,
                            "evidence": r.evidence,
                        }
                        for r in run.receipts
                    ],
                }
                for run in self.runs
            ],
            "found": list(self.found),
            "report": str(self.page),
            "elapsed_s": round(self.elapsed_s, 1),
        }


def demo(system: System, plugins: Plugins, out: Path, seed: int, tell: Tell) -> DemoResult:
    """Runs the demo below `out`; raises as `Run.start`, or when no plugin makes the page, and
    UsageError for a system without the defect that is planted."""
    if not any(one.name == PLANTED for one in _defects(system)):
        raise UsageError(f"the demo plants the defect {PLANTED!r}, which {system.name} has not")
    began_ns = now_ns()
    runs: list[DemoRun] = []
    for defect in (None, PLANTED):
        shape = Shape(defects=(defect,) if defect else ())
        label = "demo" if defect is None else f"demo-{defect}"
        tell(f"run {len(runs) + 1} of 2: {'healthy' if defect is None else 'planted ' + defect}")
        folder = RunFolder.create_below(out, label, wall_clock())
        runs.append(_run(RunSpec(system, shape, seed=seed), plugins, folder, defect, tell))
    tell("the Spark job correlates both histories")
    page = plugins.report([run.result.folder.path for run in runs], out)
    found = runs[1].result.judgement.of(Outcome.VIOLATED)
    elapsed_s = (now_ns() - began_ns) / 1e9
    return DemoResult(runs, _breaks(system, PLANTED), page, elapsed_s, found)


def _defects(system: System) -> Sequence[Defect]:
    return system.defects() if isinstance(system, HasDefects) else ()


def _breaks(system: System, defect: str) -> Sequence[str]:
    return next((d.breaks for d in _defects(system) if d.name == defect), (PLANTED_CLAUSE,))


def _run(
    spec: RunSpec, plugins: Plugins, folder: RunFolder, defect: str | None, tell: Tell
) -> DemoRun:
    with Run.start(spec, plugins, folder, lambda phase: tell(f"  {phase}")) as run:
        _load(run)
        run.enter("strike")
        for strike in STRIKES:
            tell(f"    {(strike.__doc__ or '').splitlines()[0]}")
            strike(run)
            run.cluster.eventually(run.cluster.recovered)
        receipts = [e.body for e in run.runtime.events() if isinstance(e.body, FaultStruck)]
        result = run.finish()
    return DemoRun(defect, result, receipts)


def _load(run: Run) -> None:
    """Topics with six partitions, three replicas each; two producers and two consumers."""
    for topic in TOPICS:
        run.clients.create_topic(topic, PARTITIONS)
    writes = [run.clients.produce(*TOPICS, acks="all", rate=60) for _ in range(2)]
    reads = [run.clients.consume(*TOPICS) for _ in range(2)]
    for condition in (
        *(one.acked_at_least(WARM) for one in writes),
        *(one.polled_at_least(WARM) for one in reads),
    ):
        run.cluster.eventually(condition)


# ---------------------------------------------------------------------------------------- strikes


def cut_from_the_controllers_only(run: Run) -> None:
    """a leader is cut off from the controllers, and from nobody else"""
    cluster, clients = run.cluster, run.clients
    victim = cluster.leader("orders", 0)
    with run.faults.cut_from_controllers(victim):
        cluster.eventually(victim.fenced)
        for _ in range(2):
            clients.fetch_directly(victim, "orders", 0)
            clients.produce_directly(victim, "orders", 0, acks=1)
        clients.ask_metadata(victim, "orders")
        cluster.eventually(victim.fenced_by_controller)
    cluster.eventually(victim.active)


def one_way_between_two_brokers(run: Run) -> None:
    """nothing one broker sends reaches another: a follower that hears, and cannot answer"""
    cluster = run.cluster
    leader = cluster.leader("orders", 1)
    follower = cluster.followers("orders", 1)[0]
    with run.faults.cut(follower, leader):
        run.clients.produce_directly(leader, "orders", 1, acks=1)
        run.clients.fetch_directly(leader, "orders", 1)
        cluster.eventually(~follower.in_sync("orders", 1))
    cluster.eventually(follower.in_sync("orders", 1))


def isolated_active_controller(run: Run) -> None:
    """the active controller is isolated; it resigns, another takes over"""
    old = run.cluster.active_controller
    with run.faults.isolate(old):
        run.cluster.eventually(~old.elected)
        run.cluster.eventually(
            run.cluster.another_controller(old), within_ms=run.cluster.timing.recovery_bound_ms
        )


def controllers_apart(run: Run) -> None:
    """the active controller loses its peers, not its brokers: it writes, and cannot commit"""
    old = run.cluster.active_controller
    others = [c for c in run.cluster.controllers if c != old]
    with run.faults.partition(old, others):
        run.clients.create_topic("written-in-vain", 1)


def bounced_within_the_lease(run: Run) -> None:
    """a leader is killed and back before its lease ended"""
    victim = run.cluster.leader("orders", 2)
    run.faults.bounce(victim, after_ms=0)
    run.cluster.eventually(victim.active)


def second_process_with_one_id(run: Run) -> None:
    """a second live process claims a leader's id, on a copy of its disk"""
    cluster, clients = run.cluster, run.clients
    victim = cluster.leader("payments", 0)
    with run.faults.duplicate_id(victim, disk="copy"):
        twin = cluster.node(f"{victim.name}-twin")
        cluster.eventually(twin.active)
        cluster.eventually(victim.fenced)
        cluster.eventually(victim.disowned)
        clients.fetch_directly(victim, "payments", 0)
        clients.produce_directly(victim, "payments", 0, acks=1)


def isolated_leader(run: Run) -> None:
    """a leader is isolated while clients reach it: it stores what nobody will confirm"""
    cluster, clients = run.cluster, run.clients
    old = cluster.leader("audit", 0)
    with run.faults.isolate(old):
        for _ in range(3):
            clients.produce_directly(old, "audit", 0, acks=1)
        cluster.eventually(old.fenced_by_controller)
        new = cluster.leader("audit", 0)
        clients.produce_directly(new, "audit", 0, acks="all")
    cluster.eventually(old.in_sync("audit", 0))
    clients.produce_directly(old, "audit", 0, acks=1)


def cannot_store_a_smaller_isr(run: Run) -> None:
    """a leader loses a follower, and the controllers that would let it drop it"""
    cluster = run.cluster
    leader = cluster.leader("orders", 3)
    follower = cluster.followers("orders", 3)[0]
    with run.faults.cut_from_controllers(leader), run.faults.partition(leader, follower):
        cluster.eventually(leader.fenced_by_controller)


def started_out_of_reach(run: Run) -> None:
    """a broker starts and reaches no controller: it serves nobody"""
    cluster, clients = run.cluster, run.clients
    victim = cluster.leader("orders", 4)
    with run.faults.cut_from_controllers(victim):
        run.faults.bounce(victim, after_ms=0)
        cluster.eventually(
            Condition(f"{victim} to start", lambda view: victim.process(view) in view.node_of)
        )
        for _ in range(3):
            clients.fetch_directly(victim, "orders", 4)
            clients.ask_metadata(victim, "orders")


def shut_down_in_order(run: Run) -> None:
    """a leader is asked to shut down: its leaderships go first"""
    victim = run.cluster.leader("orders", 5)
    with run.faults.terminate(victim):
        pass
    run.cluster.eventually(victim.active)


STRIKES: Sequence[Callable[[Run], None]] = (
    cut_from_the_controllers_only,
    one_way_between_two_brokers,
    isolated_active_controller,
    bounced_within_the_lease,
    second_process_with_one_id,
    controllers_apart,
    isolated_leader,
    cannot_store_a_smaller_isr,
    started_out_of_reach,
    shut_down_in_order,
)
