"""How long the reference cluster takes from nothing to ready, beside six bare interpreters.

    ./dev bench start [--json] [--runs N]

A start is 3 controllers and 3 brokers behind their links, until every broker is active. Beside it,
turn by turn, six Python interpreters start at once and import what a node imports, and do no more:
what is above that is ours to answer for. `ratio` is the median of the turns' start / bare.
The processor time of one interpreter is what a busy machine bends least.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from report import parse, show, summary

from fencepost import Shape
from fencepost.plugin_manager import load
from fencepost.run import Run, RunSpec, new_folder

GOAL_S = 2.0
NODES = 6
IMPORTS = "import fencepost_clusters.reference.shell.__main__"


def cluster_start(out: Path) -> float:
    """Seconds from the first line to a cluster that is ready."""
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), Shape(controllers=3, brokers=3))
    began = time.perf_counter()
    with Run.start(spec, plugins, new_folder(out, "bench")):
        return time.perf_counter() - began


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
            starts.append(cluster_start(Path(out)))
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
        },
    )


if __name__ == "__main__":
    main()
