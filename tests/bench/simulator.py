"""How fast the simulator is, and whether a failover costs more in a large cluster.

    ./dev bench simulator [--json] [--runs N]

Virtual seconds a wall second for 3+3, at rest and under load (two producers of 60 messages a second
over 18 partitions, two consumers), with a batch for each message and with batches of three; then,
with bare controller cores, the wall time of one failover of a broker and one of the controller over
10,000 partitions, a record or message of it, with 10, 100 and 1,000 brokers.

Last, the compiled modules beside the interpreted ones: virtual seconds a second of the processor,
measured in turns, each in a process of its own. `./dev compile` makes them first. Where it cannot,
as without a C compiler, they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - the measurement's own seeded stream
from statistics import median
from uuid import UUID

from report import parse, show, summary

from fencepost import Condition
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost_clusters.reference.assembly import DiskContents, assemble
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node import settings as s
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.policies import Policies
from fencepost_clusters.reference.wire import messages as m

SECOND = 1_000_000_000
BROKERS = (10, 100, 1_000)
PARTITIONS, TOPICS = 10_000, 100
PASSES = {"rest": None, "load": 0, "batches": 50}
"""The passes, each with the linger of its producers in milliseconds; None: without clients."""
GOALS = {"batches": 100, "rest": 1_000, "growth": 1.5}
LEASE_MS = 3_000
ROOT = Path(__file__).parent.parent.parent


def virtual_speed(clock: Callable[[], float]) -> Mapping[str, float]:
    """Virtual seconds a second of this clock, for each of `PASSES`."""
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=1)
    found: dict[str, float] = {}
    for name, linger_ms in PASSES.items():
        with tempfile.TemporaryDirectory() as made:
            found[name] = _virtual_pass(spec, plugins, Path(made) / "run", linger_ms, clock)
    return found


def _virtual_pass(
    spec: RunSpec,
    plugins: Plugins,
    folder: Path,
    linger_ms: int | None,
    clock: Callable[[], float],
) -> float:
    """One pass of a run of its own, at rest for None."""
    with Run.start(spec, plugins, RunFolder.create(folder)) as run:
        if linger_ms is None:
            return _pass(run, 60, clock)
        for topic in ("orders", "payments", "audit"):
            run.clients.create_topic(topic, 6)
        for _ in range(2):
            run.clients.produce("orders", "payments", "audit", rate=60, linger_ms=linger_ms)
            run.clients.consume("orders", "payments", "audit")
        _pass(run, 2, clock)
        return _pass(run, 15, clock)


def _pass(run: Run, virtual_s: int, clock: Callable[[], float]) -> float:
    never = Condition("nothing", lambda view: False)
    began = clock()
    run.runtime.advance(never, run.runtime.now_ns() + virtual_s * SECOND)
    return virtual_s / (clock() - began)


def in_turns(turns: int) -> dict[str, object] | None:
    """The speed of interpreted and of compiled modules, and the median of their ratios; None if
    they cannot be compiled."""
    variables = {"FENCEPOST_VENV": sys.prefix}
    if subprocess.run(
        [ROOT / "dev", "compile"], env=os.environ | variables, check=False
    ).returncode:
        return None
    pairs = [(_turn(""), _turn(str(ROOT / ".compiled"))) for _ in range(turns)]
    return {
        name: {
            "interpreted": summary([one[name] for one, _ in pairs]),
            "compiled": summary([other[name] for _, other in pairs]),
            "ratio": round(median(other[name] / one[name] for one, other in pairs), 2),
        }
        for name in PASSES
    }


def _turn(path: str) -> Mapping[str, float]:
    """`virtual_speed` by the time of the processor, with the packages of this folder."""
    done = subprocess.run(
        [sys.executable, __file__, "--turn"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


class Quorum:
    """One controller that is the whole quorum, and the heartbeats of many brokers."""

    def __init__(self, brokers: int) -> None:
        self.now_ns = SECOND
        self.records = 0
        self.log: list[bytes] = []
        self.settings = s.read(
            {
                "process.roles": "controller",
                "controller.id": "10001",
                "controller.listeners": "CONTROLLER",
                "controller.connect": "10001@controller-1:9093",
                "registration.lease.timeout.ms": str(LEASE_MS),
                "registration.heartbeat.interval.ms": "300",
            }
        )
        self.epochs = dict.fromkeys(range(1, brokers + 1), -1)
        self.core = self.start(DiskContents())
        self.beat_all()
        self.beat_all()
        each = PARTITIONS // TOPICS
        for number in range(TOPICS):
            topic = m.CreatableTopic(
                name=f"topic-{number}", num_partitions=each, replication_factor=3
            )
            self.ask(m.CreateTopicsRequest(topics=(topic,), timeout=10_000))
            self.beat_all()

    def start(self, stored: DiskContents) -> ControllerNode:
        """The process of an active controller, with what is stored."""
        site = Site("controller-1", "controller-1", {"CONTROLLER": 9093}, "controller-1#1")
        now = e.Instant(self.now_ns, 0)
        core = assemble(
            self.settings,
            site,
            stored=stored,
            chance=Random(1).randint,
            policies=Policies(),
            now=now,
        )
        assert isinstance(core, ControllerNode)
        self.core = core
        while not core.active:
            self.now_ns += SECOND // 10
            self.step(e.Tick())
        return core

    def step(self, what: e.Input) -> m.Response | None:
        """One step; the answer that left in it."""
        answer = None
        for effect in self.core.handle(what, e.Instant(self.now_ns, 0)):
            if isinstance(effect, e.Append):
                self.log.append(effect.data)
            elif isinstance(effect, e.Reply):
                answer = effect.message
        return answer

    def ask(self, message: m.Request, client: str = "broker-1#1") -> m.Response | None:
        return self.step(
            e.Received(
                request_id=1, listener="CONTROLLER", client=client, correlation=1, message=message
            )
        )

    def beat(self, broker: int) -> None:
        """One heartbeat of a broker."""
        listeners = (
            m.Listener(name="CLIENT", host="c", port=1),
            m.Listener(name="REPLICATION", host="r", port=2),
        )
        incarnation = UUID(int=broker)
        asked = m.BrokerHeartbeatRequest(
            target_state=3,
            broker_id=broker,
            broker_epoch=self.epochs[broker],
            lease_start_time_ms=0,
            cur_metadata_offset=self.core.log.end - 1,
            listeners=listeners,
            incarnation_id=incarnation,
        )
        answer = self.ask(asked, f"broker-{broker}#1")
        assert isinstance(answer, m.BrokerHeartbeatResponse), answer
        self.epochs[broker] = max(self.epochs[broker], answer.broker_epoch)

    def beat_all(self, but: int = 0) -> int:
        """A heartbeat of every broker but one; how many."""
        self.now_ns += SECOND // 100
        for broker in self.epochs:
            if broker != but:
                self.beat(broker)
        return len(self.epochs) - bool(but)


def failovers(brokers: int) -> tuple[float, float]:
    """Milliseconds a record plus message: of a broker's failover, and of the controller's."""
    quorum = Quorum(brokers)
    victim = 1
    before = quorum.core.log.end
    messages = 0
    began = time.perf_counter()
    for _ in range(4):  # the lease of the victim runs out; the others go on
        quorum.now_ns += LEASE_MS * 1_000_000 // 3
        messages += quorum.beat_all(but=victim)
    of_broker = _per(began, quorum.core.log.end - before + messages)
    stored = DiskContents(metadata=tuple(quorum.log))
    records = quorum.core.log.end
    began = time.perf_counter()
    quorum.start(stored)
    messages = quorum.beat_all(but=victim)
    return of_broker, _per(began, records + messages)


def _per(began: float, count: int) -> float:
    return (time.perf_counter() - began) * 1_000 / count


def growth(figures: Sequence[Sequence[float]]) -> float:
    """The best figure of the largest cluster against the best one of the smallest."""
    return min(figures[-1]) / min(figures[0])


def main() -> None:
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--turn", action="store_true", help="print the speed of this process alone")
    options = parse(__doc__, runs=3, more=more)
    if options.turn:
        print(json.dumps(virtual_speed(time.process_time)))
        return
    speeds = [virtual_speed(time.perf_counter) for _ in range(options.runs)]
    speed = {name: [one[name] for one in speeds] for name in PASSES}
    found = {n: [failovers(n) for _ in range(options.runs)] for n in BROKERS}
    of_broker, of_controller = (
        {n: [pair[at] for pair in pairs] for n, pairs in found.items()} for at in (0, 1)
    )
    grown = {
        "broker": round(growth(list(of_broker.values())), 2),
        "controller": round(growth(list(of_controller.values())), 2),
    }
    show(
        options,
        {
            "bench": "simulator",
            "runs": options.runs,
            "virtual_s_per_s": {name: summary(several) for name, several in speed.items()},
            "partitions": PARTITIONS,
            "broker_failover_ms": {str(n): summary(ms) for n, ms in of_broker.items()},
            "controller_failover_ms": {str(n): summary(ms) for n, ms in of_controller.items()},
            "growth": grown,
            "goals": GOALS,
            "met": max(speed["rest"]) >= GOALS["rest"]
            and max(speed["batches"]) >= GOALS["batches"]
            and max(grown.values()) <= GOALS["growth"],
            "virtual_s_per_cpu_s": in_turns(options.runs),
        },
    )


if __name__ == "__main__":
    main()
