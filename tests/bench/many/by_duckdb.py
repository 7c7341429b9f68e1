"""Tables of a report by DuckDB, from the same run folders and rows: a program of its own.

    python -m many.by_duckdb RUNS REPORT

prints one JSON object: table -> its rows. Each table is a query in `sql/`. They are the tables that
SQL can make: the processes, phases, faults, verdicts, density, silences and latencies of each run,
from its columns; and the correlation, from the rows of the report. What takes a fold over the order
of events, such as the holders of an authority or the cause of a failure, is not among them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from string import Template

import duckdb
import msgspec

_SQL = Path(__file__).with_name("sql")
VIEWS = "views"


def main(runs: str, report: str) -> None:
    def read(query: Path) -> str:
        return Template(query.read_text()).substitute(runs=runs, report=report)

    with duckdb.connect() as connection:
        connection.execute(read(_SQL / f"{VIEWS}.sql"))
        found = {
            query.stem: connection.execute(read(query)).fetchall()
            for query in sorted(_SQL.glob("*.sql"))
            if query.stem != VIEWS
        }
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
