"""`fencepost replay`: the faults of a recorded run, injected into a new cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.commands.options import DEFAULT_OUT, Count, Defects, Json, Out, Setting, Workload
from fencepost.commands.terminal import (
    load_plugins,
    output,
    print_json,
    print_line,
    print_stalls,
    print_verdicts,
    progress,
)
from fencepost.history.run_folder import RunFolder
from fencepost.model.system.shape import shape_of
from fencepost.runs import replay as replays


def replay(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    runtime: Annotated[str | None, typer.Option(help="By default the run's own.")] = None,
    workload: Workload = "",
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Injects the faults of a recorded run into a new cluster: the same targets and times."""
    plugins = load_plugins()
    result = replays.replay(
        RunFolder(folder.absolute()),
        plugins,
        out=out,
        report=progress(),
        runtime=runtime,
        workload=workload,
        shape=shape_of(count, setting, defects),
    )
    if json:
        verdicts = {c: str(v.verdict) for c, v in result.judgement.verdicts.items()}
        print_json({"path": str(result.folder.path), "verdicts": verdicts})
    else:
        print_verdicts(result.judgement, output())
        print_stalls(result.end)
        print_line(str(result.folder.path))
    result.check()
