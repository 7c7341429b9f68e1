"""Makes the same simulated runs again, and shows which of them have another history.

    python tests/bench/histories.py freeze FROZEN     makes the runs, and keeps a digest of each
    python tests/bench/histories.py compare FROZEN    makes them again, and shows which differ

A refactoring of the reference cluster freezes its runs first: random schedules on the healthy
cluster of every plane, a seed each, and one with each defect. Then each seed has the same history
afterwards, byte for byte. Exit code 1: some have not. Nothing is judged: verdicts follow from
histories (`corpus.py` compares those), and take longer than runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from fencepost import FencepostError, Shape, Violation
from fencepost.campaigns.jobs import done, jobs_for
from fencepost.history.run_folder import RunFolder
from fencepost.model.faults.random_faults import Grows
from fencepost.model.runtime import Signal, let_pass_until
from fencepost.model.system.capabilities import HasDefects
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.random_schedule import conduct
from fencepost.runs.run import Run, RunSpec

SYSTEMS = ("reference/quorum", "reference/legacy", "reference/classic")
SPAN_MS = 30_000
ENDS_NS = 10_000_000_000
"""By then every node that was asked to end has ended."""
SEEDS = 200


class Made(Struct, frozen=True):
    """A run, as it can be made again; healthy without a defect."""

    system: str
    seed: int
    defect: str = ""

    @property
    def name(self) -> str:
        return f"{self.system} {self.seed} {self.defect}".rstrip()


def chosen(plugins: Plugins, seeds: int) -> Sequence[Made]:
    """The healthy runs of each plane, and one with each of its defects, a seed after the other."""
    runs = []
    for name in SYSTEMS:
        system = plugins.system(name)
        assert isinstance(system, HasDefects)
        runs += [Made(name, seed) for seed in range(1, seeds + 1)]
        defects = [one.name for one in system.defects() if "simulated" not in one.unseen]
        runs += [Made(name, seed, defect) for seed, defect in enumerate(defects[:seeds], 1)]
    return runs


def digest(made: Made, plugins: Plugins) -> str:
    """A digest of all that the processes of a run wrote: nodes, clients, and the harness."""
    system = plugins.system(made.system)
    shape = Shape(defects=(made.defect,) if made.defect else ())
    if isinstance(system, Grows):
        shape = system.grown(shape)
    spec = RunSpec(system, shape, "simulated", made.seed, lossy=True)
    with tempfile.TemporaryDirectory() as below:
        folder = RunFolder.create(Path(below) / "run")  # its name is in the history
        with suppress(FencepostError, Violation), Run.start(spec, plugins, folder) as run:
            run.clients.load()
            conduct(run, made.seed, SPAN_MS, plugins.faults)
            run.faults.heal_all()
            run.base.await_recovery()
            run.workers.drain()
            run.clients.read_finally()
            for slot in run.runtime.layout.nodes():
                if (process := run.runtime.living(slot)) is not None:
                    run.runtime.signal(process, Signal.TERM)
            let_pass_until(run.runtime, run.runtime.now_ns() + ENDS_NS)
        written = sha256()
        files = sorted(folder.events.iterdir())
        if not files:
            raise SystemExit(f"{made.name} wrote nothing: no run could differ from it")
        for file in files:
            written.update(f"{file.name}\n".encode())
            written.update(file.read_bytes())
        return written.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("freeze", "compare"))
    parser.add_argument("frozen", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of each plane ({SEEDS})")
    parser.add_argument("--jobs", type=int, default=jobs_for("simulated"))
    given = parser.parse_args()
    plugins = load()
    runs = chosen(plugins, given.seeds)
    found = {
        runs[place].name: made
        for place, made in done(lambda one: digest(one, plugins), runs, given.jobs)
    }
    if given.do == "freeze":
        given.frozen.write_text(json.dumps(found, indent=1, sort_keys=True))
        print(f"{len(found)} runs")
        return 0
    frozen = json.loads(given.frozen.read_text())
    differ = [name for name, made in found.items() if frozen.get(name, made) != made]
    for name in differ:
        print(f"another history: {name}")
    unlike = sorted(found.keys() ^ frozen.keys()) if given.seeds == SEEDS else []
    for name in unlike:
        print(f"made {'now' if name in found else 'then'} only: {name}")
    print(f"{len(found.keys() & frozen.keys())} runs, {len(differ)} differ")
    return 1 if differ or unlike else 0


if __name__ == "__main__":
    sys.exit(main())
