"""A follower whose time is a list of steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fencepost.reporting import (
    Following,
    Promises,
    ReportedRun,
    ReportRequest,
    ReportUpdate,
    RunFolder,
    judge_folder,
)
from fencepost_reports.making import Report, maker
from fencepost_reports.many_runs.follow import follow

EVERY_S, PATIENCE_S = 5.0, 60.0
Step = Callable[[], object]


@dataclass
class Steps:
    """A step takes place in each pause of the follower; the pause after the last one is
    interrupted."""

    steps: Sequence[Step]
    taken: int = 0

    def now_s(self) -> float:
        return self.taken * EVERY_S

    def wait(self, seconds: float) -> None:
        assert seconds == EVERY_S
        if self.taken == len(self.steps):
            raise KeyboardInterrupt
        self.steps[self.taken]()
        self.taken += 1


@dataclass
class Followed:
    """What a follower has said."""

    updates: list[ReportUpdate] = field(default_factory=list)
    outcomes: list[ReportedRun] = field(default_factory=list)


def followed(root: Path, out: Path, promises: Promises, steps: Sequence[Step] = ()) -> Followed:
    """Follows a folder until after the last step."""
    said = Followed()
    following = Following(every_s=EVERY_S, patience_s=PATIENCE_S, updated=said.updates.append)
    request = ReportRequest((str(root),), str(out), notify=said.outcomes.append)
    made = Report(promises, str(out), maker(promises))
    with pytest.raises(KeyboardInterrupt):
        follow(request, following, made, Steps(steps))
    return said


def arrive(run: Path, root: Path, promises: Promises) -> Path:
    """Copies a run below the folder, and judges it there."""
    copy = root / run.name
    shutil.copytree(run, copy, copy_function=shutil.copy2)
    judge_folder(RunFolder(copy), promises)
    return copy
