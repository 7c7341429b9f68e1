"""What is printed for people: every column of a table is there, however long a promise is."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from fencepost.campaigns.conformance import MatrixRow
from fencepost.commands.terminal import print_matrix
from fencepost.judging.judge import Outcome
from fencepost.judging.rules import Evidence
from fencepost.plugins.manager import load


def test_a_matrix_has_every_column_and_a_clauses_lines_together() -> None:
    rows = [
        MatrixRow(clause, system, "process", Outcome.HOLDS, 12, Evidence.CLIENT, ("a", "b"))
        for system in ("apache/kraft@4.3.1", "apache/kraft@3.9.2")
        for clause in ("QC-30", "RP-29")
    ]
    rows.append(
        MatrixRow("QC-34", "apache/kraft@4.3.1", "docker", Outcome.NOT_APPLICABLE, 0, None, ())
    )
    printed = StringIO()
    print_matrix(rows, load(), Console(file=printed, width=120))
    heading, *lines = (line.split() for line in printed.getvalue().splitlines())
    assert heading == ["clause", "system", "runtime", "verdict", "exercised", "evidence", "tests",
                       "promise"]  # fmt: skip
    assert [(line[0], line[1]) for line in lines] == [
        ("QC-30", "apache/kraft@4.3.1"),
        ("QC-30", "apache/kraft@3.9.2"),
        ("QC-34", "apache/kraft@4.3.1"),
        ("RP-29", "apache/kraft@4.3.1"),
        ("RP-29", "apache/kraft@3.9.2"),
    ]
    assert lines[0][2:7] == ["process", "holds", "12", "client", "2"]
