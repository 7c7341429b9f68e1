"""For authors of reports: what a run's folder holds, and the pieces its history is judged with."""

from __future__ import annotations

from fencepost.history import Reading, read
from fencepost.judge import (
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
from fencepost.plugin_manager import Plugins, load
from fencepost.run_folder import RunFolder, RunInfo, write_whole
from fencepost.sentences import sentence

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
