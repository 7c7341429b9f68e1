"""The rules about brokers' answers, writes and leaderships until their end (REG-07 to KR-05), each
with a violation, a near miss and a history that decides nothing."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    FIRST,
    OBSERVER,
    PEER,
    begun,
    record,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    FollowingStarted,
    LeadershipStarted,
    MetadataApplied,
    PartitionCommitted,
    ProbeCompleted,
    TopicCommitted,
)

MS = 1_000_000

# ------------------------------------------------------------------------------------------ REG-07


def asked(h: HistoryBuilder, *named: int) -> None:
    h.add(
        "clients/probe-1#1",
        ProbeCompleted(
            operation="op-1",
            api="Metadata",
            broker=2,
            slot="broker-2",
            topic="orders",
            partition=-1,
            outcome="answered",
            error="",
            records=0,
            base_offset=-1,
            sent_at_ns=h.now_ns,
            brokers=named,
        ),
    )


def applies(h: HistoryBuilder, offset: int) -> None:
    h.add(PEER, MetadataApplied(offset=offset, epoch=1))


def fenced_and_applied(for_ms: int = 600) -> HistoryBuilder:
    """Broker 1 is fenced, and broker 2 has applied that for so long."""
    h = begun()
    record(h, 20, fenced=True)
    applies(h, 20)
    return h.after(for_ms - 1)


def test_a_fenced_broker_that_is_named_breaks_kr_03() -> None:
    h = fenced_and_applied()
    asked(h, 1, 2)
    assert stated(verdict(h, "REG-07"), "broker") == "broker 1"


def test_a_fenced_broker_that_is_left_out_exercises_kr_03() -> None:
    h = fenced_and_applied()
    asked(h, 2)
    assert verdict(h, "REG-07").verdict is Outcome.HOLDS


def test_a_broker_that_had_not_applied_the_fencing_may_name_it() -> None:
    h = begun()
    record(h, 20, fenced=True)
    applies(h, 19)
    h.after(600)
    asked(h, 1, 2)
    assert verdict(h, "REG-07").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("for_ms", "broken"), [(499, 0), (500, 1)])
def test_a_broker_has_half_a_second_to_apply_a_fencing(for_ms: int, broken: int) -> None:
    h = fenced_and_applied(for_ms)
    asked(h, 1, 2)
    assert verdict(h, "REG-07").violated == broken


def test_a_fencing_whose_record_is_read_later_than_it_was_applied_counts_for_kr_03() -> None:
    h = begun()
    applies(h, 20)
    record(h, 20, fenced=True)
    asked(h.after(600), 1, 2)
    assert verdict(h, "REG-07").verdict is Outcome.VIOLATED


def test_what_the_process_before_had_applied_does_not_count_for_kr_03() -> None:
    before, after = fenced_and_applied(), begun()
    begins_anew(before)
    applies(after, 20)
    begins_anew(after)
    record(after, 20, fenced=True)
    for h in (before, after):
        asked(h.after(600), 1, 2)
        assert verdict(h, "REG-07").verdict is Outcome.NOT_EXERCISED


def begins_anew(h: HistoryBuilder) -> None:
    """The next process of broker 2, which has applied nothing yet."""
    h.add("broker-2#2", NodeStarted(role="broker", node_id=2, incarnation="next", log_end=-1))


@pytest.mark.parametrize(
    ("offset", "broker", "broken"), [(24, 1, 0), (25, 1, 0), (26, 1, 1), (24, 3, 1)]
)
def test_an_unfencing_that_is_recorded_late_but_was_applied_excuses(
    offset: int, broker: int, broken: int
) -> None:
    h = fenced_and_applied()
    applies(h, 25)
    asked(h, 1, 2)
    record(h, offset, fenced=False, broker=broker)
    found = verdict(h, "REG-07")
    assert (found.violated, found.exercised) == (broken, 0)


def test_a_broker_that_is_unfenced_again_may_be_named() -> None:
    h = fenced_and_applied()
    record(h, 24, fenced=False)
    asked(h, 1, 2)
    assert verdict(h, "REG-07").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-04


def partition(h: HistoryBuilder, offset: int, leader: int, *isr: int) -> None:
    h.add(
        OBSERVER,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=offset,
            isr=isr,
            replicas=(1, 2),
        ),
    )


def stopping() -> HistoryBuilder:
    h = begun()
    partition(h, 12, 1, 1, 2)
    h.add(FIRST, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=300_000))
    return h


def left(h: HistoryBuilder, applied: int) -> None:
    h.add(FIRST, MetadataApplied(offset=applied, epoch=1))
    h.add(
        FIRST,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="SHUTDOWN", broker_epoch=10, reason="shutdown_granted"
        ),
    )


def test_a_broker_that_leaves_while_it_leads_breaks_kr_04() -> None:
    h = stopping()
    left(h, applied=15)
    partition(h, 16, 2, 2)
    assert stated(verdict(h, "KR-04"), "process", "partitions") == (FIRST, ("orders-0",))


def test_a_broker_that_leaves_once_its_leaderships_are_moved_exercises_kr_04() -> None:
    h = stopping()
    partition(h, 14, 2, 2)
    left(h, applied=15)
    assert verdict(h, "KR-04").verdict is Outcome.HOLDS


def test_a_move_that_is_recorded_late_but_was_applied_excuses() -> None:
    h = stopping()
    left(h, applied=15)
    partition(h, 15, 2, 2)
    assert verdict(h, "KR-04").verdict is Outcome.HOLDS


def test_a_partition_of_a_deleted_topic_is_not_led_any_more() -> None:
    h = stopping()
    h.add(OBSERVER, TopicCommitted(offset=13, topic="orders", topic_id="a", deleted=True))
    left(h, applied=15)
    assert verdict(h, "KR-04").verdict is Outcome.HOLDS


def test_a_partition_that_no_other_broker_could_lead_keeps_no_broker() -> None:
    h = begun()
    partition(h, 12, 1, 1)
    h.add(FIRST, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=300_000))
    left(h, applied=15)
    assert verdict(h, "KR-04").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-05


def produced(h: HistoryBuilder, outcome: str, error: str = "", ago_ms: int = 0) -> None:
    """The result of a produce that was sent so long ago."""
    h.add(
        "clients/probe-1#1",
        ProbeCompleted(
            operation="op-1",
            api="Produce",
            broker=1,
            slot="broker-1",
            topic="orders",
            partition=0,
            outcome=outcome,
            error=error,
            records=0,
            base_offset=-1,
            sent_at_ns=h.now_ns - ago_ms * MS,
        ),
    )


def following() -> HistoryBuilder:
    h = HistoryBuilder()
    h.add(
        FIRST,
        FollowingStarted(
            topic="orders", partition=0, leader=2, leader_epoch=3, log_end=10, high_watermark=9
        ),
    )
    return h


def test_a_produce_that_a_follower_stores_breaks_kr_05() -> None:
    h = following()
    produced(h, "answered")
    assert stated(verdict(h, "KR-05"), "process", "partition") == (FIRST, "orders-0")


def test_a_produce_that_a_follower_refuses_exercises_kr_05() -> None:
    h = following()
    produced(h, "refused", "NOT_LEADER_OR_FOLLOWER")
    assert verdict(h, "KR-05").verdict is Outcome.HOLDS


@pytest.mark.parametrize("process", [FIRST, "broker-1#2"])
def test_a_broker_that_leads_again_may_store(process: str) -> None:
    h = following()
    h.add(
        process,
        LeadershipStarted(
            topic="orders",
            partition=0,
            leader_epoch=4,
            isr=(1, 2),
            log_start=-1,
            log_end=10,
            high_watermark=9,
        ),
    )
    produced(h, "answered")
    assert verdict(h, "KR-05").verdict is Outcome.NOT_EXERCISED


def test_a_produce_of_before_a_broker_followed_decides_nothing_for_kr_05() -> None:
    h = following().after(100)
    produced(h, "answered", ago_ms=200)
    produced(h, "refused", "NOT_LEADER_OR_FOLLOWER", ago_ms=200)
    assert verdict(h, "KR-05").verdict is Outcome.NOT_EXERCISED
