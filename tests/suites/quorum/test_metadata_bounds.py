"""The metadata's rules at their exact bounds, and what does not count (QC-11, QC-12, QC-25,
QC-33)."""

from __future__ import annotations

import pytest
from tests.suites.quorum import test_metrics_rules as metrics
from tests.suites.quorum.test_metadata_rules import ONE, THREE, TWO, asked, verdict
from tests.suites.quorum.test_metrics_rules import ACTIVE, BROKER, committed, controller

from fencepost import Cause, Event, Evidence, NodeStarted, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    ControllerElected,
    FeatureFinalized,
    HeartbeatAnswered,
    MetadataCommitted,
    MetadataDigest,
    SnapshotAsked,
    SnapshotKnown,
    SnapshotLoaded,
    SnapshotStarted,
    SnapshotStored,
)

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED


@pytest.fixture
def h() -> HistoryBuilder:
    """A history in which three controllers have begun."""
    built = HistoryBuilder()
    for node_id, process in ((101, ONE), (102, TWO), (103, THREE)):
        built.add(
            process,
            NodeStarted(role="controller", node_id=node_id, incarnation=process, log_end=0),
        )
    return built


# ------------------------------------------------------------------------------------------ QC-11


def step(h: HistoryBuilder, name: str) -> None:
    if name == "starts":
        h.add(ONE, SnapshotStarted(offset=32, entities=5, controller_epoch=1))
    elif name == "replays":
        h.add(ONE, MetadataCommitted(offset=32, epoch=1, kind="IsrChange", digest="x"))
    elif name == "loads":
        h.add(ONE, SnapshotLoaded(offset=40, epoch=1, digest="cc"))
    else:
        h.add(ONE, SnapshotStored(offset=32, epoch=1, records=5, entities=5, level=1, digest="aa"))


@pytest.mark.parametrize(
    ("steps", "exercised"),
    [
        (("starts", "replays", "stores"), 1),
        (("starts", "replays", "stores", "stores"), 1),
        (("starts", "replays", "starts", "stores"), 0),
        (("starts", "stores", "replays", "stores"), 0),
        (("starts", "loads", "replays", "stores"), 0),
    ],
)
def test_only_a_record_that_is_replayed_while_a_snapshot_is_written_exercises_qc_11(
    h: HistoryBuilder, steps: tuple[str, ...], exercised: int
) -> None:
    h.add(TWO, MetadataDigest(offset=32, entities=5, digest="aa"))
    for name in steps:
        step(h, name)
    assert verdict(h, "QC-11").exercised == exercised


# ------------------------------------------------------------------------------------------ QC-12


def asked_with(h: HistoryBuilder, last_offset: int) -> Event:
    """Controller 102 is asked for a snapshot, and has one already."""
    return h.add(
        ONE,
        SnapshotAsked(
            controller=102,
            last_offset=last_offset,
            committed=100,
            controller_epoch=1,
            waited=False,
            patience_ms=3000,
        ),
    )


def starts(h: HistoryBuilder, process: str) -> None:
    h.add(process, SnapshotStarted(offset=100, entities=5, controller_epoch=1))


@pytest.mark.parametrize(("ms", "outcome"), [(2999, VIOLATED), (3000, NOT_EXERCISED)])
def test_a_controller_waits_for_a_snapshot_as_long_as_it_says(
    h: HistoryBuilder, ms: int, outcome: Outcome
) -> None:
    asked(h, 102)
    h.after(ms - 1)
    asked(h, 103)
    assert verdict(h, "QC-12").verdict is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(2999, VIOLATED), (3000, NOT_EXERCISED)])
def test_a_snapshot_that_has_begun_may_be_given_up_as_late(
    h: HistoryBuilder, ms: int, outcome: Outcome
) -> None:
    asked(h, 102)
    h.after(3000)
    starts(h, TWO)
    asked(h, 103)
    h.after(ms - 2)
    starts(h, THREE)
    assert verdict(h, "QC-12").verdict is outcome


@pytest.mark.parametrize(("offset", "outcome"), [(50, VIOLATED), (51, NOT_EXERCISED)])
def test_a_snapshot_has_ended_once_a_newer_one_is_known(
    h: HistoryBuilder, offset: int, outcome: Outcome
) -> None:
    """Controller 102 had one at offset 50 when it was asked for the next one."""
    h.add(ONE, SnapshotKnown(controller=102, offset=50, controller_epoch=1))
    body = asked_with(h, 50)
    h.add(ONE, SnapshotKnown(controller=102, offset=offset, controller_epoch=1))
    asked(h, 103)
    found = verdict(h, "QC-12")
    assert found.verdict is outcome
    assert [one.because for one in found.violations] == [(body.ref,)][: found.violated]


def test_a_snapshot_of_a_dead_controller_is_not_under_way(h: HistoryBuilder) -> None:
    asked(h, 102)
    starts(h, TWO)
    h.add("harness", ProcessExited(ended=TWO, exit_code=0, signal=9, expected=True))
    asked(h, 103)
    starts(h, THREE)
    assert {one.evidence for one in verdict(h, "QC-12").violations} == {Evidence.SELF}


def test_a_snapshot_that_waited_exercises_qc_12_once(h: HistoryBuilder) -> None:
    asked(h, 103, waited=True)
    starts(h, THREE)
    starts(h, THREE)
    assert verdict(h, "QC-12").exercised == 1


