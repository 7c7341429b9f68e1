"""How long the reference cluster takes from nothing to ready, beside six bare interpreters.

    ./dev bench start [--json] [--runs N]

A start is 3 controllers and 3 brokers behind their links, until every broker is active. Beside it,
turn by turn, six Python interpreters start at once, import what a node imports, and end. The
difference is our overhead. `ratio` is the median of the turns' start / bare. Processor time varies
least under load.

If there is a container engine with the images (`./dev images`), the same is measured in containers,
and so is a bounce: SIGKILL to a broker until its next process has registered, in containers and as
processes. The difference is the engine's overhead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from report import parse, show, summary

from fencepost import Condition, EnvironmentFailed
from fencepost.model.clock import SECOND
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec, check_runtime, new_folder
from fencepost_kafka import kafka_shape

GOAL_S = 2.0
DOCKER_GOAL_S = 5.0
BOUNCE_GOAL_S = 0.3
NODES = 6
IMPORTS = "import fencepost_clusters.reference.shell.__main__"


def cluster_start(
    out: Path, runtime: str = "process", system: str = "reference/quorum"
) -> tuple[float, float]:
    """Seconds from the first line to a cluster that is ready, and of a broker's bounce in it."""
    plugins = load()
    spec = RunSpec(plugins.system(system), kafka_shape(controllers=3, brokers=3), runtime)
    began = time.perf_counter()
    with Run.start(spec, plugins, new_folder(out, "bench")) as run:
        ready = time.perf_counter() - began
        began = time.perf_counter()
        run.faults.bounce(run.cluster.brokers[0], after_ms=0)
        back = Condition("the next process", lambda view: "broker-1#2" in view.node_of)
        if run.runtime.advance(back, run.runtime.now_ns() + 20 * SECOND) is None:
            raise RuntimeError("the bounced broker did not come back")
        return ready, time.perf_counter() - began


def in_containers(out: Path, runs: int) -> Mapping[str, object]:
    """The figures of the docker runtime, or why there are none."""
    try:
        check_runtime("docker")
        pairs = [
            (cluster_start(out, "docker"), cluster_start(out)) for _ in range(max(1, runs // 2))
        ]
    except EnvironmentFailed as lacking:
        return {"skipped": str(lacking)}
    ready = [docker[0] for docker, _ in pairs]
    over = [docker[1] - process[1] for docker, process in pairs]
    return {
        "ready_s": summary(ready),
        "bounce_s": summary([docker[1] for docker, _ in pairs]),
        "bounce_of_a_process_s": summary([process[1] for _, process in pairs]),
        "bounce_over_s": summary(over),
        "goals_s": {"ready": DOCKER_GOAL_S, "bounce_over": BOUNCE_GOAL_S},
        "met": median(ready) <= DOCKER_GOAL_S and median(over) <= BOUNCE_GOAL_S,
    }


def bare_start() -> tuple[float, float]:
    """Until six interpreters have imported a node's modules: seconds, and of the processor, each.

    Raises CalledProcessError if one of them could not.
    """
    began, before = time.perf_counter(), os.times()
    # In sessions of their own, as nodes are: Linux shares a busy processor out among sessions.
    started = [
        subprocess.Popen([sys.executable, "-c", IMPORTS], start_new_session=True)
        for _ in range(NODES)
    ]
    for process in started:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)
    took, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system
    return took, (cpu - before.children_user - before.children_system) / NODES


def main() -> None:
    options = parse(__doc__, runs=10)
    starts: list[float] = []
    bare: list[float] = []
    cpu: list[float] = []
    with tempfile.TemporaryDirectory() as out:
        for _ in range(options.runs):
            took, each = bare_start()
            bare.append(took)
            cpu.append(each)
            starts.append(cluster_start(Path(out))[0])
        docker = in_containers(Path(out), options.runs)
    show(
        options,
        {
            "bench": "start",
            "runs": options.runs,
            "ready_s": summary(starts),
            "six_bare_interpreters_s": summary(bare),
            "bare_interpreter_cpu_s": summary(cpu),
            "ratio": round(median(s / b for s, b in zip(starts, bare, strict=True)), 2),
            "samples": {
                "ready_s": [round(figure, 3) for figure in starts],
                "six_bare_interpreters_s": [round(figure, 3) for figure in bare],
            },
            "goal_s": GOAL_S,
            "met": summary(starts)["median"] <= GOAL_S,
            "docker": docker,
        },
    )


if __name__ == "__main__":
    main()
