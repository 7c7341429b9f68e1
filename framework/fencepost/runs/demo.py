"""The demo: a system's own demonstration, run twice; the second run has a defect switched on, which
must be found.

The system defines what is done to the cluster (`Demonstrable`). After each step the cluster must
recover before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from msgspec import Struct
from msgspec.structs import replace

from fencepost.events import FaultInjected, FaultTookEffect
from fencepost.history.run_folder import RunFolder
from fencepost.judging.judge import Outcome
from fencepost.model.clock import now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.system.capabilities import HasDefects, System
from fencepost.model.system.shape import Shape
from fencepost.plugins.manager import Plugins
from fencepost.runs.demonstration import Demonstrable, Demonstration, Scene
from fencepost.runs.run import Run, RunResult, RunSpec, new_folder

ReportProgress = Callable[[str], None]
"""Called with one line about what is happening now."""


@final
@dataclass(frozen=True, slots=True)
class DemoRun:
    """One of the demo's runs: its defect, if any, its verdicts, and its faults' receipts."""

    defect: str | None
    result: RunResult
    receipts: Sequence[FaultInjected]


@final
@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of the demo. `planted` are the clauses that the planted defect breaks.

    `page` is the report's; without one, `trouble` says why it could not be made.
    """

    runs: Sequence[DemoRun]
    planted: Sequence[str]
    page: Path | None
    trouble: EnvironmentFailed | None
    elapsed_s: float
    found: Sequence[str] = field(default=())

    @property
    def clean(self) -> bool:
        """Whether the clean run violated nothing and left nothing undecided, every receipt is true,
        and the planted defect was found."""
        healthy = self.runs[0].result
        verdicts = healthy.judgement
        return (
            not verdicts.of(Outcome.VIOLATED)
            and not verdicts.of(Outcome.UNKNOWN)
            and healthy.trouble is None
            and all(r.receipt for run in self.runs for r in run.receipts)
            and bool(set(self.planted) & set(self.found))
        )

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost demo --json` prints."""
        return {
            "runs": [
                {
                    "path": str(run.result.folder.path),
                    "defect": run.defect,
                    "verdicts": {
                        clause: {
                            "verdict": str(v.verdict),
                            "exercised": v.exercised,
                            "witness": None if v.evidence is None else str(v.evidence),
                        }
                        for clause, v in run.result.judgement.verdicts.items()
                    },
                    "receipts": [
                        {
                            "fault": r.fault_id,
                            "targets": list(r.targets),
                            "true": r.receipt,
                            "evidence": r.evidence,
                        }
                        for r in run.receipts
                    ],
                }
                for run in self.runs
            ],
            "found": list(self.found),
            "report": None if self.page is None else str(self.page),
            "elapsed_s": round(self.elapsed_s, 1),
        }


def demo(
    system: System, plugins: Plugins, out: Path, seed: int, report: ReportProgress
) -> DemoResult:
    """Runs the demo below `out`.

    Raises as `Run.start`; EnvironmentFailed at once if this machine lacks what the report needs;
    UsageError for a system without a demonstration.
    """
    if not isinstance(system, Demonstrable) or not isinstance(system, HasDefects):
        raise UsageError(f"{system.name} has no demonstration")
    plugins.check_report(2)
    shown = system.demonstration()
    planted = next(one for one in system.defects() if one.name == shown.planted)
    began_ns = now_ns()
    runs: list[DemoRun] = []
    for defect in (None, shown.planted):
        shape = Shape(defects=(defect,) if defect else ())
        label = "demo" if defect is None else f"demo-{defect}"
        report(f"run {len(runs) + 1} of 2: {'healthy' if defect is None else 'planted ' + defect}")
        folder = new_folder(out, label)
        runs.append(
            _run(
                RunSpec(system, shape, seed=seed),
                plugins,
                folder=folder,
                defect=defect,
                shown=shown,
                report=report,
            )
        )
    report("the Spark job correlates both histories")
    page, trouble = None, None
    try:
        page = plugins.report([run.result.folder.path for run in runs], out)
    except EnvironmentFailed as failed:
        trouble = failed
    found = runs[1].result.judgement.of(Outcome.VIOLATED)
    elapsed_s = (now_ns() - began_ns) / 1e9
    return DemoResult(
        runs=runs,
        planted=planted.breaks,
        page=page,
        trouble=trouble,
        elapsed_s=elapsed_s,
        found=found,
    )


def _run(
    spec: RunSpec,
    plugins: Plugins,
    *,
    folder: RunFolder,
    defect: str | None,
    shown: Demonstration,
    report: ReportProgress,
) -> DemoRun:
    with Run.start(spec, plugins, folder, lambda phase: report(f"  {phase}")) as run:
        scene = Scene(run.cluster, run.clients, run.faults)
        shown.load(scene)
        run.enter("inject")
        for step in shown.steps:
            report(f"    {(step.__doc__ or '').splitlines()[0]}")
            step(scene)
            run.base.eventually(run.base.recovered)
        receipts = _receipts([event.body for event in run.runtime.events()])
        result = run.finish()
    return DemoRun(defect, result, receipts)


def _receipts(bodies: Sequence[Struct]) -> Sequence[FaultInjected]:
    """Every fault as it was injected, with the later receipt of one that had to wait for something
    to act on."""
    later = {one.fault_id: one for one in bodies if isinstance(one, FaultTookEffect)}
    return [
        replace(one, receipt=True, evidence=later[one.fault_id].evidence)
        if one.fault_id in later
        else one
        for one in bodies
        if isinstance(one, FaultInjected)
    ]
