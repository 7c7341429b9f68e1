"""Replay: a new cluster of the same kind, with the faults that a run has recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fencepost.history.run_folder import RunFolder, RunInfo
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import UsageError, no_such
from fencepost.model.secrets import REDACTED
from fencepost.model.system.capabilities import check_shape, layout_of
from fencepost.model.system.shape import DEFAULT_SHAPE, Shape, Spare
from fencepost.model.versions import in_image
from fencepost.plugins.manager import Plugins
from fencepost.runs import schedule
from fencepost.runs.project import of_project
from fencepost.runs.run import Run, RunResult, RunSpec, new_folder


def read(
    recorded: RunFolder,
    plugins: Plugins,
    *,
    image: str = "",
    runtime: str | None = None,
    workload: str = "",
    shape: Shape = DEFAULT_SHAPE,
) -> tuple[RunSpec, schedule.Schedule]:
    """What to run for a replay, and the schedule of the recorded run. What `shape` leaves open is
    that of the run. `image` is a `SYSTEM=IMAGE` (`in_image`).

    Raises UsageError for a folder without a run or a schedule, or one that no system could have
    recorded.
    """
    info = recorded.info()
    planned = schedule.read(recorded.schedule)
    shape = shape.over(recorded_shape(info))
    system = plugins.system(*in_image([info.system], image))
    check_shape(system, shape)
    laid_out = layout_of(system, replace(shape, spares=())).slots
    roles = {role for slot in laid_out for role in (slot.role, *(role for role, _ in slot.also))}
    # A folder may come from anybody, and a spare's role from it: the system must have such nodes.
    for spare in shape.spares:
        if spare.role not in roles:
            raise no_such("role", spare.role, roles)
    runtime = runtime or info.runtime
    asked = RunSpec(system, shape, runtime, seed=info.seed, workload=workload)
    spec = of_project(asked, Path.cwd())
    for app in shape.apps:
        if app not in {one.name for one in spec.programs}:
            raise UsageError(
                f"this run had the app {app}: give its program by [[tool.fencepost.app]] in the "
                "pyproject.toml of the folder in which it is replayed"
            )
    return spec, planned


def recorded_shape(info: RunInfo) -> Shape:
    """The shape of the cluster that a run had; raises UsageError if it did not record a secret."""
    for name, value in [*info.settings.items(), *(p for o in info.own.values() for p in o.items())]:
        # A cluster with `<redacted>` for a password would fail for that reason, and the replay
        # prove nothing.
        if value == REDACTED:
            raise UsageError(f"the setting {name} of this run is a secret, which it did not record")
    spares = tuple(Spare(slot.role, slot.node_id) for slot in info.slots if slot.spare)
    return Shape(
        counts=info.counts,
        settings=info.settings,
        defects=info.defects,
        spares=spares,
        own=info.own,
        security=info.security,
        apps=info.apps,
    )


def replay(
    recorded: RunFolder,
    plugins: Plugins,
    *,
    out: Path,
    report: Callable[[str], None],
    image: str = "",
    runtime: str | None = None,
    workload: str = "",
    shape: Shape = DEFAULT_SHAPE,
) -> RunResult:
    """Runs the schedule of a run against a new cluster, with clients that write and read.

    It uses the same runtime, the same shape and the system's workload unless others are named.
    Raises UsageError
    for a folder without a run or a schedule; otherwise as `Run.start` does.
    """
    spec, planned = read(
        recorded, plugins, image=image, runtime=runtime, workload=workload, shape=shape
    )
    folder = new_folder(out, f"replay-{recorded.run}"[:80])
    with Run.start(spec, plugins, folder, report) as run:
        run.clients.load(planned.selectors)
        run.enter("inject")
        run.faults.follow(planned)
        return run.finish()


def then_and_now(
    then: Mapping[str, Outcome], now: Sequence[Mapping[str, Outcome]], *, whole: bool = True
) -> Sequence[str]:
    """Which clauses the recorded run violated, and in how many of the replays they are violated,
    decided or not; then those that only replays violate. One line each, or one for none. Of a
    recorded run that is not `whole`, nobody knows what else was violated then."""
    lines = []
    broken = [clause for clause, outcome in then.items() if outcome is Outcome.VIOLATED]
    broken += sorted(
        {c for one in now for c, outcome in one.items() if outcome is Outcome.VIOLATED} - {*broken}
    )
    for clause in broken:
        outcomes = [one.get(clause, Outcome.NOT_EXERCISED) for one in now]
        times = outcomes.count(Outcome.VIOLATED)
        # On real processes a schedule does not repeat a history, so a count says more than one
        # outcome.
        unsure = sum(one not in (Outcome.VIOLATED, Outcome.HOLDS) for one in outcomes)
        open_ = f"; {unsure} decide nothing" if unsure else ""
        was: str = then.get(clause, Outcome.NOT_EXERCISED)
        if not whole and was is not Outcome.VIOLATED:
            was = "not known"
        lines.append(f"{clause}: {was} then, violated in {times} of {len(now)} now{open_}")
    if whole:
        return lines or ["nothing was violated then, and nothing is now"]
    why = "the history of that run is not complete"
    if lines:
        return [*lines, f"what else was violated then is not known: {why}"]
    return [f"what was violated then is not known ({why}), and nothing is now"]
