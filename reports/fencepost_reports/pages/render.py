"""Makes pages from the tables of runs: HTML files that open without a network.

Each run has a page of its own. With more than one run, an index leads to them, and to a page of
each clause. Styles and script are inside each page. Timelines are drawn here; without the script
they cannot be moved or zoomed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, final

import jinja2
from markupsafe import Markup, escape

from fencepost.reporting import FaultRow, Outcome, Promises, printable
from fencepost_reports.one_run.failures import VIOLATIONS
from fencepost_reports.one_run.tables import FailureRow, RunSummary, RunTables, VerdictRow
from fencepost_reports.pages.clauses import clause_pages
from fencepost_reports.pages.drawing import LEGEND, definitions, draw, seconds
from fencepost_reports.pages.lanes import (
    drawn,
    looks,
    mark_id,
    ms,
    raw,
    scopes,
    timeline,
    violation_id,
)
from fencepost_reports.pages.overview import Last, overview
from fencepost_reports.pages.statistics import ON_INDEX, ON_PAGE, Statistics
from fencepost_reports.places import local

VERDICTS: Mapping[str, tuple[str, str]] = {
    Outcome.VIOLATED: ("✕", "violated"),
    Outcome.UNKNOWN: ("?", "unknown"),
    Outcome.NOT_EXERCISED: ("○", "not exercised"),
    Outcome.HOLDS: ("✓", "holds"),
    Outcome.NOT_APPLICABLE: ("·", "not applicable"),
}
"""Each verdict's sign and words, the worst first; the sign needs no colour."""
_WORST = list(VERDICTS)
INDEX = "report.html"
"""The page of the only run, or of all runs, below the report."""
LINKS = 8
"""How many of the runs that violate a clause an index links beside it."""
LATENCIES = 300
"""How many rows of latencies it lists."""
MEASURED = 3
"""How many of the runs in which something was measured an index links."""
LISTED = 200
"""How many runs of one verdict the page of a clause lists."""


@final
@dataclass(frozen=True, slots=True)
class RunPages:
    """The pages of one run: with everything, and the timeline alone, which needs no script."""

    page: str
    still: str


@final
@dataclass(frozen=True, slots=True)
class ReportPages:
    """The pages over all runs: the index, and that of each clause by its place."""

    index: str
    clauses: Mapping[str, str]


def run_pages(run: RunTables, index: str = "") -> RunPages:
    """The pages of a run; `index` is the link to the page of all runs, if there is one."""
    legend = [(state, css) for state, css in looks(run).items()]
    about = {"legend": LEGEND, "states": legend, "svg": Markup(draw(timeline(run)))}
    return RunPages(
        _text("run_page.html.j2", about | {"run": _view(run), "index": index}),
        _text("still.html.j2", about | {"name": run.about.run}),
    )


def report_pages(
    runs: Sequence[RunSummary],
    statistics: Statistics,
    promises: Promises,
    before: Last | None = None,
) -> ReportPages:
    """The pages of a report over runs; `before` is what the last report found."""
    read = [run for run in runs if run.about is not None]
    all_runs = overview(read, {c.id: c.says for c in promises.clauses.values()}, before)
    refused = [run.outcome for run in runs if run.about is None]
    return ReportPages(
        _text(
            "index.html.j2",
            {
                "all": all_runs,
                "refused": refused,
                "correlation": statistics.correlation,
                "statistics": statistics,
                "pages": {run.outcome.run: run.page for run in read},
            },
        ),
        {
            place: _text(
                "clause_page.html.j2",
                {
                    "clause": clause,
                    "index": f"../{INDEX}",
                    "before": statistics.before(clause.id),
                },
            )
            for place, clause in clause_pages(all_runs, promises).items()
        },
    )


def _text(template: str, values: Mapping[str, Any]) -> str:
    # Escapes what a browser would obey; the templates themselves have nothing of the kind.
    return printable(_templates().get_template(template).render(values))


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        # jinja2's own loader finds nothing in an archive that is on the path by a relative name.
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"seconds": seconds, "prose": _prose}
    environment.globals.update(
        counts_of=_counts,
        css=Markup(_file("page.css")),
        script=Markup(_file("page.js")),
        definitions=Markup(definitions()),
        verdicts=VERDICTS,
        LINKS=LINKS,
        LISTED=LISTED,
        MEASURED=MEASURED,
        ON_INDEX=ON_INDEX,
        ON_PAGE=ON_PAGE,
        VIOLATIONS=VIOLATIONS,
        length_of=lambda about: (about.ended_ns - about.began_ns) / 1e6,
    )
    return environment


