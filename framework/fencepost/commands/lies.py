"""`fencepost lies`: false words of a node in a recorded history, and what contradicts them."""

from __future__ import annotations

from pathlib import Path
from random import Random  # noqa: TID251 - seeded here
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from fencepost.campaigns.jobs import jobs_for
from fencepost.campaigns.lies import WITHHELD, Results, Truth, tell
from fencepost.commands.options import DEFAULT_SYSTEM, Jobs, Json, Seed, System
from fencepost.commands.terminal import load_plugins, print_json, print_line, progress
from fencepost.events import Codec
from fencepost.history import merge
from fencepost.history.run_folder import RunFolder
from fencepost.model.errors import EnvironmentFailed
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, new_folder


def lies(
    run: Annotated[
        list[Path] | None,
        typer.Argument(help="Recorded runs; none: random schedules in the simulator."),
    ] = None,
    system: System = DEFAULT_SYSTEM,
    schedules: Annotated[
        int, typer.Option(min=1, help="Random schedules, if no run is given, of 30 s each.")
    ] = 2,
    seed: Seed = 1,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Alters or withholds the events of one node, one field at a time, and judges the history
    again: which words of a node does an independent witness contradict?"""
    loaded = load_plugins()
    with TemporaryDirectory(prefix="fencepost-lies-") as out:
        truths = (
            [_read(RunFolder(path), loaded) for path in run]
            if run
            else [_made(loaded, system, seed + n, Path(out)) for n in range(schedules)]
        )
        results = tell(truths, Random(f"{seed}/lies"), jobs or jobs_for("simulated"), progress())
    if json:
        print_json(results.as_json())
    else:
        _show(results)


def _made(loaded: Plugins, system: str, seed: int, out: Path) -> Truth:
    """The history of a random schedule in the simulator."""
    folder = new_folder(out, f"random-{seed}")
    spec = RunSpec(loaded.system(system), runtime="simulated", seed=seed, lossy=True)
    conducted = run_one(spec, loaded, folder, 30_000, loaded.faults)
    if conducted.result is None:
        raise EnvironmentFailed(conducted.trouble)
    return _read(folder, loaded)


def _read(folder: RunFolder, loaded: Plugins) -> Truth:
    """A recorded history."""
    promises, info = loaded.promises, folder.info()
    reading = merge.read(folder, Codec(promises.kinds))
    events = tuple(reading)
    return Truth(
        events=events,
        end=reading.end,
        plane=promises.plane(info.system),
        nodes=frozenset(slot.name for slot in info.slots if slot.role != "client"),
        promises=promises,
    )


def _show(results: Results) -> None:
    for one in results.fields:
        what = f"{one.kind}.{one.field}" if one.field != WITHHELD else f"{one.kind} withheld"
        by = ", ".join(one.noticed_by) or ("doubted" if one.doubted else "believed")
        print_line(f"{what}: {by}")
    print_line(f"{results.noticed} of {results.of} lies noticed")
