"""`fencepost bisect` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from warm_start import fencepost

pytestmark = pytest.mark.tool

BOTH = ("--system", "reference/legacy", "--system", "reference/classic")
SIMULATED = ("--runtime", "simulated")


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    made = fencepost(
        *("soak", "--system", "reference/legacy", *SIMULATED),
        *("--runs", "1", "--minutes", "0.05", "--seed", "4", "--keep"),
        folder=tmp_path,
    )
    assert made.returncode == 0
    (schedule,) = tmp_path.glob("**/schedule.json")
    return str(schedule.parent)


def test_what_the_newest_keeps_is_broken_by_none(recorded: str, tmp_path: Path) -> None:
    words = ("bisect", recorded, *BOTH, *SIMULATED, "--clause", "JEPSEN-unseen")
    shown = fencepost(*words, "--times", "2", folder=tmp_path)
    assert shown.stdout.splitlines() == [
        "reference/classic keeps JEPSEN-unseen (2 runs)",
        "the newest, reference/classic, keeps it: exit code 3",
    ]
    assert shown.returncode == 3
    found = json.loads(fencepost(*words, "--times", "1", "--json", folder=tmp_path).stdout)
    assert (found["first"], found["systems"]) == (None, {"reference/classic": False})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (BOTH, "broke no promise: name one by --clause"),
        ((*BOTH, "--clause", "RP-99"), "there is no clause RP-99"),
        ((*BOTH[:2], "--clause", "RP-04"), "name two systems or more, each once"),
    ],
    ids=["nothing-broken", "no-clause", "one-system"],
)
def test_what_cannot_be_searched_is_named(
    arguments: tuple[str, ...], says: str, recorded: str, tmp_path: Path
) -> None:
    refused = fencepost("bisect", recorded, *arguments, *SIMULATED, folder=tmp_path)
    assert refused.returncode == 2
    assert says in refused.stderr