def _prose(text: str) -> Markup:
    """A text of a clause or of a docstring as one sentence or more: names in backticks are code."""
    parts = text.removesuffix(".").split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    ) + Markup(".")


def _file(name: str) -> str:
    return (files("fencepost_reports.pages") / "templates" / name).read_text()


def _counts(run: RunSummary) -> Sequence[tuple[str, int]]:
    """Each verdict and how many clauses have it, the worst first."""
    found = list(run.verdicts.values())
    return [(verdict, found.count(verdict)) for verdict in _WORST]


def _view(run: RunTables) -> Mapping[str, Any]:
    """The data of the page of one run."""
    verdicts = sorted(
        (one for one in run.verdicts if one.applies),
        key=lambda v: (_WORST.index(v.verdict), v.clause),
    )
    operations = [row for row in run.failures if row.what == "operation"]
    return {
        "about": run.about,
        "replay": _replay(run),
        "length": ms(run, run.about.ended_ns),
        "left_out": run.left_out,
        "states_left_out": len(run.spans) - len(drawn(run)),
        "counts": [(v, sum(row.verdict == v for row in verdicts)) for v in _WORST],
        "verdicts": verdicts,
        "scopes": scopes(run),
        "violated": [
            _violated(run, verdict) for verdict in verdicts if verdict.verdict == Outcome.VIOLATED
        ],
        "operations": [_failure(run, row) for row in operations],
        "failed_operations": sum(row.count for row in operations),
        "silences": _silences(run),
        "tests": [_failure(run, row) for row in run.failures if row.what == "test"],
        "latencies": run.latencies[:LATENCIES],
    }


def _silences(run: RunTables) -> Sequence[Mapping[str, Any]]:
    """The times without a success that were explained: when each began and how long it was, in
    milliseconds."""
    failures = [row for row in run.failures if row.what == "silence"]
    return [
        {
            "row": row,
            "t": ms(run, row.from_ns),
            "length": (row.to_ns - row.from_ns) / 1e6,
            "candidates": _candidates(run, failure),
        }
        for row, failure in zip((one for one in run.silences if one.missed), failures, strict=False)
    ]


def _candidates(run: RunTables, row: FailureRow) -> Sequence[Mapping[str, Any]]:
    """What may explain a failure, in order."""
    return [
        {
            "row": one,
            "t": ms(run, one.at_ns),
            "mark": mark_id(one.position),
            "raw": raw(one.position),
        }
        for one in row.candidates
    ]


def _replay(run: RunTables) -> str:
    """The command that injects the faults of a run again; empty without faults, or for a run that
    is not on this machine."""
    path = local(run.about.path)
    return f"fencepost replay {shlex.quote(str(path))}" if run.faults and path is not None else ""


def _violated(run: RunTables, verdict: VerdictRow) -> Mapping[str, Any]:
    """One violated clause: its violations, each with its explanation."""
    shown = [row for row in run.failures if row.clause == verdict.clause]
    return {
        "clause": verdict.clause,
        "sentence": verdict.sentence,
        "total": verdict.violated,
        "known": verdict.known,
        "violations": [_failure(run, row) for row in shown[:VIOLATIONS]],
    }


def _failure(run: RunTables, row: FailureRow) -> Mapping[str, Any]:
    """One failure: its place on the timeline, its explanation, and the faults."""
    mark = violation_id(run, row) if row.what == "violation" else mark_id(row.position)
    return {
        "row": row,
        "mark": mark,
        "t": ms(run, row.began_ns),
        "until": ms(run, row.at_ns),
        "loss": mark_id(row.explained_by) if row.explained_by >= 0 else "",
        "loss_raw": raw(row.explained_by) if row.explained_by >= 0 else "",
        "raw": raw(row.position),
        "earlier": (row.began_ns - row.explained_at_ns) / 1e6,
        "faults": _faults(run.faults, row),
        "candidates": _candidates(run, row),
    }


def _faults(faults: Iterable[FaultRow], failure: FailureRow) -> Sequence[FaultRow]:
    return [row for row in faults if row.fault_id in failure.faults]
