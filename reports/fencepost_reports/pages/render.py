"""Makes pages from the tables of runs: HTML files that open without a network.

Each run has a page of its own. With more than one run, an index leads to them. Styles and script
are inside each page. Timelines are drawn here; without the script they cannot be moved or zoomed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, final

import jinja2
from markupsafe import Markup

from fencepost.reporting import Outcome, printable, write_whole
from fencepost_reports.one_run.failures import VIOLATIONS
from fencepost_reports.one_run.tables import (
    FailureRow,
    FaultRow,
    RunRow,
    RunTables,
    VerdictRow,
)
from fencepost_reports.pages.drawing import LEGEND, definitions, draw, seconds
from fencepost_reports.pages.lanes import (
    looks,
    mark_id,
    ms,
    scopes,
    timeline,
    violation_id,
)

VERDICTS: Mapping[str, tuple[str, str]] = {
    Outcome.VIOLATED: ("✕", "violated"),
    Outcome.UNKNOWN: ("?", "unknown"),
    Outcome.NOT_EXERCISED: ("○", "not exercised"),
    Outcome.HOLDS: ("✓", "holds"),
    Outcome.NOT_APPLICABLE: ("·", "not applicable"),
}
"""Each verdict's sign and words, the worst first; the sign needs no colour."""
_WORST = list(VERDICTS)
GENERATOR = '<meta name="generator" content="Fencepost report">'
"""In the head of every page, to recognise a page that a report wrote."""
_HEAD_BYTES = 512
_OF_A_RUN = re.compile(r"(run|timeline)-\d+\.html")


@final
@dataclass(frozen=True, slots=True)
class Summary:
    """The index's entry of one run; `page` is its page's file name."""

    about: RunRow
    page: str
    faults: int
    verdicts: Mapping[str, str]
    """clause -> verdict."""

    @property
    def counts(self) -> Sequence[tuple[str, int]]:
        """Each verdict and how many clauses have it, the worst first."""
        found = list(self.verdicts.values())
        return [(verdict, found.count(verdict)) for verdict in _WORST]


@final
@dataclass(slots=True)
class Pages:
    """Writes the pages of a report below `out`, a run at a time, and then its index.

    Memory holds the index's entries, and the tables of one run.
    """

    out: Path
    alone: bool
    """Whether the report is of one run: its page is then the report's."""
    _summaries: list[Summary] = field(default_factory=list)
    _written: set[str] = field(default_factory=set)
    _sentences: dict[str, str] = field(default_factory=dict)

    def add(self, run: RunTables) -> Path:
        """Writes the page and the still timeline of a run; the page's path."""
        number = len(self._summaries) + 1
        name = "report.html" if self.alone else f"run-{number}.html"
        svg = Markup(draw(timeline(run)))
        legend = [(state, css) for state, css in looks(run).items()]
        about = {"legend": LEGEND, "states": legend, "svg": svg}
        still = self._text("still.html.j2", about | {"name": run.about.run})
        self._write(f"timeline-{number}.html", still)
        page = self._text(
            "run_page.html.j2", about | {"run": _view(run), "index": not self.alone}
        )  # fmt: skip
        self._write(name, page)
        verdicts = {row.clause: row.verdict for row in run.verdicts}
        self._summaries.append(Summary(run.about, name, len(run.faults), verdicts))
        self._sentences |= {row.clause: row.sentence for row in run.verdicts}
        return self.out / name

    def index(self, correlation: Sequence[Mapping[str, Any]]) -> Path:
        """Writes the index of the runs, with the correlates of failure over all of them."""
        page = self._text(
            "index.html.j2",
            {
                "runs": self._summaries,
                "clauses": _clauses(self._summaries, self._sentences),
                "correlation": correlation,
            },
        )
        return self._write("report.html", page)

    def remove_stale(self) -> None:
        """Removes the pages of runs that an earlier report wrote below `out` and this one did not.

        A file is an earlier report's if it has the name of such a page and says so in its head.
        """
        for path in self.out.iterdir():
            own = _OF_A_RUN.fullmatch(path.name) and path.name not in self._written
            if own and path.is_file() and not path.is_symlink():
                with path.open("rb") as page:
                    stale = GENERATOR.encode() in page.read(_HEAD_BYTES)
                if stale:
                    path.unlink()

    def _write(self, name: str, page: str) -> Path:
        self._written.add(name)
        write_whole(self.out / name, page.encode())
        return self.out / name

    def _text(self, template: str, values: Mapping[str, Any]) -> str:
        # Escapes what a browser would obey; the templates themselves have nothing of the kind.
        return printable(_templates().get_template(template).render(values))


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fencepost_reports.pages", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["seconds"] = seconds
    environment.globals.update(
        css=Markup(_file("page.css")),
        script=Markup(_file("page.js")),
        generator=Markup(GENERATOR),
        definitions=Markup(definitions()),
        verdicts=VERDICTS,
        length_of=lambda about: (about.ended_ns - about.began_ns) / 1e6,
    )
    return environment


def _file(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text()


def _clauses(runs: Iterable[Summary], sentences: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    """Each clause with its verdict in every run; clauses whose verdicts differ come first."""
    found: dict[str, dict[str, str]] = {}
    for run in runs:
        for clause, verdict in run.verdicts.items():
            found.setdefault(clause, {})[run.about.run] = verdict
    clauses = [
        {
            "clause": clause,
            "sentence": sentences[clause],
            "counts": [(v, list(by_run.values()).count(v)) for v in _WORST if v in by_run.values()],
            "by_run": by_run,
            "telling": set(by_run.values()) - {Outcome.HOLDS, Outcome.NOT_APPLICABLE},
        }
        for clause, by_run in found.items()
    ]
    return sorted(
        clauses, key=lambda c: (min(_WORST.index(v) for v, _ in c["counts"]), c["clause"])
    )


def _view(run: RunTables) -> Mapping[str, Any]:
    """The data of the page of one run."""
    verdicts = sorted(run.verdicts, key=lambda v: (_WORST.index(v.verdict), v.clause))
    operations = [row for row in run.failures if row.what == "operation"]
    return {
        "about": run.about,
        "length": ms(run, run.about.ended_ns),
        "left_out": run.left_out,
        "counts": [(v, sum(row.verdict == v for row in verdicts)) for v in _WORST],
        "verdicts": verdicts,
        "scopes": scopes(run),
        "violated": [
            _violated(run, verdict) for verdict in verdicts if verdict.verdict == Outcome.VIOLATED
        ],
        "operations": [_failure(run, row) for row in operations],
        "failed_operations": sum(row.count for row in operations),
    }


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
        "earlier": (row.began_ns - row.explained_at_ns) / 1e6,
        "faults": _faults(run.faults, row),
    }


def _faults(faults: Iterable[FaultRow], failure: FailureRow) -> Sequence[FaultRow]:
    return [row for row in faults if row.fault_id in failure.faults]
