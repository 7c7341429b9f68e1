"""The demo: the demonstrations of one system or several. Each is run twice; the second run has a
defect switched on, which must be found.

The system defines the steps (`Demonstrable`). After each step the cluster must recover before the
next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from msgspec import Struct
from msgspec.structs import replace

from fencepost.events import FaultInjected, FaultTookEffect
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.clock import now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.extras import has_extra
from fencepost.model.system.capabilities import HasDefects, System
from fencepost.model.system.shape import Shape
from fencepost.plugins.manager import Plugins
from fencepost.plugins.reports import ReportRequest
from fencepost.runs.demonstration import Demonstrable, Demonstration, Scene
from fencepost.runs.run import Run, RunResult, RunSpec, check_runtime, new_folder

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
class Act:
    """One system, healthy and then with a defect. `planted` are the clauses that the defect
    breaks."""

    system: str
    healthy: DemoRun
    broken: DemoRun
    planted: Sequence[str]

    @property
    def runs(self) -> tuple[DemoRun, DemoRun]:
        """Both, in order."""
        return self.healthy, self.broken

    @property
    def found(self) -> Sequence[str]:
        """The clauses that were violated with the defect."""
        return self.broken.result.judgement.of(Outcome.VIOLATED)

    @property
    def clean(self) -> bool:
        """Whether the clean run violated nothing and left nothing undecided, every receipt is true,
        and the planted defect was found."""
        verdicts = self.healthy.result.judgement
        return (
            not verdicts.of(Outcome.VIOLATED)
            and not verdicts.of(Outcome.UNKNOWN)
            and self.healthy.result.trouble is None
            and all(r.receipt for run in self.runs for r in run.receipts)
            and bool(set(self.planted) & set(self.found))
        )

    def as_json(self) -> Mapping[str, object]:
        """One element of `acts`."""
        return {
            "system": self.system,
            "runs": [_run_as_json(run) for run in self.runs],
            "found": list(self.found),
        }


def _run_as_json(run: DemoRun) -> Mapping[str, object]:
    return {
        "path": str(run.result.folder.path),
        "defect": run.defect,
        "verdicts": {
            clause: {
                "verdict": str(v.verdict),
                "exercised": v.exercised,
                "evidence": None if v.evidence is None else str(v.evidence),
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


@final
@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of the demo. `page` is the report's; `trouble` says why it could not be made, or
    why a later act could not be shown. Where a report over several runs needs an extra that is not
    installed, `apart` has the page of each run, and `lacks` names the extra."""

    acts: Sequence[Act]
    page: Path | None
    trouble: EnvironmentFailed | None
    elapsed_s: float
    apart: Sequence[Path] = ()
    lacks: str = ""

    @property
    def clean(self) -> bool:
        """Whether every act is."""
        return all(act.clean for act in self.acts)

    def as_json(self) -> Mapping[str, object]:
        """The object that `fencepost demo --json` prints."""
        return {
            "acts": [act.as_json() for act in self.acts],
            "report": None if self.page is None else str(self.page),
            "pages": [str(page) for page in self.apart],
            "elapsed_s": round(self.elapsed_s, 1),
        }


def systems_shown(first: str, plugins: Plugins) -> Sequence[System]:
    """A system and those that its demonstration says follow it; UsageError for an unknown one."""
    shown = [plugins.system(first)]
    while isinstance(shown[-1], Demonstrable) and (name := shown[-1].demonstration().followed_by):
        shown.append(plugins.system(name))
    return shown


def demo(
    systems: Sequence[System],
    plugins: Plugins,
    out: Path,
    seed: int,
    *,
    report: ReportProgress,
    ended: Callable[[Act], None],
) -> DemoResult:
    """Shows each system below `out`, one after the other; `ended` is called after each.

    Without the extra that a report over several runs needs, each run has a page of its own. Raises
    as `Run.start` for the first system; EnvironmentFailed at once if this machine lacks anything
    else that the report needs; UsageError for a system without a demonstration.
    """
    for system in systems:
        if not isinstance(system, Demonstrable) or not isinstance(system, HasDefects):
            raise UsageError(
                f"{system.name} has no demonstration: give it `demonstration` "
                "(fencepost.testing.Demonstrable), or name another system by --system"
            )
    check_runtime("process")
    lacks = _lacks(plugins)
    began_ns = now_ns()
    acts: list[Act] = []
    page, trouble = None, None
    apart: list[Path] = []
    try:
        for system in systems:
            acts.append(_act(system, plugins, out, seed, report=report))
            ended(acts[-1])
    except EnvironmentFailed as failed:
        if not acts:
            raise
        trouble = failed
    folders = [run.result.folder.path for act in acts for run in act.runs]
    report("each run gets its page" if lacks else "the Spark job correlates all histories")
    try:
        if lacks:
            for folder in folders:
                request = ReportRequest.of([folder], folder / "report")
                apart.append(Path(plugins.report(request)))
        else:
            page = Path(plugins.report(ReportRequest.of(folders, out)))
    except EnvironmentFailed as failed:
        trouble = trouble or failed
    elapsed_s = (now_ns() - began_ns) / 1e9
    return DemoResult(acts, page, trouble, elapsed_s, apart=apart, lacks=lacks)


def _lacks(plugins: Plugins) -> str:
    """Which extra a report over several runs lacks here; empty if it lacks none.

    Raises EnvironmentFailed if it lacks anything else.
    """
    try:
        plugins.check_report(2)
    except EnvironmentFailed as lacking:
        if has_extra("spark"):
            raise
        plugins.check_report(1)
        return str(lacking)
    return ""


def _act(system: System, plugins: Plugins, out: Path, seed: int, *, report: ReportProgress) -> Act:
    assert isinstance(system, Demonstrable)
    assert isinstance(system, HasDefects)
    shown = system.demonstration()
    planted = next(one for one in system.defects() if one.name == shown.planted)

    def run(defect: str | None) -> DemoRun:
        report(f"{system.name}: {'healthy' if defect is None else f'planted {defect}'}")
        shape = Shape(defects=(defect,) if defect else ())
        return _run(
            RunSpec(system, shape, seed=seed),
            plugins,
            folder=new_folder(out, "demo" if defect is None else f"demo-{defect}"),
            defect=defect,
            shown=shown,
            report=report,
        )

    return Act(system.name, run(None), run(shown.planted), planted.breaks)


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
    """Every fault as it was injected. A fault that had to wait for its object has its later
    receipt."""
    later = {one.fault_id: one for one in bodies if isinstance(one, FaultTookEffect)}
    return [
        replace(one, receipt=True, evidence=later[one.fault_id].evidence)
        if one.fault_id in later
        else one
        for one in bodies
        if isinstance(one, FaultInjected)
    ]
