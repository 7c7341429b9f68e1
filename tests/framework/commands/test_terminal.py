"""Output for a terminal: whole tables, and data that is neither markup nor control."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from fencepost.campaigns.conformance import MatrixRow
from fencepost.commands.terminal import (
    errors,
    print_json,
    print_line,
    print_matrix,
    print_run_table,
    print_verdicts,
    show,
)
from fencepost.judging.findings import Evidence
from fencepost.judging.verdicts import Judgement, Outcome, Verdict
from fencepost.model.text import printable
from fencepost.plugins.manager import load


def test_a_matrix_has_every_column_and_a_clauses_lines_together() -> None:
    rows = [
        MatrixRow(
            clause=clause,
            system=system,
            runtime="process",
            verdict=Outcome.HOLDS,
            exercised=12,
            evidence=Evidence.CLIENT,
            tests=("a", "b"),
        )
        for system in ("apache/kraft@4.3.1", "apache/kraft@3.9.2")
        for clause in ("QC-30", "RP-29")
    ]
    rows.append(
        MatrixRow(
            clause="QC-34",
            system="apache/kraft@4.3.1",
            runtime="docker",
            verdict=Outcome.NOT_APPLICABLE,
            exercised=0,
            evidence=None,
            tests=(),
        )
    )
    printed = StringIO()
    print_matrix(rows, load(), Console(file=printed, width=120))
    heading, *lines = (line.split() for line in printed.getvalue().splitlines())
    assert heading == ["clause", "system", "runtime", "verdict", "exercised", "evidence", "tests",
                       "promise"]  # fmt: skip
    assert [(line[0], line[1]) for line in lines] == [
        ("QC-30", "apache/kraft@4.3.1"),
        ("QC-30", "apache/kraft@3.9.2"),
        ("RP-29", "apache/kraft@4.3.1"),
        ("RP-29", "apache/kraft@3.9.2"),
    ]
    assert lines[0][2:7] == ["process", "holds", "12", "client", "2"]


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        ("a path [v2]/x[/y]z", "a path [v2]/x[/y]z"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\udcff", "\\udcff"),
        ("äöü 漢", "äöü 漢"),
    ],
)
def test_control_characters_are_printed_as_escapes(data: str, seen: str) -> None:
    assert printable(data) == seen


def test_data_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show(errors(), ("[red]out[/red]", "bold"), " proj[v2] x[/y]z :warning: \x1b[2J")
    assert capsys.readouterr().err == "[red]out[/red] proj[v2] x[/y]z :warning: \\x1b[2J\n"


def test_a_cell_of_a_table_is_never_markup() -> None:
    printed = StringIO()
    why = "takes ['controller-2:9093'] [/] for \x1b[31mthe quorum"
    row = MatrixRow(
        clause="QC-05",
        system="x",
        runtime="process",
        verdict=Outcome.UNKNOWN,
        exercised=0,
        evidence=None,
        tests=(),
        reason=why,
    )
    print_matrix([row], load(), Console(file=printed, width=220, markup=False))
    assert "takes ['controller-2:9093'] [/] for \\x1b[31mthe quorum" in printed.getvalue()


def test_a_run_and_the_demo_leave_out_the_same_clauses_and_the_demo_folds_what_holds() -> None:
    outcomes = {
        "QC-30": Outcome.HOLDS,
        "QC-34": Outcome.VIOLATED,
        "RP-29": Outcome.UNKNOWN,
        "RP-30": Outcome.NOT_EXERCISED,
        "ETCD-01": Outcome.NOT_APPLICABLE,
        "ETCD-02": Outcome.NOT_APPLICABLE,
    }
    of_demo, of_run = StringIO(), StringIO()
    judged = {clause: Verdict(outcome, 0, None, "") for clause, outcome in outcomes.items()}
    print_verdicts(Judgement(judged), Console(file=of_demo, width=120))
    rows = [
        MatrixRow(
            clause=clause,
            system="x",
            runtime="process",
            verdict=o,
            exercised=0,
            evidence=None,
            tests=(),
        )
        for clause, o in outcomes.items()
    ]
    print_run_table(rows, (), load(), Console(file=of_run, width=120))
    for printed, shown in ((of_demo, ["QC-34", "RP-29"]), (of_run, ["QC-30", "QC-34", "RP-29"])):
        lines = printed.getvalue().splitlines()
        named = [line.split()[0] for line in lines if line.startswith(("QC", "RP", "ETCD"))]
        assert named == shown
    assert "1 clause not exercised: " in of_run.getvalue()
    assert "; 2 clauses of other systems left out" in of_run.getvalue()
    assert (
        "1 of 4 clauses held; violated: QC-34; undecided: RP-29; never exercised: RP-30"
        in of_demo.getvalue()
    )


def test_a_result_is_printed_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = "out/x[/y]z \x1b]0;t\x07 \u202e \x9b \U000e0001"
    print_line(path)
    print_json({"path": path})
    line, whole = capsys.readouterr().out.splitlines()
    assert line == "out/x[/y]z \\x1b]0;t\\x07 \\u202e \\x9b \\U000e0001"
    assert json.loads(whole) == {"path": path}
    assert not set("\x1b\x07\u202e\x9b\U000e0001") & set(whole)
