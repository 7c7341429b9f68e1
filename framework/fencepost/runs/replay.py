"""Replay: a new cluster of the same kind, with the faults that a run has recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fencepost.history.run_folder import RunFolder
from fencepost.model.system.shape import Shape, Spare
from fencepost.plugins.manager import Plugins
from fencepost.runs import schedule
from fencepost.runs.run import Run, RunResult, RunSpec, new_folder


def replay(
    recorded: RunFolder,
    plugins: Plugins,
    *,
    out: Path,
    report: Callable[[str], None],
    runtime: str | None = None,
    workload: str = "",
) -> RunResult:
    """Runs the schedule of a run against a new cluster, with clients that write and read.

    It uses the same runtime and the system's workload unless others are named. Raises UsageError
    for a folder without a run or a schedule; otherwise as `Run.start` does.
    """
    info = recorded.info()
    planned = schedule.read(recorded.schedule)
    spares = tuple(Spare(slot.role, slot.node_id) for slot in info.slots if slot.spare)
    shape = Shape(info.counts, info.settings, info.defects, spares, info.own)
    spec = RunSpec(plugins.system(info.system), shape, runtime or info.runtime, info.seed, workload)
    folder = new_folder(out, f"replay-{recorded.run}"[:80])
    with Run.start(spec, plugins, folder, report) as run:
        run.clients.load(planned.selectors)
        run.enter("inject")
        run.faults.follow(planned)
        return run.finish()
