"""The rules about replicas that restart, and that follow another leader (RP-08, RP-15): violations,
near misses and histories that decide nothing."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import injected, led, raises, verdict
from tests.suites.partition_histories import why

from fencepost import Evidence, ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import FollowingStarted, LeadershipStarted, LogTruncated


def follows(h: HistoryBuilder, process: str, mark: int, end: int) -> None:
    body = FollowingStarted(
        topic="orders", partition=0, leader=2, leader_epoch=1, log_end=end, high_watermark=mark
    )
    h.add(process, body)


def restarted(mark: int, end: int, highest: int = 5, process: str = "broker-1#2") -> HistoryBuilder:
    """Broker 1 began, committed so far (-1: no replica logs it), and begins again with that."""
    h = HistoryBuilder()
    follows(h, "broker-1#1", 0, 0)
    if highest >= 0:
        raises(h, "broker-2#1", highest, as_leader=False)
    follows(h, process, mark, end)
    return h


def test_a_log_end_that_is_taken_for_the_high_watermark_breaks_kr_31() -> None:
    for highest in (0, 5):
        found = verdict(restarted(mark=8, end=8, highest=highest), "RP-08")
        assert found.violations[0].evidence is Evidence.PEER


def test_a_high_watermark_above_the_log_end_breaks_kr_31() -> None:
    assert verdict(restarted(mark=5, end=4), "RP-08").violations[0].evidence is Evidence.SELF


def test_a_high_watermark_below_the_log_end_exercises_kr_31() -> None:
    assert verdict(restarted(mark=5, end=8), "RP-08").verdict is Outcome.HOLDS


def test_a_first_process_an_equal_end_and_silent_replicas_decide_nothing_for_kr_31() -> None:
    for h in (
        restarted(mark=3, end=8, process="broker-3#1"),
        restarted(mark=5, end=5),
        restarted(mark=0, end=5),
        restarted(mark=8, end=9, highest=-1),
        restarted(mark=8, end=8, process="broker-1#1"),  # it goes on
    ):
        assert verdict(h, "RP-08").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-15


def truncated(to: int, began: int = 3, raised: int = 0) -> HistoryBuilder:
    """A follower that began with a high watermark, and raised it, truncates its log."""
    h = HistoryBuilder()
    follows(h, "broker-1#1", began, 9)
    if raised:
        raises(h, "broker-1#1", raised, as_leader=False)
    truncates(h, to)
    return h


def truncates(h: HistoryBuilder, to: int) -> None:
    body = LogTruncated(
        topic="orders",
        partition=0,
        to_offset=to,
        from_log_end=9,
        high_watermark=-1,
        leader_epoch=1,
        reason="leader_epoch",
    )
    h.add("broker-1#1", body)


def test_a_truncation_below_the_high_watermark_breaks_kr_32() -> None:
    assert verdict(truncated(to=4, raised=5), "RP-15").violations[0].evidence is Evidence.SELF


def test_a_truncation_names_the_leader_to_whose_log_it_truncates() -> None:
    h = HistoryBuilder()
    for epoch in (0, 1):
        term = LeadershipStarted(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            isr=(2,),
            log_start=0,
            log_end=4,
            high_watermark=4,
        )
        h.add("broker-2#1", term)
    began = h.events()[-1].ref
    follows(h, "broker-1#1", 5, 9)
    raises(h, "broker-1#1", 6, as_leader=False)
    truncates(h, 4)
    assert verdict(h, "RP-15").violations[0].because == (began,)


def test_a_truncation_to_the_high_watermark_exercises_kr_32() -> None:
    assert verdict(truncated(to=5, raised=5), "RP-15").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("to", "broken"), [(2, 1), (3, 0)])
def test_the_high_watermark_that_a_follower_begins_with_counts_for_kr_32(
    to: int, broken: int
) -> None:
    """It may be lower than that of an earlier term, and no line raises it."""
    h = HistoryBuilder()
    raises(h, "broker-1#1", 5)
    follows(h, "broker-1#1", 3, 9)
    truncates(h, to)
    assert verdict(h, "RP-15").violated == broken


def test_a_history_without_high_watermarks_decides_nothing_for_kr_32() -> None:
    assert verdict(truncated(to=0), "RP-15").verdict is Outcome.NOT_EXERCISED


def of_isr(isr: tuple[int, ...], *harmed: str) -> HistoryBuilder:
    """These disks are emptied, and the follower, broker 1, truncates below its high watermark."""
    h = HistoryBuilder()
    for node_id in (1, 2):
        slot = f"broker-{node_id}"
        h.add(
            "harness",
            ProcessSpawned(started=f"{slot}#1", slot=slot, role="broker", node_id=node_id, pid=1),
        )
    led(h, 10, 2, *isr)
    follows(h, "broker-1#1", 5, 9)
    raises(h, "broker-1#1", 6, as_leader=False)
    for slot in harmed:
        injected(h, "wipe_disk", f"{slot}#1")
    truncates(h, 0)
    return h


def test_what_the_only_member_has_lost_with_its_disk_is_dropped_and_excused() -> None:
    found = verdict(of_isr((2,), "broker-2"), "RP-15")
    assert (found.violated, found.excused) == (0, 1)
    assert why(found, "partition", "lost") == ("orders-0", ("broker 2",))


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_what_a_member_with_a_whole_disk_has_is_not_dropped(isr: tuple[int, ...]) -> None:
    assert verdict(of_isr(isr, "broker-2"), "RP-15").violated == 1
