"""Replay: a new cluster of the same kind, struck as the record of a run says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import wall_clock
from fencepost.model.systems import Shape, Spare
from fencepost.model.topology import Role
from fencepost.plugins.manager import Plugins
from fencepost.runs import schedule
from fencepost.runs.run import Run, RunResult, RunSpec

TOPIC = "replayed"
"""What the clients work on: the record holds strikes, not what the clients of its run did."""


def replay(
    recorded: RunFolder,
    plugins: Plugins,
    out: Path,
    tell: Callable[[str], None],
    runtime: str | None = None,
) -> RunResult:
    """Runs the schedule of a run against a new cluster, under clients that write and read.

    On the same runtime, unless another is named. Raises UsageError for a folder without a run or a
    schedule; as `Run.start` otherwise.
    """
    info = recorded.info()
    planned = schedule.read(recorded.schedule)
    spares = tuple(Spare(Role(slot.role), slot.node_id) for slot in info.slots if slot.spare)
    shape = Shape(
        info.controllers, info.brokers, info.settings, info.defects, spares, info.combined, info.own
    )
    spec = RunSpec(plugins.system(info.system), shape, runtime or info.runtime, info.seed)
    folder = RunFolder.create_below(out, f"replay-{recorded.run}"[:80], wall_clock())
    with Run.start(spec, plugins, folder, tell) as run:
        topics = sorted({t for s in planned.strikes for t in _topics(s.arguments)} or {TOPIC})
        for topic in topics:
            run.clients.produce(topic)
            run.clients.consume(topic)
        run.enter("strike")
        run.faults.follow(planned)
        return run.finish()


def _topics(arguments: object) -> list[str]:
    """The topics that the selectors among a strike's arguments name (`@leader/orders/0`)."""
    values = arguments.values() if hasattr(arguments, "values") else ()
    return [v.split("/")[1] for v in values if isinstance(v, str) and v.count("/") == 2]
