"""`fencepost replay`: the faults of a recorded run, injected into a new cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fencepost.campaigns import endings
from fencepost.commands.options import (
    DEFAULT_OUT,
    Count,
    Defects,
    Image,
    Json,
    Out,
    Security,
    Setting,
    Workload,
)
from fencepost.commands.terminal import (
    load_plugins,
    output,
    print_json,
    print_line,
    print_stalls,
    print_verdicts,
    progress,
)
from fencepost.history.run_folder import RunFolder, system_of
from fencepost.judging.folder import judge_folder
from fencepost.judging.verdicts import Outcome
from fencepost.model.errors import EXIT_CLEAN, FencepostError, Inconclusive, Violation
from fencepost.model.system.shape import shape_of
from fencepost.plugins.manager import Plugins
from fencepost.runs import replay as replays
from fencepost.runs.run import RunResult


def replay(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    runtime: Annotated[str | None, typer.Option(help="By default the run's own.")] = None,
    image: Image = "",
    workload: Workload = "",
    count: Count = None,
    setting: Setting = None,
    defects: Defects = None,
    security: Security = "",
    times: Annotated[int, typer.Option(min=1, help="How often, each time in a new cluster.")] = 1,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Injects the faults of a recorded run into a new cluster: the same targets and times. Says
    what was violated then, and what is now."""
    recorded = RunFolder(folder.absolute())
    plugins = load_plugins(system_of([str(recorded.path)]))
    results: list[RunResult] = []
    failure: FencepostError | Violation | None = None
    try:
        for _ in range(times):
            results.append(
                replays.replay(
                    recorded,
                    plugins,
                    out=out,
                    report=progress(),
                    image=image,
                    runtime=runtime,
                    workload=workload,
                    shape=shape_of(count, setting, defects, security),
                )
            )
            if times > 1 and not json:
                broken = ", ".join(results[-1].judgement.of(Outcome.VIOLATED)) or "nothing"
                print_line(
                    f"{len(results)} of {times}: {broken} violated, {results[-1].folder.path}"
                )
    finally:  # an error or an interrupt, too
        if results:
            failure = _failure(results)
            code = EXIT_CLEAN if failure is None else failure.exit_code
            ending = Ending(code, reason_of(results, failure)) if len(results) == times else None
            _show(recorded, plugins, results, ending, json)
    if failure is not None:
        raise failure


class Ending(NamedTuple):
    """How a replay ends that was not cut short: its exit code, and the reason for it."""

    code: int
    reason: str


def _failure(results: Sequence[RunResult]) -> FencepostError | Violation | None:
    """Why the replays do not end as clean: of the first that does not."""
    for result in results:
        try:
            result.check()
        except (FencepostError, Violation) as found:
            return found
    for result in results:
        for line in endings.undecided(result.judgement.undecided):
            return Inconclusive(line)
    return None


def reason_of(results: Sequence[RunResult], failure: FencepostError | Violation | None) -> str:
    """The reason for the exit code: what was violated, or else the failure in one line."""
    judged = [result.judgement for result in results]
    violated = {clause for one in judged for clause in one.of(Outcome.VIOLATED)}
    anew = {clause for one in judged for clause in one.broken}
    known = violated - anew
    said = next(iter(str(failure).splitlines()), "") if failure is not None and not anew else ""
    return endings.exit_reason(
        EXIT_CLEAN if failure is None else failure.exit_code,
        *endings.violated(len(anew), len(known)),
        said,
    )


def _show(
    recorded: RunFolder,
    plugins: Plugins,
    results: Sequence[RunResult],
    ending: Ending | None,
    json: bool,
) -> None:
    """Prints the verdicts of the newest run, those of all beside the recorded ones, and how the
    command ends, unless it was cut short."""
    then, whole = _outcomes(recorded, plugins)
    now = [{c: v.verdict for c, v in one.judgement.verdicts.items()} for one in results]
    last = results[-1]
    if json:
        print_json(
            {
                "path": str(last.folder.path),
                "verdicts": now[-1],
                "then": then,
                "runs": [
                    {"path": str(one.folder.path), "violated": one.judgement.of(Outcome.VIOLATED)}
                    for one in results
                ],
            }
            | ({} if ending is None else {"exit_code": ending.code, "reason": ending.reason})
        )
        return
    if len(results) == 1:
        print_verdicts(last.judgement, output())
    print_stalls(last.end)
    for line in replays.then_and_now(then, now, whole=whole):
        print_line(line)
    print_line(endings.go_on(str(last.folder.path)))
    if ending is not None:
        print_line(ending.reason)


def _outcomes(recorded: RunFolder, plugins: Plugins) -> tuple[Mapping[str, Outcome], bool]:
    """The verdicts of a recorded run, and whether they are all that it had; none where only its
    schedule is at hand, as in the folder that a plugin keeps with a known finding, whose history is
    packed."""
    if not (recorded.history.exists() or recorded.events.is_dir()):
        return {}, False
    judged, end = judge_folder(recorded, plugins.promises, keep=False)
    return {c: one.verdict for c, one in judged.verdicts.items()}, judged.whole(end)
