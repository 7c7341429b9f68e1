"""For authors of reports: the contents of a run's folder, and the functions that judge its
history."""

from __future__ import annotations

from fencepost.events.names import is_client
from fencepost.events.traits import (
    changes_authority,
    has_concerns,
    is_sourced,
    shared_record,
    tells_operations,
)
from fencepost.events.words import fault_in_words
from fencepost.history.files import (
    MOST_EVENTS_BYTES,
    MOST_FILES,
    MOST_JSON_BYTES,
    copied,
    write_whole,
)
from fencepost.history.merge import Reading, event_files, is_merged, read
from fencepost.history.run_folder import RunFolder, RunInfo, RunSlot, mode_below, system_of
from fencepost.judging.about import scopes_of
from fencepost.judging.event_formatter import sentence, sentence_of
from fencepost.judging.explanation import BROKE, Explanation, Step, bears_on_explanations, explain
from fencepost.judging.folder import (
    JudgedRun,
    Promises,
    digest_of_package,
    judge_folder,
    judged_run,
)
from fencepost.judging.judge import OnFinding, judge
from fencepost.judging.tables.rows import (
    BINS,
    AuthorityRow,
    DensityRow,
    FailedRow,
    FaultRow,
    LatencyRow,
    Move,
    Part,
    PhaseRow,
    SeenRow,
    SilenceRow,
    Sort,
    SpanRow,
    Tables,
    TestRow,
)
from fencepost.judging.verdicts import Broken, Judgement, Outcome, Verdict, read_verdicts
from fencepost.model.extras import check_extra
from fencepost.model.shares import Interval, interval
from fencepost.model.text import docstring, printable
from fencepost.plugins.manager import Plugins, load
from fencepost.plugins.reports import (
    ANY_ENGINE,
    ClauseCount,
    Engine,
    Following,
    ReportedRun,
    ReportRequest,
    ReportUpdate,
    counted,
)

__all__ = [
    "ANY_ENGINE",
    "BINS",
    "BROKE",
    "MOST_EVENTS_BYTES",
    "MOST_FILES",
    "MOST_JSON_BYTES",
    "AuthorityRow",
    "Broken",
    "ClauseCount",
    "DensityRow",
    "Engine",
    "Explanation",
    "FailedRow",
    "FaultRow",
    "Following",
    "Interval",
    "JudgedRun",
    "Judgement",
    "LatencyRow",
    "Move",
    "OnFinding",
    "Outcome",
    "Part",
    "PhaseRow",
    "Plugins",
    "Promises",
    "Reading",
    "ReportRequest",
    "ReportUpdate",
    "ReportedRun",
    "RunFolder",
    "RunInfo",
    "RunSlot",
    "SeenRow",
    "SilenceRow",
    "Sort",
    "SpanRow",
    "Step",
    "Tables",
    "TestRow",
    "Verdict",
    "bears_on_explanations",
    "changes_authority",
    "check_extra",
    "copied",
    "counted",
    "digest_of_package",
    "docstring",
    "event_files",
    "explain",
    "fault_in_words",
    "has_concerns",
    "interval",
    "is_client",
    "is_merged",
    "is_sourced",
    "judge",
    "judge_folder",
    "judged_run",
    "load",
    "mode_below",
    "printable",
    "read",
    "read_verdicts",
    "scopes_of",
    "sentence",
    "sentence_of",
    "shared_record",
    "system_of",
    "tells_operations",
    "write_whole",
]
