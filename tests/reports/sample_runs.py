"""Run folders for the tests of reports: written histories, and one of a simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acme_lamps import CLAUSES, RULES, LampSwitched
from msgspec import Struct

import fencepost as f
import fencepost_kafka as k
from fencepost.history.files import write_whole
from fencepost.history.run_folder import RunSlot
from fencepost.reporting import Promises, RunFolder, RunInfo, load
from fencepost.runs.run import Run, RunSpec
from fencepost.testing import HistoryBuilder

SYSTEM, PLANE = "reference/quorum", "quorum"
SLOTS = (
    *(RunSlot(f"controller-{n}", "controller", 100 + n, n, False) for n in (1, 2, 3)),
    *(RunSlot(f"broker-{n}", "broker", n, 3 + n, False) for n in (1, 2, 3)),
)
KINDS: tuple[type[Struct], ...] = (LampSwitched, *k.KINDS)
CODEC = f.Codec(KINDS)


def info(run: str) -> RunInfo:
    return RunInfo(
        run=run,
        system=SYSTEM,
        runtime="simulated",
        seed=1,
        counts={"controller": 3, "broker": 3},
        settings={},
        defects=(),
        slots=SLOTS,
        versions={},
        started_at="2026-01-01T00:00:00Z",
        clock_origin_ns=0,
    )


def write(root: Path, run: str, events: Sequence[f.Event]) -> Path:
    """A run folder with this history and without `verdicts.json`."""
    folder = RunFolder.create(root / run)
    folder.write_info(info(run))
    folder.history.write_bytes(b"".join(CODEC.encode(event) for event in events))
    return folder.path


def ended(history: HistoryBuilder) -> Sequence[f.Event]:
    history.add("harness", f.RunEnded(completed=True))
    return history.events()


def lamps(*switched: tuple[str, bool]) -> HistoryBuilder:
    history = HistoryBuilder("lamps")
    for lamp, on in switched:
        history.add("harness", LampSwitched(lamp, on, "here"))
    return history


def partition(offset: int, leader: int, epoch: int, isr: tuple[int, ...]) -> k.PartitionCommitted:
    """A record of orders-0."""
    return k.PartitionCommitted(
        offset=offset,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        replicas=(1, 2),
    )


def without_an_offset(operation: str, outcome: str, error: str) -> k.ProduceCompleted:
    """A write that was not acknowledged."""
    return k.ProduceCompleted(
        operation=operation,
        topic="orders",
        partition=0,
        acks=-1,
        outcome=outcome,
        offset=-1,
        error=error,
    )


def changed(old: str, new: str, epoch: int, reason: str) -> k.BrokerStateChanged:
    return k.BrokerStateChanged(broker_id=1, old=old, new=new, broker_epoch=epoch, reason=reason)


def committed(offset: int, epoch: int, *, fenced: bool) -> k.BrokerCommitted:
    return k.BrokerCommitted(
        offset=offset, broker_id=1, broker_epoch=epoch, fenced=fenced, incarnation="a"
    )


def fenced() -> HistoryBuilder:
    """A broker is cut off, fenced, replaced as leader, and comes back; clients suffer meanwhile."""
    h = HistoryBuilder("fenced")
    h.add("broker-1#1", f.NodeStarted(role="broker", node_id=1))
    h.add("controller-1#1", k.ControllerElected(epoch=1, log_end=0, last_epoch=0))
    h.add("controller-1#1", committed(1, 10, fenced=False))
    h.add("controller-1#1", partition(2, leader=1, epoch=5, isr=(1, 2)))
    h.add("broker-2#1", partition(2, leader=1, epoch=5, isr=(1, 2)))
    h.add("broker-1#1", changed("FENCED", "ACTIVE", 10, "unfenced"))
    began_ns = h.now_ns
    h.after(5).add(
        "harness",
        f.FaultInjected(
            fault_id="fault-1",
            fault="isolate",
            targets=("broker-1",),
            receipt=True,
            evidence="no answer",
            began_at_ns=began_ns,
        ),
    )
    h.add("clients/p#1", k.ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.add(
        "controller-1#1",
        k.LeaseExpired(
            broker_id=1,
            broker_epoch=10,
            last_heard_ns=0,
            now_ns=3,
            lease_period_ms=3000,
            controller_epoch=1,
        ),
    )
    h.add("broker-1#1", changed("ACTIVE", "FENCED", 10, "lease_expired"))
    h.add("clients/p#1", without_an_offset("op-1", "unknown", "TIMED_OUT"))
    h.add("controller-1#1", committed(3, 10, fenced=True))
    h.add("controller-1#1", partition(4, leader=2, epoch=6, isr=(2,)))
    h.add(
        "broker-1#1",
        k.HeartbeatRefused(
            broker_id=1, broker_epoch=10, error="STALE_BROKER_EPOCH", controller=101
        ),
    )
    h.add(
        "broker-1#1",
        k.HeartbeatRefused(broker_id=1, broker_epoch=10, error="NOT_CONTROLLER", controller=102),
    )
    h.add("harness", f.FaultHealed(fault_id="fault-1", receipt=True, evidence="answered"))
    h.add("controller-1#1", committed(5, 11, fenced=False))
    h.add("controller-1#1", partition(6, leader=2, epoch=7, isr=(1, 2)))
    h.add("broker-1#1", changed("FENCED", "ACTIVE", 11, "unfenced"))
    h.add("clients/p#1", k.ProduceInvoked(operation="op-2", topic="orders", partition=0, acks=-1))
    h.add("clients/p#1", without_an_offset("op-2", "failed", "NOT_LEADER"))
    h.add(
        "harness",
        f.FaultInjected(
            fault_id="fault-2",
            fault="pause",
            targets=("broker-2#1",),
            receipt=False,
            evidence="it still ran",
        ),
    )
    return h


NIGHT = (("a", True), ("b", True), ("a", True), ("b", False), ("c", True), ("a", False))
BROKEN = (("a", True), ("a", False), ("broken", True), ("a", True), ("a", False), ("a", False))


def cut_from_controllers(root: Path, run: str, defects: tuple[str, ...]) -> Path:
    """The folder of a simulated run in which a leader loses its controllers, and clients ask it."""
    plugins = load()
    spec = RunSpec(plugins.system(SYSTEM), f.Shape(defects=defects), "simulated", seed=2)
    with Run.start(spec, plugins, RunFolder.create(root / run)) as started:
        cluster, clients = started.cluster, started.clients
        clients.produce("orders")
        victim = cluster.leader("orders", 0)
        with started.faults.cut_from_controllers(victim):
            cluster.eventually(victim.fenced_by_controller)
            clients.fetch_directly(victim, "orders", 0)
            clients.produce_directly(victim, "orders", 0)
        cluster.eventually(victim.active)
        return started.finish().folder.path


def folders(root: Path) -> dict[str, Path]:
    """The runs of this module: a clean one, odd ones, and one of a broken cluster."""
    made = {
        "night": write(root, "night", ended(lamps(*NIGHT))),
        "broken": write(root, "broken", ended(lamps(*BROKEN))),
        "nameless": write(root, "nameless", ended(lamps(("a", True), ("", True), ("a", False)))),
        "dark": write(root, "dark", ended(lamps())),
        "unended": write(root, "unended", lamps(*NIGHT).events()),
        "many": write(root, "many", ended(lamps(*(((f"l{n}", True)) for n in range(30))))),
        "fenced": write(root, "fenced", ended(fenced())),
        "defect": cut_from_controllers(root, "defect", ("serves-without-lease",)),
    }
    torn = made["torn"] = write(root, "torn", ended(lamps(*NIGHT)))
    lines = RunFolder(torn).history.read_bytes().splitlines(keepends=True)
    lines[2:3] = [b'{"not": "an event"}\n']
    write_whole(RunFolder(torn).history, b"".join(lines) + b'{"run": "cut sho')
    return made


@dataclass(frozen=True)
class Loaded:
    """The part of `Plugins` that a report uses."""

    promises: Promises


def promises() -> Promises:
    """What is installed, and the lamps."""
    plugins = load().promises
    return Promises(
        (*plugins.rules, *RULES),
        {**plugins.clauses, **CLAUSES},
        (*plugins.kinds, LampSwitched),
        plugins.planes,
    )
