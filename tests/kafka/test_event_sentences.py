"""What events say of themselves where a figure is not known."""

from __future__ import annotations

from msgspec import structs

from fencepost_kafka import LeaseExpired

EXPIRED = LeaseExpired(
    broker_id=3,
    broker_epoch=7,
    last_heard_ns=1_000_000_000,
    now_ns=4_200_000_000,
    lease_period_ms=3_000,
    controller_epoch=2,
)


def test_an_expired_lease_says_how_long_the_broker_was_silent() -> None:
    assert EXPIRED.sentence().endswith("silent for 3200 ms of 3000")


def test_without_the_last_heartbeat_it_says_only_that_the_lease_was_exceeded() -> None:
    unknown = structs.replace(EXPIRED, last_heard_ns=-1)
    assert unknown.sentence().endswith("silent for more than 3000 ms")
