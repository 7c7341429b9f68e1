"""The rules about the metadata that nodes apply, hold and store (QC-08 to QC-11, QC-09):
violations, near misses and undecided histories."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import FIRST, led, record, verdict
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_clusters.apache_kafka.metadata.on_disk import MetadataStateFound
from fencepost_kafka import (
    BrokerStateChanged,
    ControllerElected,
    ControllerResigned,
    IsrChangeAnswered,
    MetadataApplied,
    MetadataTruncated,
    QuorumLearned,
    SegmentFound,
    StateReverted,
)

CONTROLLERS = ("controller-1", "controller-2", "controller-3")
LATE_MS = 6_000


# ------------------------------------------------------------------------------------------ QC-08


def log(
    h: HistoryBuilder,
    slot: str,
    *epochs: int,
    topic: str = "__cluster_metadata",
    first: int = 0,
) -> None:
    """The metadata log on a controller's disk: the epoch of each record, from that offset on."""
    count = len(epochs)
    body = SegmentFound(
        slot=slot,
        node_id=101,
        topic=topic,
        topic_id="",
        partition=0,
        log_start=-1,
        log_end=first + count,
        high_watermark=-1,
        base_offsets=tuple(range(first, first + count)),
        ends=tuple(range(first + 1, first + count + 1)),
        leader_epochs=epochs,
        digests=("",) * count,
        producer_ids=(-1,) * count,
        producer_epochs=(-1,) * count,
        base_sequences=(-1,) * count,
    )
    h.add("harness", body)


def applied(h: HistoryBuilder, offset: int, epoch: int) -> None:
    h.add(FIRST, MetadataApplied(offset=offset, epoch=epoch))


def test_metadata_that_was_applied_and_is_in_the_log_no_longer_breaks_kr_23() -> None:
    h = HistoryBuilder()
    applied(h, 2, 1)
    log(h, CONTROLLERS[0], 1, 1, 1)  # the deposed controller keeps it
    log(h, CONTROLLERS[1], 1, 1, 2)
    log(h, CONTROLLERS[2], 1, 1, 2)
    found = verdict(h, "QC-08")
    assert (found.violated, found.violations[0].evidence) == (1, Evidence.PEER)


def test_metadata_that_a_majority_of_the_disks_has_exercises_kr_23() -> None:
    h = HistoryBuilder()
    applied(h, 2, 1)
    applied(h, 1, 1)
    log(h, CONTROLLERS[0], 1, 1, 1)
    log(h, CONTROLLERS[1], 1, 1, 1)
    log(h, CONTROLLERS[2], 1)
    log(h, CONTROLLERS[2], 3, 3, 3, topic="orders")
    assert verdict(h, "QC-08").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("lasting", "broken"), [(1, 0), (2, 1)])
def test_the_first_record_of_the_logs_is_judged_by_kr_23(lasting: int, broken: int) -> None:
    h = HistoryBuilder()
    applied(h, 0, 1)
    for slot in CONTROLLERS:
        log(h, slot, lasting)
    found = verdict(h, "QC-08")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


@pytest.mark.parametrize(("of_second", "broken"), [(1, 0), (2, 1)])
def test_a_controller_whose_log_begins_later_may_have_had_a_record(
    of_second: int, broken: int
) -> None:
    """It has a snapshot of the beginning. With the first controller it is a majority."""
    h = HistoryBuilder()
    applied(h, 1, 1)
    log(h, CONTROLLERS[0], 1, 2 if broken else 1)
    log(h, CONTROLLERS[1], 1, of_second)
    log(h, CONTROLLERS[2], 2, first=2)
    found = verdict(h, "QC-08")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_a_controller_without_records_proves_nothing_for_kr_23() -> None:
    h = HistoryBuilder()
    applied(h, 0, 1)
    log(h, CONTROLLERS[0], 1)
    for slot in CONTROLLERS[1:]:
        log(h, slot)
    assert verdict(h, "QC-08").verdict is Outcome.NOT_EXERCISED


