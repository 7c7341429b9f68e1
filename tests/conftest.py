"""Settings of every test: Hypothesis measures no time, since the machine may stall.

The pytest that a test starts does not import Hypothesis, which takes a third of its start.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

SELDOM = (10_000, 20, 100)
"""Python's thresholds for a search for cycles are 700, 10 and 10."""


@pytest.fixture(scope="session", autouse=True)
def without_hypothesis() -> Iterator[None]:
    """For each pytest that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest", prepend=" ")
        yield


@pytest.fixture(scope="session", autouse=True)
def signals_as_from_a_terminal() -> None:
    """What is ignored here is ignored by all programs that a test starts: in the background of a
    shell that is the interrupt, and a test of one waited in vain."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            interrupts = number is signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupts else signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Histories are many small values without cycles: a tenth of a simulated run went into looking
    for cycles among them, and among all that was imported. Once is enough for a process: searches
    and others begin sessions within a test."""
    if gc.get_threshold() == SELDOM:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
