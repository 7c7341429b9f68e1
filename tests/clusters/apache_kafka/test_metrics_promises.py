"""The rules about Kafka's metrics, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated

from fencepost import NodeStarted, Stalled
from fencepost.plugins.manager import load
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_clusters.apache_kafka.metrics import MetricsObserved
from fencepost_clusters.apache_kafka.rules.promises import RULES
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    ControllerElected,
    ControllerResigned,
    MetadataApplied,
    PartitionCommitted,
    TopicCommitted,
)

BROKER, CONTROLLER = "broker-1#1", "controller-1#1"
OBSERVER, READER = "clients/observer#1", "clients/metrics#1"
MS = 1_000_000
SETTLED_MS = 2_000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in RULES if rule.clause == clause]
    clauses = load().clauses
    return judge(h.events(), chosen, clauses, h.end(complete), "kraft").verdicts[clause]


def record(h: HistoryBuilder, offset: int, fenced: bool, broker: int = 1) -> None:
    h.add(
        OBSERVER,
        BrokerCommitted(
            offset=offset,
            broker_id=broker,
            broker_epoch=offset,
            fenced=fenced,
            incarnation=f"incarnation-{broker}",
        ),
    )


def partition(h: HistoryBuilder, offset: int, leader: int) -> None:
    h.add(
        OBSERVER,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=offset,
            isr=(1,),
            replicas=(1, 2),
        ),
    )


def applied(h: HistoryBuilder, offset: int) -> None:
    h.add(CONTROLLER, MetadataApplied(offset=offset, epoch=1))


def counts(h: HistoryBuilder, active: int, fenced: int, offline: int = 0) -> None:
    """The page that is read now, which has been stable for as long as a rule requires."""
    since_ns = h.now_ns - SETTLED_MS * MS
    h.add(
        READER,
        MetricsObserved(
            slot="controller-1", since_ns=since_ns, active_brokers=active, fenced_brokers=fenced,
            offline_partitions=offline,
        ),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ KR-07


def counting() -> HistoryBuilder:
    """Brokers 1 and 2; the second was fenced at offset 20, which the controller has applied."""
    h = HistoryBuilder()
    h.add(CONTROLLER, NodeStarted(role="controller", node_id=101, incarnation="", log_end=-1))
    for offset, broker in ((10, 1), (11, 2)):
        record(h, offset, fenced=False, broker=broker)
    applied(h, 11)
    h.after(10_000)
    record(h, 20, fenced=True, broker=2)
    applied(h, 20)
    return h


def test_a_count_that_is_unchanged_long_after_a_fencing_was_applied_breaks_kr_07() -> None:
    h = counting().after(SETTLED_MS)
    counts(h, 2, 0)
    broken = verdict(h, "KR-07")
    assert broken.violated == 1
    assert stated(broken, "process", "active", "fenced") == (CONTROLLER, 2, 0)


def test_a_count_that_agrees_exercises_kr_07() -> None:
    h = counting().after(SETTLED_MS)
    counts(h, 1, 1)
    counts(h, 1, 1)
    kept = verdict(h, "KR-07")
    assert (kept.verdict, kept.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize(("new_ms", "broken"), [(SETTLED_MS - 1, 0), (SETTLED_MS, 1)])
def test_a_count_may_still_be_the_old_one_while_the_fencing_is_new(
    new_ms: int, broken: int
) -> None:
    h = counting().after(new_ms - 1)
    counts(h, 1, 1)  # the new one
    assert verdict(h, "KR-07").violated == 0
    h = counting().after(new_ms - 1)
    counts(h, 2, 0)
    assert verdict(h, "KR-07").violated == broken


def test_a_page_that_has_just_changed_is_not_judged() -> None:
    h = counting().after(SETTLED_MS)
    h.add(
        READER,
        MetricsObserved(
            slot="controller-1",
            since_ns=h.now_ns - 500 * MS,
            epoch=-1,
            active_controllers=0,
            active_brokers=9,
            fenced_brokers=9,
            offline_partitions=9,
        ),
    )
    assert verdict(h, "KR-07").verdict is Outcome.NOT_EXERCISED


def test_a_record_that_comes_late_excuses_and_one_that_was_not_applied_does_not() -> None:
    for offset, violated in ((30, 0), (31, 1)):
        h = counting()
        applied(h, 30)
        h.after(SETTLED_MS)
        counts(h, 2, 0)
        record(h, offset, fenced=False, broker=2)
        assert verdict(h, "KR-07").violated == violated


def test_the_pages_of_the_process_before_do_not_count_against_its_successor() -> None:
    h = counting().after(SETTLED_MS)
    h.add(
        "controller-1#2",
        NodeStarted(role="controller", node_id=101, incarnation="", log_end=-1),
    )
    h.add("controller-1#2", MetadataApplied(offset=20, epoch=1))
    counts(h, 2, 0)
    assert verdict(h, "KR-07").verdict is Outcome.NOT_EXERCISED


def test_a_page_without_counts_is_not_judged() -> None:
    h = counting().after(SETTLED_MS)
    counts(h, -1, -1)
    assert verdict(h, "KR-07").verdict is Outcome.NOT_EXERCISED


def test_partitions_without_a_leader_are_counted_until_they_are_deleted() -> None:
    h = counting()
    partition(h, 21, leader=0)
    applied(h, 21)
    h.after(SETTLED_MS)
    counts(h, 1, 1, offline=0)  # a broker may have the id 0
    assert verdict(h, "KR-07").exercised == 1
    partition(h, 22, leader=-1)
    applied(h, 22)
    h.after(SETTLED_MS)
    counts(h, 1, 1, offline=1)
    assert verdict(h, "KR-07").exercised == 2
    h.add(OBSERVER, TopicCommitted(offset=23, topic="orders", topic_id="id", deleted=True))
    applied(h, 23)
    h.after(SETTLED_MS)
    counts(h, 1, 1, offline=0)
    assert verdict(h, "KR-07").exercised == 3
    h.add(OBSERVER, BrokerDeleted(offset=24, broker_id=2))
    applied(h, 24)
    h.after(SETTLED_MS)
    counts(h, 1, 0, offline=0)
    assert verdict(h, "KR-07").exercised == 4
    counts(h, 1, 0, offline=1)
    assert verdict(h, "KR-07").verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------------ KR-08


def says(h: HistoryBuilder, active: int, for_ms: int = SETTLED_MS) -> None:
    """The page that is read now, and has said so for that long."""
    since_ns = h.now_ns - for_ms * MS
    h.add(
        READER,
        MetricsObserved(slot="controller-1", since_ns=since_ns, epoch=1, active_controllers=active),
    )


def started() -> HistoryBuilder:
    h = HistoryBuilder()
    h.add(CONTROLLER, NodeStarted(role="controller", node_id=101, incarnation="", log_end=-1))
    return h.after(5_000)


def elected() -> HistoryBuilder:
    h = started()
    h.add(CONTROLLER, ControllerElected(epoch=1, log_end=1, last_epoch=-1))
    return h


def test_an_active_controller_that_reports_it_is_not_breaks_kr_08() -> None:
    h = elected().after(SETTLED_MS)
    says(h, 0)
    assert stated(verdict(h, "KR-08"), "process", "count") == (CONTROLLER, 0)


def test_an_inactive_controller_that_reports_it_is_active_breaks_kr_08() -> None:
    h = elected()
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="higher_epoch"))
    h.after(SETTLED_MS)
    says(h, 1)
    assert verdict(h, "KR-08").violated == 1


def test_an_active_controller_that_reports_it_exercises_kr_08_once_a_term() -> None:
    h = elected().after(SETTLED_MS)
    says(h, 1)
    says(h, 1)
    assert verdict(h, "KR-08").exercised == 1
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="higher_epoch"))
    h.add(CONTROLLER, ControllerElected(epoch=3, log_end=1, last_epoch=-1))
    h.after(SETTLED_MS)
    says(h, 1)
    assert verdict(h, "KR-08").exercised == 2


def test_a_controller_that_was_never_elected_is_not_active() -> None:
    for active, broken in ((1, 1), (0, 0)):
        h = started()
        says(h, active)
        found = verdict(h, "KR-08")
        assert (found.violated, found.exercised) == (broken, 0)


def test_a_page_that_has_just_changed_or_has_no_such_figure_is_not_judged_by_kr_08() -> None:
    h = started()
    says(h, 1, for_ms=SETTLED_MS - 1)
    says(h, -1)
    assert verdict(h, "KR-08").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("for_ms", "broken"), [(SETTLED_MS, 0), (SETTLED_MS + 1, 1)])
def test_a_page_has_two_seconds_to_show_an_election(for_ms: int, broken: int) -> None:
    h = elected().after(for_ms - 1)
    says(h, 0)
    assert verdict(h, "KR-08").violated == broken


@pytest.mark.parametrize(("for_ms", "broken"), [(SETTLED_MS - 1, 0), (SETTLED_MS, 1)])
def test_a_page_has_two_seconds_to_show_a_resignation(for_ms: int, broken: int) -> None:
    h = elected()
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="higher_epoch"))
    says(h.after(for_ms - 1), 1)
    assert verdict(h, "KR-08").violated == broken


def test_either_is_right_during_an_election_or_a_resignation() -> None:
    for active in (0, 1):
        h = elected().after(SETTLED_MS - 10)
        says(h, active)
        assert verdict(h, "KR-08").violated == 0
        h = elected()
        h.add(CONTROLLER, ControllerResigned(epoch=1, reason="higher_epoch"))
        h.after(SETTLED_MS - 10)
        says(h, active)
        assert verdict(h, "KR-08").violated == 0


def running(unfenced: bool | None) -> HistoryBuilder:
    """A broker that reports RUNNING; its record, if any, is committed afterwards."""
    h = HistoryBuilder()
    h.add(CONTROLLER, ControllerElected(epoch=1, log_end=1, last_epoch=-1))
    h.add(
        BROKER,
        NodeStarted(role="broker", node_id=1, incarnation="incarnation-1", log_end=-1),
    )
    h.add(READER, MetricsObserved(slot="broker-1", since_ns=h.now_ns, epoch=1, broker_state=3))
    if unfenced is not None:
        record(h, 10, fenced=not unfenced)
    return h


def test_a_broker_that_runs_and_was_never_unfenced_breaks_kr_08() -> None:
    for unfenced in (None, False):
        assert stated(verdict(running(unfenced), "KR-08"), "process") == BROKER
        assert verdict(running(unfenced), "KR-08", complete=False).verdict is Outcome.UNKNOWN


def test_a_broker_that_runs_and_was_unfenced_exercises_kr_08() -> None:
    assert verdict(running(True), "KR-08").verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("stalled_ns", "outcome"),
    [
        (SETTLED_MS * MS // 10, Outcome.VIOLATED),
        (SETTLED_MS * MS // 10 + 1, Outcome.UNKNOWN),
        (SETTLED_MS * MS // 2, Outcome.UNKNOWN),
    ],
)
def test_a_page_read_while_the_machine_stalled_decides_nothing(
    stalled_ns: int, outcome: Outcome
) -> None:
    for clause in ("KR-07", "KR-08"):
        h = counting() if clause == "KR-07" else elected()
        h.after(SETTLED_MS)
        h.add("harness", Stalled(stalled_ns=stalled_ns))
        (counts(h, 2, 0) if clause == "KR-07" else says(h, 0))
        assert verdict(h, clause).verdict is outcome
