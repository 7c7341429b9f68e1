"""Clock: the one place that polls for facts without an event."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from fencepost.model import clock
from fencepost.model.clock import now_ns, poll, wall_clock


def test_poll_asks_until_it_holds() -> None:
    answers = iter([False, False, True, False])
    assert poll(lambda: next(answers), 10)
    assert next(answers) is False  # it did not ask again


def test_poll_asks_once_at_least_and_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a clock on which only waiting takes time, since the machine itself may stall."""
    at_ms = [0]

    def sleep(for_s: float) -> None:
        at_ms[0] += round(for_s * 1000)

    asked = []
    stub = SimpleNamespace(monotonic=lambda: at_ms[0] / 1000, sleep=sleep)
    monkeypatch.setattr(clock, "time", stub)
    assert not poll(lambda: bool(asked.append(1)), 0)
    assert (asked, at_ms) == ([1], [0])
    assert not poll(lambda: False, 0.05, 0.002)
    assert at_ms == [50]


def test_now_is_the_hosts_monotonic_clock() -> None:
    assert time.monotonic_ns() <= now_ns() <= time.monotonic_ns()


def test_the_calendar_is_in_utc() -> None:
    assert wall_clock().utcoffset() == timedelta(0)
