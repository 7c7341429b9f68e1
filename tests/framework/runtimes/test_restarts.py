"""Which slots are started again, and when the run gives up."""

from __future__ import annotations

import pytest

from fencepost import Slot
from fencepost.model.clock import SECOND
from fencepost.runtimes.restarts import Restarts

SLOT = Slot("server-1", "server", 1, 1)


@pytest.fixture
def restarts() -> Restarts:
    made = Restarts()
    made.active = True
    return made


def test_a_slot_is_due_a_second_after_its_node_ended(restarts: Restarts) -> None:
    assert restarts.crashed(SLOT, 5 * SECOND)
    assert restarts.next_ns(limit_ns=60 * SECOND) == 6 * SECOND
    assert restarts.next_ns(limit_ns=5 * SECOND) == 5 * SECOND
    assert restarts.due(6 * SECOND - 1) == []
    assert restarts.due(6 * SECOND) == ["server-1"]


def test_a_slot_that_somebody_else_started_is_not_started_again(restarts: Restarts) -> None:
    restarts.crashed(SLOT, 5 * SECOND)
    restarts.started(SLOT)
    assert restarts.due(60 * SECOND) == []
    assert restarts.next_ns(limit_ns=9) == 9


@pytest.mark.parametrize(("third_s", "again"), [(60, False), (61, True)])
def test_the_third_crash_within_a_minute_is_the_last(
    restarts: Restarts, third_s: int, again: bool
) -> None:
    for at_s in (0, 30):
        assert restarts.crashed(SLOT, at_s * SECOND)
    assert restarts.crashed(SLOT, third_s * SECOND) is again


def test_crashes_of_other_slots_do_not_count(restarts: Restarts) -> None:
    for number in range(1, 5):
        assert restarts.crashed(Slot(f"server-{number}", "server", number, number), SECOND)


def test_a_node_whose_id_two_processes_had_is_left_to_the_fault(restarts: Restarts) -> None:
    for _ in range(4):
        assert restarts.crashed(SLOT, SECOND, rivalled=True)
    assert restarts.due(60 * SECOND) == []


def test_nothing_is_started_again_before_the_cluster_was_ready_once() -> None:
    for rivalled in (False, True):
        assert not Restarts().crashed(SLOT, SECOND, rivalled=rivalled)


@pytest.mark.parametrize(("third_s", "words"), [(60, "3 times within a minute"), (61, "")])
def test_three_crashes_are_named_if_they_came_within_a_minute(
    restarts: Restarts, third_s: int, words: str
) -> None:
    for at_s in (0, 30, third_s):
        restarts.crashed(SLOT, at_s * SECOND)
    assert words in restarts.why_not(SLOT.name)
    assert bool(restarts.why_not(SLOT.name)) is bool(words)
