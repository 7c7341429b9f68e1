"""The rules about deleted topics, and about answers of brokers that step down or start (RP-25 to
KR-28), each with a violation, a near miss and a history that decides nothing."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.clusters.apache_kafka.kraft_histories import (
    FIRST,
    OBSERVER,
    ended,
    healed,
    injected,
    raises,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted, Stalled
from fencepost.plugins.manager import load
from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost_clusters.apache_kafka.rules.promises import RULES
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    FollowingStarted,
    LeadershipEnded,
    LeadershipStarted,
    MetadataApplied,
    PartitionCommitted,
    ProbeCompleted,
    ProduceAnswered,
    SegmentFound,
    TopicCommitted,
)

MS = 1_000_000


# ------------------------------------------------------------------------------------------ RP-25


def begins(h: HistoryBuilder, process: str = FIRST) -> None:
    h.add(process, NodeStarted(role="broker", node_id=1, incarnation="", log_end=-1))


def applies(h: HistoryBuilder, offset: int, process: str = FIRST) -> None:
    h.add(process, MetadataApplied(offset=offset, epoch=1))


def holds(h: HistoryBuilder, topic: str, topic_id: str, slot: str = "broker-1") -> None:
    body = SegmentFound(
        slot=slot,
        node_id=1,
        topic=topic,
        topic_id=topic_id,
        partition=0,
        log_start=-1,
        log_end=0,
        high_watermark=-1,
        base_offsets=(),
        ends=(),
        leader_epochs=(),
        digests=(),
        producer_ids=(),
        producer_epochs=(),
        base_sequences=(),
    )
    h.add("harness", body)


def deleted() -> HistoryBuilder:
    """The topic orders, of which broker 1 had a replica, is deleted at offset 20."""
    h = HistoryBuilder()
    begins(h)
    replicated(h)
    h.add(OBSERVER, TopicCommitted(offset=20, topic="orders", topic_id="a", deleted=True))
    return h


def replicated(h: HistoryBuilder) -> None:
    """The record that gives broker 1 its replica."""
    partition = PartitionCommitted(
        offset=10, topic="orders", partition=0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,)
    )
    h.add(OBSERVER, partition)


def test_a_deleted_topic_that_a_disk_still_has_breaks_kr_26() -> None:
    h = deleted()
    applies(h, 20)
    h.after(11_000)
    applies(h, 21)
    holds(h, "orders", "a")
    assert verdict(h, "RP-25").violations[0].evidence is Evidence.PEER


def test_a_broker_that_ended_soon_or_has_not_applied_the_deletion_keeps_kr_26() -> None:
    soon, never, anew = deleted(), deleted(), deleted()
    applies(soon, 20)
    applies(soon.after(5_000), 21)
    applies(never.after(11_000), 19)
    for h in (soon, never):
        holds(h, "orders", "a")
    applies(anew, 20)
    applies(anew.after(11_000), 21)
    holds(anew, "orders", "b")  # made again under its name
    for h in (soon, never, anew):
        assert verdict(h, "RP-25").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("lived_ms", "broken"), [(10_000, 0), (10_001, 1)])
def test_a_broker_has_ten_seconds_to_remove_a_deleted_topic(lived_ms: int, broken: int) -> None:
    h = deleted()
    applies(h, 20)
    applies(h.after(lived_ms - 1), 21)
    holds(h, "orders", "a")
    assert verdict(h, "RP-25").violated == broken


@pytest.mark.parametrize(("lived_ms", "broken"), [(10_000, 0), (10_001, 1)])
@pytest.mark.parametrize("how", ["the run ends", "it stops", "it is killed"])
def test_a_broker_that_applies_nothing_more_lives_until_its_end(
    how: str, lived_ms: int, broken: int
) -> None:
    h = deleted()
    applies(h, 20)
    h.after(lived_ms - 1)
    if how == "it stops":
        stops = BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1)
        h.add(FIRST, stops)
    if how != "the run ends":
        ended(h, FIRST)
        holds(h.after(60_000), "orders", "a")
    else:
        holds(h.after(5_000 - 1), "orders", "a")
    assert verdict(h, "RP-25").violated == broken


@pytest.mark.parametrize(("slot", "broken"), [(FIRST, 0), ("broker-2#1", 1)])
@pytest.mark.parametrize("heals", [True, False])
def test_a_broker_that_a_fault_may_have_stopped_lived_as_long_as_it_says(
    heals: bool, slot: str, broken: int
) -> None:
    h = deleted()
    applies(h, 20)
    injected(h, "pause", slot)
    h.after(60_000)
    if heals:
        healed(h, "pause")
    ended(h, FIRST)
    holds(h, "orders", "a")
    assert verdict(h, "RP-25").violated == broken


def test_records_of_a_deleted_topic_that_are_read_again_give_the_next_one_no_replica() -> None:
    """Broker 1 is no replica of the second topic of that name."""
    h = deleted()
    replicated(h)
    h.add(OBSERVER, TopicCommitted(offset=40, topic="orders", topic_id="b", deleted=True))
    begins(h, "broker-1#2")
    applies(h, 40, "broker-1#2")
    holds(h, "payments", "c")
    assert verdict(h, "RP-25").exercised == 1


def test_a_broker_that_was_down_at_the_time_exercises_kr_26() -> None:
    h = deleted()
    begins(h, "broker-1#2")
    applies(h, 20, "broker-1#2")
    holds(h, "payments", "c")
    assert verdict(h, "RP-25").verdict is Outcome.HOLDS


def test_a_stall_leaves_kr_26_undecided() -> None:
    h = deleted()
    applies(h, 20)
    h.after(11_000)
    h.add(FIRST, Stalled(stalled_ns=5_000 * MS))
    applies(h, 21)
    holds(h, "orders", "a")
    assert verdict(h, "RP-25").verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-31


def leads(h: HistoryBuilder) -> None:
    body = LeadershipStarted(
        topic="orders",
        partition=0,
        leader_epoch=1,
        isr=(1, 2),
        log_start=-1,
        log_end=0,
        high_watermark=0,
    )
    h.add(FIRST, body)


def steps_down(h: HistoryBuilder) -> None:
    h.add(
        FIRST,
        LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"),
    )


def answers(h: HistoryBuilder, error: str = "NONE", offset: int = 5, ago_ms: int = 0) -> None:
    """The answer to a request that came in so long ago (-1: it is not recorded)."""
    body = ProduceAnswered(
        topic="orders",
        partition=0,
        client="clients/producer-1#1",
        acks=-1,
        error=error,
        base_offset=offset if error == "NONE" else -1,
        log_end=-1,
        leader_epoch=1,
        high_watermark=-1,
        isr=(),
        ends=(),
        duplicate=False,
        received_at_ns=0 if ago_ms < 0 else h.now_ns - ago_ms * MS,
    )
    h.add(FIRST, body)


def test_a_write_that_is_acknowledged_uncommitted_breaks_kr_27() -> None:
    h = HistoryBuilder()
    leads(h)
    raises(h, FIRST, 5)
    steps_down(h)
    answers(h, ago_ms=10)
    raises(h, FIRST, 6)  # too late
    (found,) = verdict(h, "RP-31").violations
    assert stated(found, "offset", "high_watermark") == (5, 5)
    assert found.because


@pytest.mark.parametrize(
    ("led_with", "learned", "broken"),
    [(6, 5, 0), (6, 7, 0), (5, 6, 1), (5, 5, 1)],
    ids=["a lower one", "a higher one", "one that would have covered it", "the same"],
)
def test_a_high_watermark_that_a_former_leader_learns_decides_nothing_for_kr_27(
    led_with: int, learned: int, broken: int
) -> None:
    """A new leader may begin with a lower one. Answers that were due before may leave late."""
    h = HistoryBuilder()
    leads(h)
    raises(h, FIRST, led_with)
    steps_down(h)
    follows(h, led_with)
    raises(h, FIRST, learned)
    follows(h, learned)
    answers(h, ago_ms=10)
    assert verdict(h, "RP-31").violated == broken


def follows(h: HistoryBuilder, mark: int) -> None:
    body = FollowingStarted(
        topic="orders", partition=0, leader=2, leader_epoch=2, log_end=9, high_watermark=mark
    )
    h.add(FIRST, body)


def test_a_process_that_only_ever_followed_and_acknowledges_breaks_kr_27() -> None:
    h = HistoryBuilder()
    follows(h, 5)
    answers(h)
    assert verdict(h, "RP-31").violated == 1


@pytest.mark.parametrize("offset", [0, 5])
def test_a_write_above_the_high_watermark_that_a_leader_begins_with_breaks_kr_27(
    offset: int,
) -> None:
    h = HistoryBuilder()
    leads(h)
    answers(h, offset=offset)
    (found,) = verdict(h, "RP-31").violations
    assert stated(found, "process", "partition") == (FIRST, "orders-0")
    assert stated(found, "offset", "high_watermark") == (offset, 0)
    assert not found.because


def test_a_write_that_fails_once_its_leader_stepped_down_exercises_kr_27() -> None:
    h = HistoryBuilder()
    leads(h)
    steps_down(h.after(100))
    answers(h, "NOT_LEADER_OR_FOLLOWER", ago_ms=50)
    assert verdict(h, "RP-31").verdict is Outcome.HOLDS


def test_a_write_of_which_the_log_does_not_say_when_it_came_in_does_not_exercise_kr_27() -> None:
    h = HistoryBuilder()
    leads(h)
    steps_down(h)
    answers(h, "NOT_LEADER_OR_FOLLOWER", ago_ms=-1)
    assert verdict(h, "RP-31").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("mark", "after_ms", "broken"), [(6, 400, 0), (5, 400, 1), (6, 600, 1)])
def test_a_leader_may_log_its_high_watermark_right_after_its_answer(
    mark: int, after_ms: int, broken: int
) -> None:
    h = HistoryBuilder()
    leads(h)
    answers(h)
    raises(h.after(after_ms), FIRST, mark)
    assert verdict(h, "RP-31").violated == broken


@pytest.mark.parametrize(("mark", "broken"), [(5, 1), (6, 0)])
def test_a_high_watermark_of_before_whose_line_is_printed_later_keeps_kr_27(
    mark: int, broken: int
) -> None:
    """It covers the acknowledged offset 5 only if it is higher."""
    h = HistoryBuilder()
    leads(h)
    raised_ns = h.now_ns
    answers(h)
    *before, last = (*h.events(), raises(h, FIRST, mark))
    earlier = structs.replace(last, at_ns=raised_ns)
    chosen = [rule for rule in RULES if rule.clause == "RP-31"]
    clauses = load().clauses
    found = judge((*before, earlier), chosen, clauses, h.end(), "kraft").verdicts["RP-31"]
    assert found.violated == broken


def test_committed_writes_and_later_requests_decide_nothing_for_kr_27() -> None:
    h = HistoryBuilder()
    answers(h)  # nothing is known of its high watermark
    leads(h)
    raises(h, FIRST, 6)
    answers(h)
    answers(h, "NOT_ENOUGH_REPLICAS")
    steps_down(h)
    answers(h.after(100), "NOT_LEADER_OR_FOLLOWER", ago_ms=1)
    leads(h)
    answers(h, "REQUEST_TIMED_OUT", ago_ms=500)
    assert verdict(h, "RP-31").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-28


def probed(h: HistoryBuilder, outcome: str, ago_ms: int = 0, api: str = "Metadata") -> None:
    body = ProbeCompleted(
        operation="op-1",
        api=api,
        broker=1,
        slot="broker-1",
        topic="orders",
        partition=-1,
        outcome=outcome,  # type: ignore[arg-type]
        error="",
        records=0,
        base_offset=-1,
        sent_at_ns=h.now_ns - ago_ms * MS,
    )
    h.add("clients/probe-1#1", body)


def test_a_process_that_answers_before_it_is_registered_breaks_kr_28() -> None:
    h = HistoryBuilder()
    begins(h)
    probed(h, "answered")
    assert verdict(h, "KR-28").violations[0].evidence is Evidence.CLIENT


def test_a_request_that_is_not_answered_exercises_kr_28() -> None:
    for outcome in ("closed", "timeout", "refused"):
        h = HistoryBuilder()
        begins(h)
        probed(h, outcome)
        assert verdict(h, "KR-28").verdict is Outcome.HOLDS


def test_what_was_sent_before_or_is_answered_later_decides_nothing_for_kr_28() -> None:
    h = HistoryBuilder()
    begins(h)
    probed(h, "answered", ago_ms=50)  # by the former process
    probed(h, "answered", api="metrics")
    h.add(
        FIRST,
        BrokerStateChanged(
            broker_id=1, old="INITIAL", new="FENCED", broker_epoch=5, reason="registered"
        ),
    )
    probed(h, "answered")
    assert verdict(h, "KR-28").verdict is Outcome.NOT_EXERCISED
