"""For authors of reports: the contents of a run's folder, and the functions that judge its
history."""

from __future__ import annotations

from fencepost.events.traits import (
    changes_authority,
    has_concerns,
    is_sourced,
    is_telling,
    shared_record,
    tells_operations,
)
from fencepost.history.files import write_whole
from fencepost.history.merge import Reading, read
from fencepost.history.run_folder import RunFolder, RunInfo, RunSlot, mode_below
from fencepost.judging.event_formatter import sentence, sentence_of
from fencepost.judging.explanation import BROKE, Explanation, Step, explain
from fencepost.judging.folder import JudgedRun, Promises, judge_folder, judged_run
from fencepost.judging.judge import (
    Broken,
    Judgement,
    OnFinding,
    Outcome,
    Verdict,
    judge,
    read_verdicts,
)
from fencepost.model.extras import check_extra
from fencepost.model.text import printable
from fencepost.plugins.manager import Plugins, load

__all__ = [
    "BROKE",
    "Broken",
    "Explanation",
    "JudgedRun",
    "Judgement",
    "OnFinding",
    "Outcome",
    "Plugins",
    "Promises",
    "Reading",
    "RunFolder",
    "RunInfo",
    "RunSlot",
    "Step",
    "Verdict",
    "changes_authority",
    "check_extra",
    "explain",
    "has_concerns",
    "is_sourced",
    "is_telling",
    "judge",
    "judge_folder",
    "judged_run",
    "load",
    "mode_below",
    "printable",
    "read",
    "read_verdicts",
    "sentence",
    "sentence_of",
    "shared_record",
    "tells_operations",
    "write_whole",
]
