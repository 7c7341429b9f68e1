"""`fencepost compare` at the command line: its table, its object, its exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from warm_start import Ended, fencepost

from fencepost.campaigns.compare import Row, share
from fencepost.commands.compare import table_of

pytestmark = pytest.mark.tool

BOTH = ("--system", "reference/legacy", "--system", "reference/classic")
SHORT = ("--runtime", "simulated", "--runs", "1", "--minutes", "0.05", "--seed", "4")
"""Both planes can follow the schedule of this seed."""


def compared(folder: Path, *arguments: str) -> Ended:
    return fencepost("compare", *arguments, folder=folder)


def test_systems_that_keep_every_promise_differ_in_none(tmp_path: Path) -> None:
    shown = compared(tmp_path, *BOTH, *SHORT)
    differing, *held, last = shown.stdout.splitlines()
    assert shown.returncode == 0
    assert differing == (
        "the systems differ (*: their intervals of 95% have nothing in common) in none"
    )
    assert len(held) == 2
    assert last == "nothing new: exit code 0"
    assert list(tmp_path.glob("**/run.json")) == []
    found = json.loads(compared(tmp_path, *BOTH, *SHORT, "--json", "--keep").stdout)
    assert len(list(tmp_path.glob("**/run.json"))) == 2
    assert found["systems"] == ["reference/legacy", "reference/classic"]
    assert found["clauses"] == []
    assert [(one["system"], one["schedule"], one["violated"]) for one in found["runs"]] == [
        ("reference/legacy", 0, []),
        ("reference/classic", 0, []),
    ]


def test_the_table_shows_every_system_however_many_there_are() -> None:
    systems = [f"apache/kraft@4.{number}.0" for number in range(9)]
    shares = {name: share(number % 2 * 4, 4) for number, name in enumerate(systems)}
    row = Row(clause="RP-04", shares=shares, known=("old",))
    shown = io.StringIO()
    Console(file=shown, width=200).print(table_of([row], systems))
    header, *lines = (line.split() for line in shown.getvalue().splitlines())
    assert header == ["clause", "system", "violated", "known"]
    assert lines[0] == ["RP-04", "*", systems[0], *["0", "of", "4", "(0%", "to", "49%)", "old"]]
    assert (
        lines[1:]
        == [
            [name, *("4 of 4 (51% to 100%)" if number % 2 else "0 of 4 (0% to 49%)").split()]
            for number, name in enumerate(systems)
        ][1:]
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--system", "reference/legacy"),
            "name two systems or more, each once",
        ),
        (
            ("--system", "reference/legacy", "--system", "reference/quorum"),
            "a schedule of reference/legacy does not fit reference/quorum: only one of them has "
            "controller-1, controller-2, controller-3, zookeeper-1",
        ),
        (
            ("--system", "apache/kraft@0.1", "--system", "apache/kraft"),
            "'0.1' is not a version of Kafka, such as 4.4.0",
        ),
        (("none", *BOTH), "there is no schedule"),
        ((), "Missing option '--system'."),
    ],
    ids=["one", "other-nodes", "no-version", "no-run", "none"],
)
def test_what_cannot_be_compared_is_named(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    refused = compared(tmp_path, *arguments, "--runtime", "simulated")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"fencepost: {says}")
    assert len(refused.stderr.splitlines()) == 1
