"""The index: what the summaries of many runs say together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import structs

from fencepost import Clause
from fencepost.reporting import ClauseCount, Promises
from fencepost_reports.making import summary
from fencepost_reports.one_run.failures import VIOLATIONS
from fencepost_reports.one_run.run import RunSource, run_tables
from fencepost_reports.one_run.tables import RunSummary
from fencepost_reports.pages.clauses import clause_pages
from fencepost_reports.pages.overview import Cell, Last, Overview, last, overview
from fencepost_reports.pages.render import report_pages
from fencepost_reports.pages.statistics import Statistics

MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def one(runs: Mapping[str, Path], promises: Promises) -> RunSummary:
    tables = run_tables(RunSource("night", str(runs["night"])), promises)
    return summary(tables, "tables/runs/date=2026-01-01/run=night/run.parquet", "runs/night.html")


def run(one: RunSummary, name: str, system: str = "a", **verdicts: str) -> RunSummary:
    """A run like another one, with these verdicts."""
    assert one.about is not None
    violated = tuple(clause for clause, verdict in verdicts.items() if verdict == "violated")
    return structs.replace(
        one,
        about=structs.replace(one.about, run=name, system=system),
        outcome=structs.replace(one.outcome, run=name, violated=violated, lacks=""),
        verdicts=verdicts,
    )


def with_test(one: RunSummary, test: str) -> RunSummary:
    assert one.about is not None
    return structs.replace(one, about=structs.replace(one.about, test=test))


def seen(*runs: RunSummary, before: Last | None = None) -> Overview:
    return overview(runs, {}, before)


def test_what_was_excused_more_often_than_exercised_is_listed_first(one: RunSummary) -> None:
    def counting(name: str, **counts: ClauseCount) -> RunSummary:
        base = run(one, name, **dict.fromkeys("ABCD", "holds"))
        return structs.replace(base, outcome=structs.replace(base.outcome, counts=counts))

    found = seen(
        counting(
            "first",
            A=ClauseCount(exercised=5, excused=1, why=("a cut",)),
            B=ClauseCount(exercised=1, excused=2, why=("a pause",)),
            C=ClauseCount(exercised=7),
        ),
        counting(
            "second",
            A=ClauseCount(exercised=1),
            B=ClauseCount(excused=1, why=("a cut",)),
            D=ClauseCount(undecided=1, why=("a cut",)),
        ),
        counting("third", B=ClauseCount(excused=1, why=("a cut",))),
    )
    assert [clause.id for clause in found.not_judged] == ["B", "A", "D"]
    assert found.not_judged[0].count == ClauseCount(
        exercised=1, excused=4, why=("a cut", "a pause")
    )


def test_the_worst_clauses_and_the_runs_with_a_violation_come_first(one: RunSummary) -> None:
    found = seen(
        run(one, "clean", A="holds", B="holds", C="not-exercised", D="holds"),
        run(one, "bad", A="holds", B="unknown", C="not-exercised", D="violated"),
    )
    assert [clause.id for clause in found.clauses] == ["D", "B", "C", "A"]
    assert [one.outcome.run for one in found.runs] == ["bad", "clean"]


def test_a_cell_counts_the_runs_of_its_system_with_the_worst_verdict(one: RunSummary) -> None:
    found = seen(
        run(one, "1", A="holds"),
        run(one, "2", A="unknown"),
        run(one, "3", A="unknown"),
        run(one, "4", system="b", A="holds", B="holds"),
    )
    assert [subject.system for subject in found.subjects] == ["a", "b"]
    cells = {clause.id: clause.cells for clause in found.clauses}
    assert cells == {
        "A": [Cell("unknown", 2, 3, False), Cell("holds", 1, 1, False)],
        "B": [None, cells["B"][1]],
    }


def test_a_violation_that_is_known_is_told_from_a_new_one(one: RunSummary) -> None:
    def knows(found: RunSummary, *known: str) -> RunSummary:
        broken = bool(set(found.outcome.violated) - set(known))
        outcome = structs.replace(found.outcome, known=known, broken=broken)
        return structs.replace(found, outcome=outcome)

    found = seen(
        knows(run(one, "1", A="violated", B="violated"), "A", "B"),
        knows(run(one, "2", A="holds", B="violated")),
    )
    a, b = (next(c for c in found.clauses if c.id == name) for name in "AB")
    assert [clause.id for clause in found.clauses] == ["B", "A"]
    assert [run.outcome.run for run in b.anew] == ["2"]
    assert [run.outcome.run for run in b.known] == ["1"]
    assert (list(a.anew), [cell.known for cell in a.cells if cell]) == ([], [True])
    assert [cell.known for cell in b.cells if cell] == [False]


def test_what_is_new_is_what_no_run_of_the_last_report_had(one: RunSummary) -> None:
    before = last([run(one, "1", A="violated", B="holds"), run(one, "2", A="holds", B="holds")])
    now = seen(
        run(one, "2", A="violated", B="holds"),
        run(one, "3", A="holds", B="violated"),
        before=before,
    )
    assert now.new_runs == 1
    assert [clause.id for clause in now.clauses if clause.new] == ["B"]
    assert not any(clause.new for clause in seen(run(one, "1", A="violated")).clauses)


def test_a_day_counts_violations_and_what_is_undecided(one: RunSummary) -> None:
    later = structs.replace(run(one, "3", A="unknown"), row="tables/runs/date=2026-01-02/x")
    found = seen(run(one, "1", A="violated"), run(one, "2", A="holds"), later)
    assert [tuple(day) for day in found.days] == [("2026-01-02", 1, 0, 1), ("2026-01-01", 2, 1, 0)]


def test_the_index_of_a_thousand_runs_stays_small(one: RunSummary) -> None:
    assert one.about is not None
    clauses = {f"CLAUSE-{n}": "violated" if n < 40 else "holds" for n in range(150)}
    many = [run(one, f"20260101-120000-a-test-of-some-length-{n}", **clauses) for n in range(1000)]
    promised = {name: Clause(name, "", (), "A promise of a sentence.") for name in clauses}
    pages = report_pages(many, Statistics(), Promises((), promised))
    assert len(pages.index.encode()) < MOST_BYTES
    assert all(one.outcome.run in pages.index for one in many)
    assert all(len(page.encode()) < MOST_BYTES / 10 for page in pages.clauses.values())


def test_a_clauses_page_has_its_runs_its_tests_and_how_it_is_judged(
    one: RunSummary, promises: Promises
) -> None:
    some = [
        with_test(run(one, "1", **{"RP-05": "violated"}), "test_a"),
        with_test(run(one, "2", **{"RP-05": "holds"}), "test_b"),
        with_test(run(one, "3", **{"RP-05": "holds"}), "test_b"),
        with_test(run(one, "4", **{"RP-05": "not-exercised"}), "test_c"),
        run(one, "5", system="b", **{"RP-05": "unknown", "GONE-1": "holds"}),
    ]
    pages = clause_pages(seen(*some), promises)
    assert list(pages) == ["clauses/RP-05.html", "clauses/GONE-1.html"]
    found = pages["clauses/RP-05.html"]
    assert found.promise == promises.clauses["RP-05"]
    assert [(v.subject.system, v.counts) for v in found.verdicts] == [
        ("a", [("violated", 1), ("not-exercised", 1), ("holds", 2)]),
        ("b", [("unknown", 1)]),
    ]
    assert [one.outcome.run for one in found.violated] == ["1"]
    assert [one.outcome.run for one in found.undecided] == ["5"]
    assert found.tests == [("test_b", 2), ("test_a", 1)]
    assert [rule.name for rule in found.rules] == [
        "fencepost_suites.replication.agreement.ReplicasAgree",
        "fencepost_suites.replication.disks.DisksAgree",
    ]
    for rule in found.rules:
        assert rule.how
        assert not rule.how[0].startswith("RP-05")
    unknown = pages["clauses/GONE-1.html"]
    assert (unknown.promise, unknown.rules) == (None, ())


def test_the_index_says_how_many_rows_could_differ_and_which_violations_count(
    one: RunSummary,
) -> None:
    rows = [
        {
            "clause": "A", "sort": "loss", "name": name, "other": "", "windows": 40, "occurred": n,
            "failed": 9, "both": min(n, 9), "runs": 2, "runs_with": 1, "low": 0.5, "high": 1.0,
            "low_elsewhere": 0.0, "high_elsewhere": 0.1, "p": p, "compared": n > 1,
            "differs": n > 1,
        }
        for name, n, p in (("common", 10, 0.001), ("rare", 1, 1.0))
    ]  # fmt: skip
    promised = Promises((), {"A": Clause("A", "", (), "A promise.")})
    pages = report_pages([run(one, "1", A="violated")], Statistics(clauses=rows), promised)
    assert "Of 2 rows, 1 could differ, and were compared; 1 of them differ." in pages.index
    for page in (pages.index, pages.clauses["clauses/A.html"]):
        assert f"of a clause in one run, the first\n{VIOLATIONS} count" in page