# ------------------------------------------------------------------------------------------ QC-33


@pytest.mark.parametrize(
    ("level", "kind", "version", "exercised"),
    [(2, "Broker", 1, 1), (1, "Broker", 0, 1), (0, "Broker", 0, 0), (2, "Topic", 0, 0)],
)
def test_a_kind_with_two_versions_exercises_qc_33_once_a_level_is_enabled(
    h: HistoryBuilder, level: int, kind: str, version: int, exercised: int
) -> None:
    if level:
        h.add(ONE, FeatureFinalized(offset=1, feature="metadata.format", level=level))
    h.add(ONE, MetadataCommitted(offset=2, epoch=1, kind=kind, digest="aa", version=version))
    found = verdict(h, "QC-33")
    assert (found.violated, found.exercised) == (0, exercised)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("what", ["record", "snapshot"])
def test_the_proof_of_qc_33_is_the_record_that_enabled_the_level(
    h: HistoryBuilder, what: str, enabled: bool
) -> None:
    level: tuple[Cause, ...] = ()
    if enabled:
        level = (h.add(ONE, FeatureFinalized(offset=1, feature="metadata.format", level=1)).ref,)
    if what == "record":
        h.add(ONE, MetadataCommitted(offset=2, epoch=1, kind="Broker", digest="aa", version=1))
    else:
        h.add(ONE, SnapshotStored(offset=9, epoch=1, records=5, entities=5, level=2, digest="aa"))
    (found,) = verdict(h, "QC-33").violations
    assert found.because == level


# ------------------------------------------------------------------------------------------ QC-25


@pytest.fixture
def reporting() -> HistoryBuilder:
    """A controller has committed 10 records since its election."""
    built = HistoryBuilder()
    built.add(ACTIVE, NodeStarted(role="controller", node_id=101, incarnation=ACTIVE, log_end=0))
    built.add(ACTIVE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    committed(built, ACTIVE, 0, 10)
    return built


@pytest.mark.parametrize(("offset", "lag"), [(0, 10), (7, 3)])
@pytest.mark.parametrize("loaded", [True, False])
def test_a_snapshot_that_was_loaded_or_stored_at_any_offset_has_a_lag(
    reporting: HistoryBuilder, loaded: bool, offset: int, lag: int
) -> None:
    if loaded:
        reporting.add(ACTIVE, SnapshotLoaded(offset=offset, epoch=1, digest="aa"))
    else:
        reporting.add(
            ACTIVE,
            SnapshotStored(offset=offset, epoch=1, records=1, entities=1, level=1, digest="aa"),
        )
    reporting.add(ACTIVE, controller(snapshot_lag=lag))
    assert metrics.verdict(reporting).verdict is NOT_EXERCISED


@pytest.mark.parametrize(("rate", "outcome"), [(0.001, NOT_EXERCISED), (0.002, VIOLATED)])
def test_a_rate_counts_from_the_report_before_and_may_be_rounded(
    reporting: HistoryBuilder, rate: float, outcome: Outcome
) -> None:
    reporting.add(ACTIVE, controller())
    reporting.add(ACTIVE, controller(commit_rate=rate, requests_rate=0.0, over_ms=1000.0))
    assert metrics.verdict(reporting).verdict is outcome


@pytest.mark.parametrize(("answered", "outcome"), [(6, NOT_EXERCISED), (7, VIOLATED)])
def test_a_controller_has_as_many_requests_as_it_answered_heartbeats_or_more(
    reporting: HistoryBuilder, answered: int, outcome: Outcome
) -> None:
    for _ in range(answered):
        reporting.add(
            ACTIVE,
            HeartbeatAnswered(
                client=BROKER,
                broker_id=1,
                incarnation="i",
                request_epoch=1,
                broker_epoch=1,
                error="NONE",
                next_state="ACTIVE",
                lease_start_ms=0,
                lease_end_ms=9,
                lease_period_ms=9,
                controller_epoch=1,
                active_controller=101,
                active=True,
            ),
        )
    reporting.add(ACTIVE, controller())
    assert metrics.verdict(reporting).verdict is outcome


@pytest.mark.parametrize(("more_ms", "outcome"), [(0, NOT_EXERCISED), (1, VIOLATED)])
def test_a_commit_took_no_longer_than_the_term(
    reporting: HistoryBuilder, more_ms: int, outcome: Outcome
) -> None:
    """The term may have begun at the event before its election."""
    took_ms = (reporting.now_ns - reporting.events()[0].at_ns) / 1_000_000
    reporting.add(ACTIVE, controller(commit_latency_ms=took_ms + more_ms))
    assert metrics.verdict(reporting).verdict is outcome


@pytest.mark.parametrize(("latency_ms", "outcome"), [(0.0, NOT_EXERCISED), (0.1, VIOLATED)])
def test_a_controller_that_was_never_elected_has_no_commit_latency(
    latency_ms: float, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    h.add(ACTIVE, NodeStarted(role="controller", node_id=101, incarnation=ACTIVE, log_end=0))
    committed(h, ACTIVE, 0, 10)
    h.add(ACTIVE, controller(commit_latency_ms=latency_ms))
    assert metrics.verdict(h).verdict is outcome
