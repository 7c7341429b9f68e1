"""The search for the first build that breaks a promise."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.campaigns.bisect import Bisected, next_to_try
from fencepost.campaigns.compare import Trial
from fencepost.commands.bisect import ending
from fencepost.judging.verdicts import Outcome

VIOLATED, HOLDS, UNKNOWN = Outcome.VIOLATED, Outcome.HOLDS, Outcome.UNKNOWN


def trial(system: str, outcome: Outcome, clause: str = "RP-06") -> Trial:
    return Trial(
        system=system,
        number=0,
        run=f"runs/{system}",
        verdicts={clause: outcome},
        known={},
        faults=1,
        without_receipt=0,
    )


@given(count=st.integers(2, 200), data=st.data())
def test_the_first_that_breaks_is_found_in_few_tries(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, count - 1))
    known: dict[int, bool | None] = {}
    while (place := next_to_try(known, count)) is not None:
        assert place not in known
        known[place] = place >= first
    assert known[first] is True
    assert known[first - 1] is False
    assert len(known) <= 2 + (count - 1).bit_length()


@pytest.mark.parametrize(
    ("known", "place"),
    [
        ({}, 4),
        ({4: True}, 0),
        ({4: True, 0: False}, 2),
        ({4: True, 0: False, 2: True}, 1),
        ({4: True, 0: False, 2: False}, 3),
        ({4: False}, None),
        ({4: None}, None),
        ({4: True, 0: True}, None),
        ({4: True, 0: False, 2: None}, None),
    ],
)
def test_the_ends_come_first_and_nothing_is_tried_in_vain(
    known: Mapping[int, bool | None], place: int | None
) -> None:
    assert next_to_try(known, 5) == place


def found(*trials: Trial) -> Bisected:
    return Bisected(["one", "two", "three"], ["RP-06", "RP-13"], list(trials))


def test_a_system_breaks_by_one_run_and_keeps_by_one_that_decided_it() -> None:
    tried = (trial("one", HOLDS), trial("two", UNKNOWN), trial("two", HOLDS, "RP-13"))
    broken = found(*tried, trial("three", HOLDS), trial("three", VIOLATED))
    assert broken.broken() == {0: False, 1: False, 2: True}
    assert broken.first() == 2
    assert found(trial("two", UNKNOWN)).broken() == {1: None}


def test_the_last_lines_name_the_first_that_breaks_and_a_run_that_shows_it() -> None:
    tried = (trial("three", VIOLATED), trial("one", HOLDS), trial("one", HOLDS))
    assert list(ending(found(*tried, trial("two", VIOLATED)))) == [
        "one keeps RP-06, RP-13 (2 runs)",
        "two breaks RP-06, RP-13 (1 run)",
        "three breaks RP-06, RP-13 (1 run)",
        "why: fencepost report runs/two      again: fencepost replay runs/two",
        "two is the first that breaks it: exit code 0",
    ]


@pytest.mark.parametrize(
    ("tried", "last"),
    [
        ([("three", HOLDS)], "the newest, three, keeps it: exit code 3"),
        (
            [("three", VIOLATED), ("one", VIOLATED)],
            "the oldest, one, breaks it, too: exit code 3",
        ),
        ([("three", UNKNOWN)], "not decided by three: exit code 3"),
    ],
)
def test_a_search_that_finds_nothing_says_why(tried: list[tuple[str, Outcome]], last: str) -> None:
    assert [*ending(found(*(trial(*one) for one in tried)))][-1] == last
