"""A broker's answer counts against itself, though no other event tells which epochs it knew (BE-02,
BE-07, BE-08)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.suites.control_requests.control_request_histories import (
    FORMER,
    OWN,
    answer,
    outcome,
    register,
    send,
)

from fencepost.testing import HistoryBuilder, Outcome


@pytest.mark.parametrize(
    ("clause", "api"), [("BE-02", "UpdateMetadata"), ("BE-07", "LeaderAndIsr")]
)
@pytest.mark.parametrize(
    ("epoch", "changed", "broken"),
    [
        (FORMER, {}, True),
        (OWN, {}, False),
        # It may have registered while it worked on it.
        (FORMER, {"handled_ns": 1}, False),
    ],
)
def test_a_broker_that_obeys_a_request_for_a_lower_epoch_than_it_names_as_its_own(
    clause: str, api: str, epoch: int, changed: dict[str, Any], broken: bool
) -> None:
    """It keeps silent about its registration."""
    h = HistoryBuilder()
    answer(h, send(h, api, epoch), **{"broker_epoch": OWN, **changed})
    assert (outcome(h, clause) is Outcome.VIOLATED) is broken


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({"seen_epoch": 2}, True),
        ({"seen_epoch": 1}, False),
        ({"seen_epoch": 2, "error": "STALE_CONTROLLER_EPOCH"}, False),
        ({"seen_epoch": 2, "handled_ns": 1}, False),
    ],
)
def test_a_broker_that_obeys_a_controller_of_a_lower_epoch_than_it_has_seen_breaks_be_08(
    changed: dict[str, Any], broken: bool
) -> None:
    """It keeps silent about the request of the other controller."""
    h = HistoryBuilder()
    register(h, "broker-1#2", OWN)
    answer(h, send(h, "UpdateMetadata", OWN, controller_epoch=1), **changed)
    assert (outcome(h, "BE-08") is Outcome.VIOLATED) is broken
