"""How fast the Spark job of a report is, beside DuckDB over the same run folders.

    ./dev bench spark [--json] [--runs N] [--events N] [--span SECONDS]

Three measurements: `two` runs of `--span` simulated seconds; as many as `--runs` says, and a fifth
of them, for the growth: what one more run costs, among many against among few; and `long`, one run
of `--events` events. Each report is a program of its own, and its figures contain Java and the
workers (`many/cost.py`). Java takes Spark's classes from their archive, which is made before
(`class_archive.py`). `session` is a program that only starts a session, and `least` a report by
Spark over one short run: most of what it takes is Spark's own, and `long` contains it.

DuckDB makes the tables that SQL can make (`many/sql/`); their rows must equal those of the
report. The report makes all other tables, explanations and pages besides, so a ratio says how much
more it takes, not how much slower the same work is. Its time is counted after the session's start.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from many.corpus import copies, repeated, simulated
from many.cost import Cost, cost
from pyarrow import parquet
from report import show

from fencepost.reporting import DensityRow, LatencyRow, SilenceRow, load
from fencepost_reports.many_runs.certainty import COLUMNS
from fencepost_reports.many_runs.class_archive import make_archive

GOALS = {"two_s": 20, "two_cpu_s": 35, "growth": 1.2, "long_of_duckdb": 3}
MIN_RUNS = 4
_HERE = Path(__file__).parent
_REPORT = "from fencepost.commands.cli import main; main()"
_SESSION = """
from fencepost_reports.many_runs.session import session
with session():
    pass
"""


@dataclass(frozen=True, slots=True)
class Beside:
    """The report and DuckDB over the same folders."""

    spark: Cost
    duckdb: Cost
    differing: tuple[str, ...]
    """The tables whose rows are not equal."""

    def figures(self, session: Cost) -> dict[str, Any]:
        return {
            "spark": self.spark.rounded(),
            "duckdb": self.duckdb.rounded(),
            "of_duckdb": {
                "wall": round((self.spark.wall_s - session.wall_s) / self.duckdb.wall_s, 2),
                "cpu": round((self.spark.cpu_s - session.cpu_s) / self.duckdb.cpu_s, 2),
            },
            "differing": self.differing,
        }


def beside(runs: Path, scratch: Path) -> Beside:
    """Reports the runs below a folder, in a session of Spark, and asks DuckDB."""
    out = scratch / f"report-{runs.name}"
    folders = sorted(str(one) for one in runs.iterdir())
    # One run alone would be reported without Spark.
    spark = ["--master", "local[*]"] if len(folders) == 1 else []
    words = ["-c", _REPORT, "report", *folders, "--out", str(out), *spark]
    answer = scratch / "answer"
    by_spark = cost(words, answer, _HERE)
    by_duckdb = cost(["-m", "many.by_duckdb", str(runs), str(out)], answer, _HERE)
    theirs = msgspec.json.decode(answer.read_bytes())
    ours = of_report(out)
    differing = [n for n, rows in ours.items() if Counter(rows) != Counter(map(tuple, theirs[n]))]
    return Beside(by_spark, by_duckdb, tuple(differing))


def of_report(out: Path) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """The rows of the report, with the columns that DuckDB makes."""
    wanted = {
        "processes": ("process", "from_ns", "to_ns", "events"),
        "phases": ("phase", "from_ns"),
        "faults": ("fault_id", "fault", "from_ns", "to_ns", "healed"),
        "verdicts": ("clause", "verdict", "exercised", "violated", "evidence"),
        "density": DensityRow.__struct_fields__,
        "silences": SilenceRow.__struct_fields__,
        "latencies": LatencyRow.__struct_fields__,
    }
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in wanted}
    for path in out.glob("tables/runs/*/*/run.parquet"):
        (row,) = parquet.ParquetFile(path).read(["about", *wanted]).to_pylist()
        for name, fields in wanted.items():
            found[name] += [
                (row["about"]["run"], *(one[field] for field in fields)) for one in row[name]
            ]
    found["density"] = _without_refusals(found["density"])
    across = parquet.read_table(out / "tables" / "correlation.parquet")
    counted = across.drop_columns(COLUMNS.names).to_pylist()
    return {**found, "correlation": [tuple(row.values()) for row in counted]}


def _without_refusals(density: Iterable[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """The counts, with events that refuse an authority among the others: no column says so."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for run, process, sort, place, count in density:
        counts[run, process, "other" if sort == "refused" else sort, place] += count
    return [(*key, count) for key, count in counts.items()]


def measured(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """The figures of all three measurements."""
    plugins = load()
    make_archive()
    of = simulated(plugins, root / "simulated", round(options.span * 1_000))
    events = [parquet.read_metadata(one.path / "columns/events.parquet").num_rows for one in of]
    session = cost(["-c", _SESSION], root / "answer", _HERE)
    copies(of, root / "one", 1)
    copies(of, root / "two", 2)
    one, two = beside(root / "one", root), beside(root / "two", root)
    fewer = max(3, options.runs // 5)
    copies(of, root / "fewer", fewer)
    copies(of, root / "many", options.runs)
    some, many = beside(root / "fewer", root), beside(root / "many", root)
    repeated(of[0], root / "long" / "run", plugins, options.events)
    long = beside(root / "long", root)
    more = [
        (some.spark.cpu_s - two.spark.cpu_s) / (fewer - 2),
        (many.spark.cpu_s - some.spark.cpu_s) / (options.runs - fewer),
    ]
    return {
        "bench": "spark",
        "events_of_a_run": events,
        "session": session.rounded(),
        "least": one.spark.rounded(),
        "two": two.figures(session),
        "runs": options.runs,
        "many": many.figures(session),
        "cpu_s_of_one_more_run": {
            f"2 to {fewer}": round(more[0], 3),
            f"{fewer} to {options.runs}": round(more[1], 3),
        },
        "growth": round(more[1] / more[0], 2),
        "events": options.events,
        "long": long.figures(session),
        "equal": not any(made.differing for made in (one, two, some, many, long)),
        "goals": GOALS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=1_000, help="how many runs, 4 or more (1,000)")
    parser.add_argument(
        "--events", type=int, default=10_000_000, help="events of the long run (10,000,000)"
    )
    parser.add_argument("--span", type=float, default=60.0, help="simulated seconds of a run (60)")
    options = parser.parse_args()
    if options.runs < MIN_RUNS:
        parser.error(f"--runs is {options.runs}: the growth needs {MIN_RUNS} or more")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as root:
        warnings.simplefilter("ignore")
        found = measured(options, Path(root))
    show(options, found)
    sys.exit(not found["equal"])


if __name__ == "__main__":
    main()
