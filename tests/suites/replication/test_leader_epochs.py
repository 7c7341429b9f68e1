"""Which process leads in which epoch, of which topic of a name (RP-24)."""

from __future__ import annotations

from tests.suites.partition_histories import B1, B2, lead, verdict

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import TopicCommitted


def test_a_leader_that_names_its_epoch_again_keeps_rp_24() -> None:
    h = HistoryBuilder()
    lead(h, B1, 3)
    lead(h, B1, 3)
    assert verdict(h, "RP-24").verdict is Outcome.NOT_EXERCISED


def test_a_process_that_names_a_former_epoch_of_its_own_late_keeps_rp_24() -> None:
    h = HistoryBuilder()
    lead(h, B1, 3)
    lead(h, B2, 2)
    assert verdict(h, "RP-24").verdict is Outcome.NOT_EXERCISED


def test_a_deletion_that_is_replayed_late_does_not_delete_the_topic_that_was_made_since() -> None:
    """Its brokers, such as Kafka's, record no topics."""
    h = HistoryBuilder()
    for observer, offset, deleted in (("1", 7, True), ("1", 9, False), ("2", 7, True)):
        body = TopicCommitted(offset=offset, topic="orders", topic_id="t", deleted=deleted)
        h.add(f"clients/observer-{observer}#1", body)
    for process in (B1, B2):
        lead(h, process, 0, log_end=7)
    assert verdict(h, "RP-24").verdict is Outcome.VIOLATED
