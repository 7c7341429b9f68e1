"""Tables of a report by DuckDB, from the same run folders and rows: a program of its own.

    python -m many.by_duckdb RUNS REPORT

prints one JSON object: table -> its rows. They are the tables that SQL can make: the processes,
phases, faults and verdicts of each run, from its columns; and the correlation, from the rows of the
report. What takes a fold over the order of events, such as the cause of a failure, is not among
them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import msgspec

_EVENTS = "(SELECT split_part(filename, '/', -3) AS run, * FROM read_parquet('{0}/*/columns/events.parquet', filename = true))"  # noqa: E501
_ENDS = """(SELECT split_part(filename, '/', -2) AS run, "end".ended_at_ns AS ended_ns
    FROM read_json('{0}/*/judged.json', filename = true))"""
PER_RUN = {
    "processes": f"""
        WITH exits AS (
            SELECT run, ended AS process, arg_max(at_ns, position) AS at_ns
            FROM {_EVENTS} WHERE kind = 'process.exited' GROUP BY ALL)
        SELECT e.run, e.process, min(e.at_ns),
               greatest(max(e.at_ns), any_value(exits.at_ns)), count(*)
        FROM {_EVENTS} AS e LEFT JOIN exits USING (run, process) GROUP BY ALL""",
    "phases": f"SELECT run, phase, at_ns FROM {_EVENTS} WHERE kind = 'run.phase'",
    "faults": f"""
        WITH heals AS (
            SELECT run, fault_id, arg_max(at_ns, position) AS at_ns
            FROM {_EVENTS} WHERE kind = 'fault.healed' GROUP BY ALL)
        SELECT run, i.fault_id, i.fault, coalesce(nullif(i.began_at_ns, 0), i.at_ns),
               coalesce(heals.at_ns, ended_ns), heals.at_ns IS NOT NULL
        FROM {_EVENTS} AS i LEFT JOIN heals USING (run, fault_id) JOIN {_ENDS} USING (run)
        WHERE i.kind = 'fault.injected'""",
    "verdicts": """
        SELECT split_part(filename, '/', -3), clause, verdict, exercised, violated, evidence
        FROM read_parquet('{0}/*/columns/verdicts.parquet', filename = true)""",
}
CORRELATION = """
    WITH cut AS (
        SELECT w.fault, w.types, w.failed FROM (
            SELECT unnest(windows) AS w
            FROM read_parquet('{0}/tables/runs/*/*/run.parquet', hive_partitioning = false))),
    found AS (
        SELECT failed, '' AS fault, unnest(types) AS type FROM cut
        UNION ALL SELECT failed, fault, '' FROM cut WHERE fault <> ''
        UNION ALL SELECT failed, fault, unnest(types) FROM cut WHERE fault <> ''),
    sorts AS (SELECT unnest(['violation', 'operation']) AS what),
    totals AS (
        SELECT what, count(*) AS windows,
               count(*) FILTER (list_contains(failed, what)) AS failed
        FROM cut, sorts GROUP BY what),
    counted AS (
        SELECT what, fault, type, count(*) AS occurred,
               count(*) FILTER (list_contains(failed, what)) AS in_both
        FROM found, sorts GROUP BY ALL)
    SELECT what, nullif(fault, ''), nullif(type, ''), windows, occurred, failed, in_both,
           in_both / windows, in_both / occurred, (in_both / occurred) / (failed / windows)
    FROM counted JOIN totals USING (what) WHERE failed > 0"""


def main(runs: Path, report: Path) -> None:
    with duckdb.connect() as connection:
        found = {
            name: connection.execute(query.format(runs)).fetchall()
            for name, query in PER_RUN.items()
        }
        found["correlation"] = connection.execute(CORRELATION.format(report)).fetchall()
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
