"""A silent broker under controllers that replace each other (QC-14)."""

from __future__ import annotations

from itertools import cycle, islice

import pytest
from tests.suites.brokers.broker_histories import record
from tests.suites.brokers.lease_histories import LEASE_MS, ONE, TWO, answer, verdict

from fencepost import FaultInjected
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ControllerElected, ControllerResigned

VIOLATED, NOT_EXERCISED = Outcome.VIOLATED, Outcome.NOT_EXERCISED


def silent(h: HistoryBuilder) -> None:
    """A controller hears from an unfenced broker for the last time."""
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    record(h, 5, fenced=False)
    answer(h)


def elections(h: HistoryBuilder, number: int, first: int = 2) -> None:
    """So many controllers replace each other, none in time to be late by itself."""
    for epoch, process in enumerate(islice(cycle((TWO, ONE)), number), start=first):
        h.after(2 * LEASE_MS - 1)
        h.add(process, ControllerElected(epoch=epoch, log_end=6, last_epoch=epoch - 1))


@pytest.mark.parametrize(("number", "outcome"), [(5, NOT_EXERCISED), (6, VIOLATED)])
def test_controllers_that_replace_each_other_fence_a_silent_broker_at_last(
    number: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    silent(h)
    elections(h, number)
    found = verdict(h, "QC-14")
    assert found.verdict is outcome
    assert all(one.because == (h.events()[2].ref,) for one in found.violations)


@pytest.mark.parametrize(
    ("targets", "directions", "outcome"),
    [
        (("controller-1",), (), NOT_EXERCISED),
        (("controller-1", "controller-2"), ("controller-1 -> controller-2",), NOT_EXERCISED),
        (("broker-1", "controller-1"), ("broker-1 -> controller-1",), VIOLATED),
        (("broker-1",), (), VIOLATED),
    ],
)
def test_a_fault_upon_others_may_be_why_they_replace_each_other(
    targets: tuple[str, ...], directions: tuple[str, ...], outcome: Outcome
) -> None:
    h = HistoryBuilder()
    silent(h)
    fault = FaultInjected(
        fault_id="f-1",
        fault="f",
        targets=targets,
        receipt=True,
        evidence="measured",
        directions=directions,
    )
    h.add("harness", fault)
    elections(h, 10)
    assert verdict(h, "QC-14").verdict is outcome


def test_time_without_a_controller_is_nobodys() -> None:
    h = HistoryBuilder()
    silent(h)
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.after(600_000)
    elections(h, 3)
    assert verdict(h, "QC-14").verdict is NOT_EXERCISED


def test_a_broker_that_is_heard_again_is_silent_from_then_on() -> None:
    h = HistoryBuilder()
    silent(h)
    elections(h, 4)
    answer(h, process=ONE, epoch=5, start_ms=60)
    elections(h, 4, first=6)
    assert verdict(h, "QC-14").verdict is NOT_EXERCISED


def test_a_broker_that_a_record_fences_is_left_alone() -> None:
    h = HistoryBuilder()
    silent(h)
    elections(h, 3)
    record(h, 9, fenced=True)
    elections(h, 10, first=5)
    assert verdict(h, "QC-14").verdict is NOT_EXERCISED
