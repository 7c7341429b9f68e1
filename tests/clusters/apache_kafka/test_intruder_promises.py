"""KR-01 by what a second process with an id tells."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    DUPLICATE,
    FIRST,
    OBSERVER,
    REFUSAL,
    claimed,
    ended,
    injected,
    record,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerStateChanged, HeartbeatRefused, MetadataCommitted

READ_MS = 5_000
"""A record may be read this much later."""


def runs(h: HistoryBuilder, process: str) -> None:
    body = BrokerStateChanged(
        broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=10, reason="unfenced"
    )
    h.add(process, body)


def refused(h: HistoryBuilder, error: str, process: str = DUPLICATE) -> None:
    h.add(process, HeartbeatRefused(broker_id=1, broker_epoch=-1, error=error, controller=-1))


def read_on(h: HistoryBuilder) -> HistoryBuilder:
    """An observer still reads when each record must have been read."""
    h.after(READ_MS + 10)
    h.add(OBSERVER, MetadataCommitted(offset=99, epoch=1, kind="NoOpRecord", digest=""))
    return h


def test_a_second_process_that_runs_with_the_id_breaks_kr_01() -> None:
    h = claimed()
    runs(h, FIRST)
    runs(h, DUPLICATE)
    found = verdict(read_on(h), "KR-01")
    assert (found.violated, found.violations[0].evidence) == (1, Evidence.PEER)
    assert stated(found, "process", "broker") == (DUPLICATE, "broker 1")


@pytest.mark.parametrize(("later_ms", "broken"), [(READ_MS - 1, 0), (READ_MS + 1, 1)])
def test_a_process_may_run_before_its_record_is_read(later_ms: int, broken: int) -> None:
    h = claimed()
    ended(h, FIRST)
    runs(h, DUPLICATE)
    record(h.after(later_ms), 20, fenced=True, incarnation="two")
    assert verdict(read_on(h), "KR-01").violated == broken


def test_a_refusal_for_another_reason_breaks_kr_01() -> None:
    h = claimed()
    refused(h, "UNKNOWN_SERVER_ERROR")
    found = verdict(read_on(h), "KR-01")
    assert stated(found, "process", "error", "holder") == (
        DUPLICATE,
        "UNKNOWN_SERVER_ERROR",
        FIRST,
    )


@pytest.mark.parametrize("error", [REFUSAL, "NOT_CONTROLLER", "INCONSISTENT_CLUSTER_ID"])
def test_a_refusal_since_the_id_is_taken_or_of_no_active_controller_keeps_kr_01(
    error: str,
) -> None:
    h = claimed()
    refused(h, error)
    assert verdict(read_on(h), "KR-01").violated == 0


def test_a_refusal_breaks_nothing_once_the_holder_is_gone_or_under_a_fault() -> None:
    gone, paused, fenced, own = claimed(), claimed(), claimed(), claimed()
    ended(gone, FIRST)
    injected(paused, "pause", FIRST)
    for h in (gone, paused, fenced):
        refused(h, "UNKNOWN_SERVER_ERROR")
    record(fenced, 20, fenced=True)  # its session was over; the record is read later
    refused(own, "UNKNOWN_SERVER_ERROR", FIRST)
    for h in (gone, paused, fenced, own):
        assert verdict(read_on(h), "KR-01").violated == 0


def test_it_is_undecided_if_no_observer_reads_on() -> None:
    for word in (runs, lambda h, one: refused(h, "UNKNOWN_SERVER_ERROR", one)):
        h = claimed()
        word(h, DUPLICATE)
        assert verdict(h.after(60_000), "KR-01").verdict is Outcome.UNKNOWN
        assert verdict(read_on(h), "KR-01", complete=False).verdict is Outcome.UNKNOWN
