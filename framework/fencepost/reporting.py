"""For authors of reports: what a run's folder holds, and the pieces its history is judged with."""

from __future__ import annotations

from fencepost.history.merge import Reading, read
from fencepost.history.run_folder import RunFolder, RunInfo, write_whole
from fencepost.judging.event_formatter import sentence
from fencepost.judging.judge import (
    AT_END,
    Broken,
    Judgement,
    Outcome,
    Tally,
    Verdict,
    conclude,
    judge,
    read_verdicts,
)
from fencepost.plugins.manager import Plugins, load

__all__ = [
    "AT_END",
    "Broken",
    "Judgement",
    "Outcome",
    "Plugins",
    "Reading",
    "RunFolder",
    "RunInfo",
    "Tally",
    "Verdict",
    "conclude",
    "judge",
    "load",
    "read",
    "read_verdicts",
    "sentence",
    "write_whole",
]
