"""Tables to pages: the only place where anything is collected, and only what a page can show.

The page is one HTML file with its styles, script and data inside, and opens without a network. The
timelines are drawn here; without the script they are merely still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from pyspark.sql import DataFrame

from fencepost.reporting import Outcome, sentence, write_whole
from fencepost_reports.drawing import LEGEND, definitions, draw, seconds
from fencepost_reports.job import Tables
from fencepost_reports.lanes import Row, RunTables, timeline
from fencepost_reports.schema import EventTable
from fencepost_reports.transforms.page import client_failures, first_violations, most_telling
from fencepost_reports.transforms.timeline import BINS

MARKS = 40_000
"""How many events by themselves a page holds, over all its runs."""
VIOLATIONS = 20
"""How many violations of one clause in one run are shown."""
GROUPS = 100
"""How many groups of client operations are shown for one run."""
VERDICTS: Mapping[str, tuple[str, str]] = {
    Outcome.VIOLATED: ("✕", "violated"),
    Outcome.UNKNOWN: ("?", "unknown"),
    Outcome.NOT_EXERCISED: ("○", "not exercised"),
    Outcome.HOLDS: ("✓", "holds"),
    Outcome.NOT_APPLICABLE: ("·", "not applicable"),
}
"""Each verdict's sign and words, the worst first: the sign tells without any colour."""


def render(tables: Tables, table: EventTable, out: Path) -> Path:
    """Writes the page, and one still timeline a run, into `out`; the page's path."""
    runs = _runs(tables)
    drawn = {run.run["run"]: timeline(run, table, BINS) for run in runs}
    svgs = {name: Markup(draw(found)) for name, found in drawn.items()}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fencepost_reports", "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["seconds"] = seconds
    shared = {
        "css": Markup(_file("page.css")),
        "definitions": Markup(definitions()),
        "legend": LEGEND,
        "verdicts": VERDICTS,
    }
    for number, name in enumerate(svgs):
        still = environment.get_template("still.html.j2").render(
            shared | {"name": name, "svg": svgs[name]}
        )
        write_whole(out / f"timeline-{number + 1}.html", still.encode())
    page = environment.get_template("page.html.j2").render(
        shared
        | {
            "script": Markup(_file("page.js")),
            "runs": [_view(run, table, svgs[run.run["run"]]) for run in runs],
            "clauses": _clauses(runs),
            "correlation": _rows(tables.read("correlation").orderBy("what", "fault", "type")),
        }
    )
    path = out / "report.html"
    write_whole(path, page.encode())
    return path


def _file(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text()


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.collect()]


