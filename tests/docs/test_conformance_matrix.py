"""The recorded matrix of clauses has no hole, and is made of what the command prints."""

from __future__ import annotations

from fencepost_reference import matrix
from fencepost_reference.loaded import plugins
from fencepost_reference.matrix import Outcome, Record

SYSTEMS = ("reference/quorum", "reference/legacy", "reference/classic")
ELSEWHERE = {
    # Only the simulator has disks that lose what was not synced.
    ("RP-26", "process"),
    ("RP-26", "docker"),
    # Only processes show a page of metrics.
    ("QC-37", "simulated"),
}
"""The clauses that one runtime cannot show, so that another one has to."""


OF_PROGRAMS = "apps"
"""The source of the clauses about programs of the user's: the suites start none."""


def test_every_clause_that_binds_the_reference_cluster_holds_on_each_recorded_runtime() -> None:
    record = matrix.read()
    found = {(one.clause, one.system, one.runtime): one for one in record.outcomes}
    planes = {name: plugins().systems[name].plane for name in SYSTEMS}
    holes = []
    for clause, described in plugins().clauses.items():
        if described.source == OF_PROGRAMS:
            continue
        for column in record.made:
            system, runtime = column.split()
            if not described.binds(planes[system]):
                continue
            one = found.get((clause, system, runtime))
            may_lack = (clause, runtime) in ELSEWHERE
            allowed = ("holds", "not-exercised") if may_lack else ("holds",)
            if one is None or one.verdict not in allowed:
                holes.append((clause, column, one and one.verdict))
    assert holes == []


def test_each_system_was_tried() -> None:
    assert {name for name, _ in map(str.split, matrix.read().made)} == set(SYSTEMS)


def test_the_rows_of_a_later_command_replace_those_of_the_same_system_and_runtime() -> None:
    old = Outcome("RP-04", "reference/quorum", "process", "holds", 3)
    other = Outcome("RP-04", "reference/quorum", "docker", "holds", 1)
    before = Record(
        {"reference/quorum process": "2026-01-01", "reference/quorum docker": "2026-01-02"},
        (old, other),
    )
    row = {"system": "reference/quorum", "runtime": "process", "exercised": 4, "tests": []}
    rows = [
        {**row, "clause": "RP-04", "verdict": "holds"},
        {**row, "clause": "RP-05", "verdict": "not-applicable"},
    ]
    after = matrix.added(before, rows, "2026-02-01")
    assert after.made == {
        "reference/quorum process": "2026-02-01",
        "reference/quorum docker": "2026-01-02",
    }
    assert after.outcomes == [Outcome("RP-04", "reference/quorum", "process", "holds", 4), other]