def test_a_majority_is_one_of_the_voters_for_kr_23() -> None:
    h = HistoryBuilder()
    for number in (1, 2, 3, 4):
        process = f"controller-{number}#1"
        begun = NodeStarted(role="controller", node_id=100 + number, incarnation="", log_end=-1)
        h.add(process, begun)
        log(h, f"controller-{number}", 1 if number < 3 else 2)
    endpoints = tuple(f"controller-{number}:9093" for number in (1, 2, 3))
    h.add("controller-1#1", QuorumLearned(
        voters=(101, 102, 103), endpoints=endpoints, bootstrap=(),
    ))  # fmt: skip
    applied(h, 0, 1)
    assert verdict(h, "QC-08").verdict is Outcome.HOLDS


def test_disks_that_were_not_read_prove_nothing_for_kr_23() -> None:
    h = HistoryBuilder()
    applied(h, 2, 1)
    assert verdict(h, "QC-08").verdict is Outcome.NOT_EXERCISED


def granted(h: HistoryBuilder, epoch: int, *isr: int, error: str = "NONE") -> None:
    body = IsrChangeAnswered(topic="orders", partition=0, leader_epoch=epoch, error=error, isr=isr)
    h.add(FIRST, body)


def registered(h: HistoryBuilder, epoch: int) -> None:
    body = BrokerStateChanged(
        broker_id=1, old="INITIAL", new="FENCED", broker_epoch=epoch, reason="registered"
    )
    h.add(FIRST, body)


def test_an_answer_that_no_record_has_breaks_kr_23() -> None:
    for answer in (lambda h: granted(h, 12, 1, 3), lambda h: registered(h, 7)):
        h = HistoryBuilder()
        led(h, 12, 1, 1, 2)
        record(h, 6, fenced=True)
        answer(h)
        assert verdict(h.after(LATE_MS), "QC-08").violations[0].evidence is Evidence.PEER
        assert verdict(h, "QC-08", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("before_ms", "outcome"), [(5_000, Outcome.UNKNOWN), (5_001, Outcome.VIOLATED)]
)
def test_an_answer_right_before_the_end_leaves_kr_23_undecided(
    before_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    granted(h, 12, 1, 3)
    assert verdict(h.after(before_ms - 1), "QC-08").verdict is outcome


def test_an_answer_in_the_first_leader_epoch_exercises_kr_23() -> None:
    h = HistoryBuilder()
    led(h, 0, 1, 1, 2)
    granted(h, 0, 1, 2)
    assert verdict(h, "QC-08").verdict is Outcome.HOLDS


def test_an_answer_without_an_isr_or_a_leader_epoch_proves_nothing_for_kr_23() -> None:
    h = HistoryBuilder()
    granted(h, 12)
    granted(h, -1, 1, 2)
    assert verdict(h.after(LATE_MS), "QC-08").verdict is Outcome.NOT_EXERCISED


def test_answers_whose_records_are_read_later_exercise_kr_23() -> None:
    h = HistoryBuilder()
    granted(h, 12, 2, 1)
    registered(h, 6)
    granted(h, 12, error="FENCED_LEADER_EPOCH")
    led(h, 12, 1, 1, 2)
    record(h, 6, fenced=True)
    assert verdict(h.after(LATE_MS), "QC-08").exercised == 2


# --------------------------------------------------------------------------------- KR-24, QC-11


def state(
    h: HistoryBuilder,
    slot: str,
    digest: str,
    *,
    snapshot: bool = False,
    offset: int = 50,
    epoch: int = 1,
    records: int = 9,
    orphans: tuple[str, ...] = (),
    sound: str = "",
) -> None:
    body = MetadataStateFound(
        slot=slot,
        node_id=1,
        role=slot.partition("-")[0],
        offset=offset,
        epoch=epoch,
        by_snapshot=snapshot,
        digest=digest,
        entities=9,
        records=records,
        orphans=orphans,
        sound=sound,
    )
    h.add("harness", body)


BOTH = pytest.mark.parametrize("clause", ["KR-24", "QC-11"])


@BOTH
def test_a_snapshot_that_differs_from_anothers_log_breaks_the_clause(clause: str) -> None:
    h = HistoryBuilder()
    state(h, CONTROLLERS[0], "other", snapshot=True)
    state(h, CONTROLLERS[1], "one")
    found = verdict(h, clause)
    assert (found.violated, found.violations[0].evidence) == (1, Evidence.PEER)


@BOTH
def test_a_snapshot_that_equals_anothers_log_exercises_the_clause(clause: str) -> None:
    h = HistoryBuilder()
    state(h, CONTROLLERS[0], "one", snapshot=True)
    state(h, CONTROLLERS[1], "one", records=30)
    state(h, CONTROLLERS[2], "other", offset=60)
    assert verdict(h, clause).verdict is Outcome.HOLDS


@BOTH
def test_a_nodes_own_log_and_one_of_another_epoch_prove_nothing(clause: str) -> None:
    h = HistoryBuilder()
    state(h, CONTROLLERS[0], "one", snapshot=True)
    state(h, CONTROLLERS[0], "other")
    state(h, CONTROLLERS[1], "other", epoch=2)
    assert verdict(h, clause).verdict is Outcome.NOT_EXERCISED


def test_the_snapshot_of_a_broker_is_judged_by_kr_25_alone() -> None:
    h = HistoryBuilder()
    state(h, "broker-1", "other", snapshot=True)
    state(h, CONTROLLERS[1], "one")
    assert verdict(h, "KR-24").verdict is Outcome.NOT_EXERCISED
    assert verdict(h, "QC-11").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("sound", "alone"), [("one", True), ("other", False)])