def _runs(tables: Tables) -> list[RunTables]:
    """Everything that is shown of each run, in the order in which they were started."""
    runs = _rows(tables.read("runs").orderBy("started_at", "run"))
    failed, authority = tables.read("failures"), tables.read("authority")
    most = max(MARKS // max(len(runs), 1), 500)
    collected = {
        "processes": tables.read("processes"),
        "spans": tables.read("spans"),
        "density": tables.read("density"),
        "shown": most_telling(tables.read("shown"), authority, failed, most),
        "windows": tables.read("fault_windows"),
        "authority": authority.where("effect <> 'enforces'"),
        "violations": first_violations(failed, VIOLATIONS).orderBy("position", "id"),
        "operations": client_failures(failed, GROUPS).orderBy("nth"),
        "verdicts": tables.read("verdicts"),
    }
    by_run: dict[str, dict[str, list[Row]]] = {
        run["run"]: {name: [] for name in collected} for run in runs
    }
    for name, rows in collected.items():
        for row in _rows(rows):
            by_run[row["run"]][name].append(row)
    return [
        RunTables(run=run, number=number, **by_run[run["run"]]) for number, run in enumerate(runs)
    ]


def _clauses(runs: Sequence[RunTables]) -> list[dict[str, Any]]:
    """Each clause with its verdict in every run; those that are not the same everywhere first."""
    sentences: dict[str, str] = {}
    found: dict[str, dict[str, str]] = {}
    for run in runs:
        for row in run.verdicts:
            sentences[row["clause"]] = row["sentence"]
            found.setdefault(row["clause"], {})[run.run["run"]] = row["verdict"]
    worst = list(VERDICTS)
    clauses = [
        {
            "clause": clause,
            "sentence": sentences[clause],
            "counts": [(v, list(by_run.values()).count(v)) for v in worst if v in by_run.values()],
            "judged": len(by_run),
            "by_run": by_run,
            "telling": set(by_run.values()) - {Outcome.HOLDS, Outcome.NOT_APPLICABLE},
        }
        for clause, by_run in found.items()
    ]
    return sorted(clauses, key=lambda c: (min(worst.index(v) for v, _ in c["counts"]), c["clause"]))


def _view(run: RunTables, table: EventTable, svg: Markup) -> dict[str, Any]:
    """What the page says of one run."""
    recorded = {row["clause"]: row for row in run.run["recorded"]}
    worst = list(VERDICTS)
    verdicts = sorted(run.verdicts, key=lambda v: (worst.index(v["verdict"]), v["clause"]))
    events = {row["position"]: row for row in run.shown}
    shown = max((row["total"] for row in run.shown), default=0)
    return {
        "name": run.run["run"],
        "number": run.number,
        "svg": svg,
        "about": run.run,
        "length": run.ms(run.run["run_ended_ns"]),
        "left_out": shown - len(run.shown),
        "counts": [(v, sum(row["verdict"] == v for row in verdicts)) for v in worst],
        "verdicts": [
            {
                **row,
                "recorded": recorded.get(row["clause"], {}).get("verdict"),
                "known": recorded.get(row["clause"], {}).get("known", ()),
            }
            for row in verdicts
        ],
        "faults": run.windows,
        "missed": [row["fault_id"] for row in run.windows if not row["receipt"]],
        "violated": [
            _violated(run, table, verdict, recorded, events)
            for verdict in verdicts
            if verdict["verdict"] == Outcome.VIOLATED
        ],
        "operations": [
            {
                **row,
                "at": run.ms(row["from_ns"]),
                "until": run.ms(row["to_ns"]),
                "explained": _explained(run, table, row, events, row["from_ns"]),
                "faults": _faults(run, row),
            }
            for row in run.operations
        ],
        "groups_left_out": max((r["groups"] for r in run.operations), default=0)
        - len(run.operations),
    }


def _violated(
    run: RunTables,
    table: EventTable,
    verdict: Row,
    recorded: Mapping[str, Row],
    events: Mapping[int, Row],
) -> dict[str, Any]:
    """One violated clause: its violations, each with what explains it."""
    chains = {
        (chain["process"], chain["node_seq"]): chain["lines"]
        for chain in recorded.get(verdict["clause"], {}).get("explanations", ())
    }
    return {
        "clause": verdict["clause"],
        "sentence": verdict["sentence"],
        "total": verdict["violated"],
        "known": recorded.get(verdict["clause"], {}).get("known", ()),
        "violations": [
            {
                **row,
                "mark": run.violation_id(row),
                "t": run.ms(row["at_ns"]),
                "explained": _explained(run, table, row, events, row["at_ns"]),
                "faults": _faults(run, row),
                "lines": chains.get((row["process"], row["node_seq"]), ()),
            }
            for row in run.violations
            if row["clause"] == verdict["clause"]
        ],
    }


def _explained(
    run: RunTables, table: EventTable, failure: Row, events: Mapping[int, Row], at_ns: int
) -> dict[str, Any] | None:
    """The event that explains a failure: in words, where it is drawn, how long before it was."""
    position = failure["explained_by"]
    if position is None or position not in events:
        return None
    row = events[position]
    return {
        "type": failure["explained_type"],
        "how": failure["how"],
        "says": sentence(table.event(row)),
        "process": row["process"],
        "t": run.ms(row["at_ns"]),
        "before": (at_ns - row["at_ns"]) / 1e6,
        "mark": run.mark_id(position),
    }


def _faults(run: RunTables, failure: Row) -> list[Row]:
    return [row for row in run.windows if row["fault_id"] in failure["fault_ids"]]
