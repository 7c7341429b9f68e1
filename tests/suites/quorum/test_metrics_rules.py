"""The metrics' rule, with violations, near misses and undecided histories."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated

from fencepost import Evidence, Fact, NodeStarted, PromiseObserved
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    ControllerElected,
    HeartbeatAnswered,
    MetadataCommitted,
    MetricsReported,
    SnapshotLoaded,
    SnapshotStored,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
ACTIVE, BROKER = "controller-1#1", "broker-1#1"


def verdict(h: HistoryBuilder, clause: str = "QC-25", complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def committed(h: HistoryBuilder, process: str, first: int, end: int) -> None:
    for offset in range(first, end):
        h.add(process, MetadataCommitted(offset=offset, epoch=1, kind="Topic", digest="aa"))


@pytest.fixture
def h() -> HistoryBuilder:
    """A controller has committed 10 records since its election, and a broker replayed 4."""
    built = HistoryBuilder()
    built.add(ACTIVE, NodeStarted(role="controller", node_id=101, incarnation=ACTIVE, log_end=0))
    built.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation=BROKER, log_end=0))
    built.add(ACTIVE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    committed(built, ACTIVE, 0, 10)
    committed(built, BROKER, 0, 4)
    return built


def controller(**of: float) -> MetricsReported:
    """What the controller reports after two seconds."""
    figures: dict[str, float] = {
        "commit_latency_ms": 1.5, "commit_rate": 5.0, "requests_rate": 3.0, "last_stable": 10,
        "replayed": 10, "commits": 10, "requests": 6, "over_ms": 2000.0,
    }  # fmt: skip
    return MetricsReported(role="controller", node_id=101, **(figures | of))  # type: ignore[arg-type]


@pytest.mark.parametrize("lag", [0, 5, 7])
def test_a_node_that_is_behind_and_reports_another_lag_breaks_qc_25(
    h: HistoryBuilder, lag: int
) -> None:
    h.add(
        BROKER,
        MetricsReported(role="broker", node_id=1, metadata_lag=lag, last_stable=10, replayed=4),
    )
    found = verdict(h).violations[0]
    assert stated(found, "lag", "replayed") == (lag, 4)
    assert found.evidence is Evidence.PEER


def test_a_peer_is_the_evidence_only_if_it_has_replayed_what_is_reported(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        MetricsReported(role="broker", node_id=1, metadata_lag=5, last_stable=10, replayed=4),
    )
    by_peer = verdict(h).violations[0]
    assert (by_peer.evidence, [one.process for one in by_peer.because]) == (Evidence.PEER, [ACTIVE])


def test_without_such_a_peer_the_node_itself_is_the_evidence(h: HistoryBuilder) -> None:
    h.add(ACTIVE, controller(metadata_lag=1))
    alone = verdict(h).violations[0]
    assert (alone.evidence, alone.because) == (Evidence.SELF, ())


def test_a_lag_hidden_by_a_replay_that_did_not_happen_breaks_qc_25(
    h: HistoryBuilder,
) -> None:
    h.add(
        BROKER,
        MetricsReported(role="broker", node_id=1, metadata_lag=0, last_stable=10, replayed=10),
    )
    assert verdict(h).verdict is Outcome.VIOLATED


def test_a_node_that_reports_how_far_it_is_behind_keeps_qc_25(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        MetricsReported(role="broker", node_id=1, metadata_lag=6, last_stable=10, replayed=4),
    )
    h.add(BROKER, SnapshotLoaded(offset=9, epoch=1, digest="aa"))
    h.add(
        BROKER,
        MetricsReported(role="broker", node_id=1, metadata_lag=1, last_stable=10, replayed=9),
    )
    found = verdict(h)
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 2)


def test_a_node_that_knows_of_nothing_it_lacks_does_not_exercise_qc_25(
    h: HistoryBuilder,
) -> None:
    h.add(
        BROKER, MetricsReported(role="broker", node_id=1, metadata_lag=0, last_stable=4, replayed=4)
    )
    h.add(ACTIVE, controller())
    assert verdict(h).verdict is Outcome.NOT_EXERCISED


def test_a_lag_from_an_offset_that_was_never_committed_breaks_qc_25(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        MetricsReported(role="broker", node_id=1, metadata_lag=7, last_stable=11, replayed=4),
    )
    assert verdict(h).verdict is Outcome.VIOLATED


def test_a_broken_qc_25_names_the_first_report_of_an_offset_that_was_never_committed(
    h: HistoryBuilder,
) -> None:
    report = MetricsReported(role="broker", node_id=1, metadata_lag=7, last_stable=11, replayed=4)
    first = h.add(BROKER, report)
    h.add(BROKER, report)
    assert verdict(h).violations[0].at == first.ref


def test_the_commits_own_event_may_come_later_and_a_history_cut_short_leaves_it_undecided(
    h: HistoryBuilder,
) -> None:
    h.add(
        BROKER,
        MetricsReported(role="broker", node_id=1, metadata_lag=7, last_stable=11, replayed=4),
    )
    assert verdict(h, complete=False).verdict is not Outcome.VIOLATED
    committed(h, ACTIVE, 10, 11)
    assert verdict(h).verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("wrong", "facts"),
    [
        ({"commit_rate": 4.0}, {"metric": "MetadataCommitRate"}),
        ({"requests_rate": 4.0}, {"metric": "ControllerRequestsRate"}),
        ({"requests": 0, "requests_rate": 0.0}, {"requests": 0, "answered": 1}),
        ({"commit_latency_ms": 5000.0}, {"after_ms": 5000.0}),
        ({"snapshot_lag": 10}, {"lag": 10, "snapshot": -1}),
    ],
)
def test_figures_that_contradict_the_history_break_qc_25(
    h: HistoryBuilder, wrong: dict[str, float], facts: dict[str, Fact]
) -> None:
    heartbeat = HeartbeatAnswered(
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
    )
    h.add(ACTIVE, heartbeat)
    h.add(ACTIVE, controller(**wrong))
    assert facts.items() <= verdict(h).violations[0].facts.items()


@pytest.mark.parametrize(("waited_ms", "broken"), [(400.0, False), (600.0, True)])
def test_a_term_may_have_begun_before_its_election_event(waited_ms: float, broken: bool) -> None:
    h = HistoryBuilder()
    h.add(ACTIVE, NodeStarted(role="controller", node_id=101, incarnation=ACTIVE, log_end=0))
    h.after(ms=500).add(ACTIVE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    committed(h, ACTIVE, 0, 10)
    h.add(ACTIVE, controller(commit_latency_ms=waited_ms))
    assert (verdict(h).verdict is Outcome.VIOLATED) is broken


def test_the_snapshot_lag_is_counted_from_the_snapshot(h: HistoryBuilder) -> None:
    h.add(ACTIVE, SnapshotStored(offset=7, epoch=1, records=1, entities=1, level=1, digest="aa"))
    h.add(ACTIVE, controller(snapshot_lag=3))
    assert verdict(h).verdict is Outcome.NOT_EXERCISED
    h.add(ACTIVE, controller(snapshot_lag=0))
    assert verdict(h).verdict is Outcome.VIOLATED


def test_two_nodes_of_one_process_are_compared_with_their_own_reports(h: HistoryBuilder) -> None:
    h.add(ACTIVE, NodeStarted(role="broker", node_id=2, incarnation=ACTIVE, log_end=0))
    h.add(
        ACTIVE,
        MetricsReported(role="broker", node_id=2, metadata_lag=6, last_stable=10, replayed=4),
    )
    assert verdict(h).verdict is Outcome.HOLDS
    h.add(
        ACTIVE,
        MetricsReported(role="broker", node_id=2, metadata_lag=0, last_stable=10, replayed=4),
    )
    assert verdict(h).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("clause", ["QC-25", "QC-37"])
@pytest.mark.parametrize(("held", "outcome"), [(True, Outcome.HOLDS), (False, Outcome.VIOLATED)])
def test_a_tests_observation_of_a_metrics_page_counts(
    h: HistoryBuilder, clause: str, held: bool, outcome: Outcome
) -> None:
    assert verdict(h, clause).verdict is Outcome.NOT_EXERCISED
    h.add("harness", PromiseObserved(clause=clause, held=held, evidence="seen", seen_by="client"))
    assert verdict(h, clause).verdict is outcome
