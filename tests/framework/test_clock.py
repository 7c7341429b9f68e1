"""Clock: the one place that waits for what gives no event to wait for."""

from __future__ import annotations

import time
from datetime import timedelta

from fencepost.clock import SECOND, now_ns, poll, wall_clock


def test_poll_asks_until_it_holds() -> None:
    answers = iter([False, False, True, False])
    assert poll(lambda: next(answers), 10)
    assert next(answers) is False  # it asked no further


def test_poll_asks_once_at_least_and_ends_at_its_limit() -> None:
    asked = []
    began = now_ns()
    assert not poll(lambda: bool(asked.append(1)), 0)
    assert asked == [1]
    assert not poll(lambda: False, 0.05)
    assert SECOND > now_ns() - began > SECOND // 20


def test_now_is_the_hosts_monotonic_clock() -> None:
    assert time.monotonic_ns() <= now_ns() <= time.monotonic_ns()


def test_the_calendar_is_in_utc() -> None:
    assert wall_clock().utcoffset() == timedelta(0)