def test_settings_of_deleted_topics_are_named_if_nothing_else_differs(
    sound: str, alone: bool
) -> None:
    h = HistoryBuilder()
    state(h, "broker-1", "more", snapshot=True, orphans=("orders retention.ms",), sound=sound)
    state(h, CONTROLLERS[1], "one")
    found = verdict(h, "QC-11").violations[0]
    assert stated(found, "other") == "controller-2"
    assert found.facts.get("orphan") == ("orders retention.ms" if alone else None)


def test_a_snapshot_with_two_records_for_an_entity_breaks_kr_25() -> None:
    h = HistoryBuilder()
    state(h, CONTROLLERS[0], "one", snapshot=True, records=10)
    assert verdict(h, "QC-11").violations[0].evidence is Evidence.SELF


# ------------------------------------------------------------------------------------------ QC-09

DEPOSED = "controller-1#1"


def deposed(reverts_to: int = 50, committed: int = 50) -> HistoryBuilder:
    h = HistoryBuilder()
    h.add(DEPOSED, ControllerElected(epoch=1, log_end=1, last_epoch=-1))
    h.add(DEPOSED, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(DEPOSED, StateReverted(offset=reverts_to, high_watermark=committed, epoch=1))
    return h


def truncates(h: HistoryBuilder, to: int, end: int = 60, committed: int = 50) -> None:
    body = MetadataTruncated(from_offset=to, log_end=end, high_watermark=committed, epoch=-1)
    h.add(DEPOSED, body)


def test_a_deposed_controller_that_keeps_what_is_not_committed_breaks_kr_30() -> None:
    assert verdict(deposed(reverts_to=51), "QC-09").verdict is Outcome.VIOLATED


def test_a_deposed_controller_that_drops_what_is_committed_breaks_kr_30() -> None:
    h = deposed()
    truncates(h, 49)
    assert verdict(h, "QC-09").verdict is Outcome.VIOLATED


def test_a_deposed_controller_that_drops_the_rest_exercises_kr_30() -> None:
    h = deposed(reverts_to=48)
    truncates(h, 50)
    assert verdict(h, "QC-09").verdict is Outcome.HOLDS


def test_truncations_of_others_and_of_nothing_decide_nothing_for_kr_30() -> None:
    h = deposed()
    h.add(DEPOSED, ControllerElected(epoch=3, log_end=1, last_epoch=-1))
    truncates(h, 50)
    same = deposed()
    truncates(same, 60)
    for one in (h, same):
        assert verdict(one, "QC-09").verdict is Outcome.NOT_EXERCISED
