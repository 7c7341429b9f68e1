"""How long the reference cluster takes from nothing to ready, beside six bare interpreters.

    ./dev bench start [--json] [--runs N]

A start is 3 controllers and 3 brokers behind their links, until every broker is active. Beside it,
turn by turn, six Python interpreters start at once and import what a node imports, and do no more:
what is above that is ours to answer for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def bare_start() -> float:
    """Seconds until six interpreters have imported a node's modules."""
    began = time.perf_counter()
    started = [subprocess.Popen([sys.executable, "-c", IMPORTS]) for _ in range(NODES)]
    for process in started:
        process.wait()
    return time.perf_counter() - began


def main() -> None:
    options = parse(__doc__, runs=10)
    starts, bare = [], []
    with tempfile.TemporaryDirectory() as out:
        for _ in range(options.runs):
            bare.append(bare_start())
            starts.append(cluster_start(Path(out)))
    show(
        options,
        {
            "bench": "start",
            "runs": options.runs,
            "ready_s": summary(starts),
            "six_bare_interpreters_s": summary(bare),
            "goal_s": GOAL_S,
            "met": summary(starts)["median"] <= GOAL_S,
        },
    )


if __name__ == "__main__":
    main()
