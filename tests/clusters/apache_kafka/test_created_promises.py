"""The rules about new partitions (KR-33, KR-34): violations, near misses and undecided
histories."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import (
    FIRST,
    OBSERVER,
    PEER,
    ended,
    healed,
    injected,
    verdict,
)

from fencepost import Evidence, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    FollowingStarted,
    MetadataApplied,
    PartitionCommitted,
    TopicCommitted,
)

MS = 1_000_000


def created(
    h: HistoryBuilder,
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2),
    offset: int = 11,
    topic_id: str = "a",
) -> None:
    """The topic orders, with one partition."""
    topic = TopicCommitted(offset=offset - 1, topic="orders", topic_id=topic_id, deleted=False)
    h.add(OBSERVER, topic)
    partition(h, leader, isr, offset)


def partition(h: HistoryBuilder, leader: int, isr: tuple[int, ...], offset: int) -> None:
    body = PartitionCommitted(
        offset=offset,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=0,
        isr=isr,
        replicas=(1, 2),
    )
    h.add(OBSERVER, body)


# ------------------------------------------------------------------------------------------ KR-33


def test_a_new_partition_without_a_leader_of_its_isr_breaks_kr_33() -> None:
    for leader, isr in ((-1, (1, 2)), (2, (1,)), (3, (1, 3))):
        h = HistoryBuilder()
        created(h, leader, isr)
        assert verdict(h, "KR-33").violations[0].evidence is Evidence.PEER


def test_a_new_partition_that_is_led_exercises_kr_33() -> None:
    h = HistoryBuilder()
    created(h)
    partition(h, -1, (1,), 12)  # it loses its leader later
    created(h, offset=21, topic_id="b")
    found = verdict(h, "KR-33")
    assert (found.exercised, found.violated) == (2, 0)


@pytest.mark.parametrize(("epoch", "skipped"), [(3, 0), (0, 1)])
def test_a_first_record_that_was_not_read_leaves_kr_33_undecided(epoch: int, skipped: int) -> None:
    """The log was truncated, and a snapshot has only what became of the partition."""
    h = HistoryBuilder()
    created(h)
    later = PartitionCommitted(
        offset=90,
        topic="orders",
        partition=1,
        leader=-1,
        leader_epoch=epoch,
        isr=(1,),
        replicas=(1, 2),
        skipped=skipped,
    )
    h.add(OBSERVER, later)
    found = verdict(h, "KR-33")
    assert (found.verdict, found.exercised) == (Outcome.UNKNOWN, 1)


def test_a_later_record_of_a_new_partition_exercises_nothing_of_kr_33() -> None:
    h = HistoryBuilder()
    created(h, offset=11)
    body = PartitionCommitted(
        offset=90, topic="orders", partition=1, leader=1, leader_epoch=3, isr=(1,), replicas=(1, 2)
    )
    h.add(OBSERVER, body)
    assert verdict(h, "KR-33").exercised == 1


def test_a_partition_of_an_unknown_topic_decides_nothing_for_kr_33() -> None:
    h = HistoryBuilder()
    partition(h, -1, (), 11)
    assert verdict(h, "KR-33").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-34


def running() -> HistoryBuilder:
    """Broker 1 runs. Broker 2 follows a partition, so such lines are printed."""
    h = HistoryBuilder()
    elsewhere = FollowingStarted(
        topic="payments", partition=0, leader=3, leader_epoch=0, log_end=0, high_watermark=0
    )
    h.add(PEER, elsewhere)
    body = BrokerStateChanged(
        broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=5, reason="unfenced"
    )
    h.add(FIRST, body)
    return h


def applied(h: HistoryBuilder, offset: int) -> None:
    h.add(FIRST, MetadataApplied(offset=offset, epoch=1))


def follows(h: HistoryBuilder) -> None:
    body = FollowingStarted(
        topic="orders", partition=0, leader=2, leader_epoch=0, log_end=0, high_watermark=0
    )
    h.add(FIRST, body)


def stops(h: HistoryBuilder) -> None:
    h.add(FIRST, BrokerStopping(broker_id=1, state="ACTIVE", global_state="", limit_ms=1))


def ignored(h: HistoryBuilder) -> HistoryBuilder:
    """Broker 1 has applied the new partition, and lives on for six seconds."""
    applied(h, 11)
    applied(h.after(6_000), 12)
    return h


def test_a_new_partition_that_a_broker_ignores_breaks_kr_34() -> None:
    h = running()
    created(h)
    applied(ignored(h), 13)  # it is one violation, however long it takes
    assert verdict(h, "KR-34").violated == 1


@pytest.mark.parametrize(("lived_ms", "broken"), [(5_000, 0), (5_001, 1)])
@pytest.mark.parametrize("read_first", [True, False])
@pytest.mark.parametrize("how", ["the run ends", "it stops"])
def test_a_broker_that_lives_on_without_other_images_breaks_kr_34(
    how: str, read_first: bool, lived_ms: int, broken: int
) -> None:
    h = running()
    if read_first:
        created(h)
    applied(h, 11)
    if not read_first:
        created(h)
    if how == "it stops":
        stops(h.after(lived_ms - 1))
        h.after(60_000)
    else:
        h.after(lived_ms + 5_000 - 1)
    assert verdict(h, "KR-34").violated == broken


def test_a_broker_that_died_or_that_a_fault_may_have_stopped_owes_no_partition() -> None:
    cut = [("broker-3", "broker-1")]
    for trouble, broken in (
        (lambda h: ended(h.after(6_000), FIRST), 0),
        (lambda h: injected(h, "pause", FIRST), 0),
        (lambda h: (injected(h, "pause", FIRST), healed(h.after(6_000), "pause")), 0),
        (lambda h: injected(h, "cut", *cut[0], cut=cut), 0),
        (lambda h: injected(h, "pause", PEER), 1),
    ):
        h = running()
        created(h)
        applied(h, 11)
        trouble(h)
        assert verdict(h.after(60_000), "KR-34").violated == broken


@pytest.mark.parametrize(("took_ms", "broken"), [(5_000, 0), (5_001, 1)])
def test_a_broker_has_five_seconds_to_begin_once_it_has_applied_the_partition(
    took_ms: int, broken: int
) -> None:
    h = running()
    created(h)
    applied(h.after(20_000), 11)
    applied(h.after(took_ms - 1), 12)
    assert verdict(h, "KR-34").violated == broken


def test_only_the_first_record_of_a_partition_exercises_kr_34() -> None:
    h = running()
    created(h)
    follows(h)
    partition(h, 2, (1, 2), 12)
    assert verdict(ignored(h), "KR-34").exercised == 1


def test_a_broker_that_begins_with_it_exercises_kr_34_though_its_record_is_read_later() -> None:
    before, after = running(), running()
    follows(before)
    created(before)
    created(after)
    follows(after)
    for h in (before, after):
        assert verdict(ignored(h), "KR-34").verdict is Outcome.HOLDS


def test_a_broker_that_is_gone_or_has_not_applied_it_owes_nothing_for_kr_34() -> None:
    stopping, dead, behind, deleted = running(), running(), running(), running()
    stopped_before = running()
    stops(stopped_before)
    for h in (stopping, dead, behind, deleted, stopped_before):
        created(h)
    stops(stopping)
    ended(dead, FIRST)
    applied(behind, 10)
    applied(behind.after(6_000), 10)
    gone = TopicCommitted(offset=12, topic="orders", topic_id="a", deleted=True)
    deleted.add(OBSERVER, gone)
    for h in (stopping, stopped_before, dead, deleted):
        ignored(h)
    for h in (stopping, stopped_before, dead, behind, deleted):
        assert verdict(h, "KR-34").verdict is Outcome.NOT_EXERCISED


def test_a_stall_leaves_kr_34_undecided() -> None:
    h = running()
    created(h)
    applied(h, 11)
    h.after(6_000)
    h.add(FIRST, Stalled(stalled_ns=3_000 * MS))
    applied(h, 12)
    assert verdict(h, "KR-34").verdict is Outcome.UNKNOWN
