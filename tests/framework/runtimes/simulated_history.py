"""Prints the history of one simulated run: `simulated_history.py SEED FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs import random_schedule
from fencepost.runs.run import Run, RunSpec


def main(seed: int, folder: Path) -> None:
    """A random schedule of ten virtual seconds; its history goes to standard output."""
    plugins = load()
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated", seed=seed, lossy=True)
    with Run.start(spec, plugins, RunFolder.create(folder)) as run:
        run.clients.load()
        random_schedule.conduct(run, seed, 10_000, plugins.faults)
        result = run.finish()
    sys.stdout.buffer.write(result.folder.history.read_bytes())


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
