"""RP-10 at the record of a larger ISR: until then, the leader waits for the replica that enters."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import OBSERVER, raises, verdict
from tests.clusters.apache_kafka.stored_histories import (
    B1,
    B2,
    B3,
    SETTLED_MS,
    asked,
    begun,
    recorded,
    stores,
)
from tests.suites.partition_histories import stated

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_clusters.apache_kafka.rules.stored import READ_WITHIN_NS
from fencepost_kafka import LeadershipStarted, TopicCommitted

READ_WITHIN_MS = READ_WITHIN_NS // 1_000_000


def committed(mark: int, ago_ms: int = 2 * SETTLED_MS) -> HistoryBuilder:
    """Broker 3 has four messages, and may enter. Then the leader commits up to `mark`."""
    h = begun(1, 2)
    stores(h, B3, end=4)
    asked(h, (1, 2, 3), (1, 2))
    stores(h, B1, B2, end=5)
    raises(h, B1, mark)
    return h.after(ago_ms - 1)


def violated(h: HistoryBuilder) -> int:
    return verdict(h.after(2 * READ_WITHIN_MS), "RP-10").violated


def test_a_leader_that_commits_without_a_replica_before_its_record_breaks_kr_15() -> None:
    h = committed(5)
    recorded(h, 11, 1, 2, 3)
    assert violated(h) == 1
    found = verdict(h, "RP-10")
    assert stated(found, "record", "joining", "partition") == (11, "broker 3", "orders-0")
    assert stated(found, "process", "high_watermark") == ("broker-1#1", 5)
    assert stated(found, "lacking", "ends") == (("broker 3",), (4,))


@pytest.mark.parametrize(
    ("mark", "ago_ms", "broken"),
    [(4, 2 * SETTLED_MS, 0), (5, SETTLED_MS - 1, 0), (5, SETTLED_MS, 1)],
)
def test_only_what_the_leader_had_committed_for_a_while_counts(
    mark: int, ago_ms: int, broken: int
) -> None:
    h = committed(mark, ago_ms)
    recorded(h, 11, 1, 2, 3)
    assert violated(h) == broken


def test_it_counts_once_though_two_observers_read_the_record() -> None:
    h = committed(5)
    recorded(h, 11, 1, 2, 3)
    recorded(h, 11, 1, 2, 3)
    assert violated(h) == 1


def test_a_replica_that_has_stored_it_by_then_keeps_kr_15() -> None:
    h = committed(5)
    stores(h, B3, end=5)
    recorded(h, 11, 1, 2, 3)
    assert violated(h) == 0


@pytest.mark.parametrize(("later_ms", "broken"), [(READ_WITHIN_MS, 0), (READ_WITHIN_MS + 1, 1)])
def test_a_record_that_is_read_late_may_be_followed_by_a_smaller_isr(
    later_ms: int, broken: int
) -> None:
    h = committed(5)
    recorded(h, 11, 1, 2, 3)
    recorded(h.after(later_ms - 1), 12, 1, 2)
    assert violated(h) == broken


def test_an_older_record_that_is_read_late_proves_nothing() -> None:
    h = committed(5)
    recorded(h, 9, 1, 2, 3)
    assert violated(h) == 0


@pytest.mark.parametrize(("process", "epoch"), [(B1, 2), (B2, 1)], ids=["epoch", "process"])
def test_a_record_of_another_leadership_proves_nothing(process: str, epoch: int) -> None:
    """By a record of another leader epoch the replica may have entered in another way; and what
    another process had committed as the leader before does not count."""
    h = committed(5)
    began = LeadershipStarted(
        topic="orders", partition=0, leader_epoch=epoch, isr=(1, 2), log_start=-1, log_end=4,
        high_watermark=4,
    )  # fmt: skip
    h.add(process, began)
    if process == B1:
        raises(h, B1, 5)
    recorded(h.after(2 * SETTLED_MS), 11, 1, 2, 3)
    assert violated(h) == 0


def test_a_deleted_topic_proves_nothing() -> None:
    h = committed(5)
    h.add(OBSERVER, TopicCommitted(offset=12, topic="orders", topic_id="a", deleted=True))
    recorded(h, 13, 1, 2, 3)
    assert violated(h) == 0


def test_it_is_undecided_if_the_run_ends_before_a_smaller_isr_may_be_read() -> None:
    h = committed(5)
    recorded(h, 11, 1, 2, 3)
    assert verdict(h, "RP-10").verdict is Outcome.UNKNOWN
