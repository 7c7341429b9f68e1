"""RP-05, RP-12, RP-27 and QC-07 by what disks hold once all processes have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.suites.partition_histories import CLIENT, partition, stated, verdict

from fencepost import FaultInjected
from fencepost.testing import HistoryBuilder, Outcome, Verdict
from fencepost_kafka import (
    MetadataCommitted,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
    SegmentFound,
    StoredBatch,
    TopicCommitted,
)

DISKS = "disks"
OBSERVER = "clients/observer#1"


def batch(offset: int, epoch: int = 1, digest: str = "", sequence: int = -1) -> StoredBatch:
    """A batch of two messages."""
    return StoredBatch(
        base_offset=offset,
        end=offset + 2,
        leader_epoch=epoch,
        digest=digest or f"d{offset}",
        producer_id=7 if sequence >= 0 else -1,
        producer_epoch=0,
        base_sequence=sequence,
    )


LOG = (batch(0), batch(2), batch(4, 2))
"""Six messages in two leader epochs."""


def found(
    slot: str,
    batches: Sequence[StoredBatch],
    *,
    mark: int = 0,
    topic: str = "orders",
    topic_id: str = "t",
    start: int = -1,
) -> SegmentFound:
    return SegmentFound(
        slot=slot,
        node_id=int(slot.split("-")[1]),
        topic=topic,
        topic_id=topic_id,
        partition=0,
        log_start=start,
        log_end=batches[-1].end if batches else 0,
        high_watermark=mark,
        base_offsets=tuple(one.base_offset for one in batches),
        ends=tuple(one.end for one in batches),
        leader_epochs=tuple(one.leader_epoch for one in batches),
        digests=tuple(one.digest for one in batches),
        producer_ids=tuple(one.producer_id for one in batches),
        producer_epochs=tuple(one.producer_epoch for one in batches),
        base_sequences=tuple(one.base_sequence for one in batches),
    )


def read(h: HistoryBuilder, end: int) -> None:
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=end, outcome="ok", error=""),
    )


def disks(
    logs: Mapping[str, Sequence[StoredBatch]],
    isr: tuple[int, ...] = (1, 2, 3),
    committed: int = 6,
    **more: int,
) -> HistoryBuilder:
    """A run after which the disks of these slots hold these logs."""
    h = HistoryBuilder()
    partition(h, 1, leader=1, epoch=2, isr=isr)
    read(h, committed)
    for slot, batches in logs.items():
        h.add(DISKS, found(slot, batches, **more))
    return h


def agreed(h: HistoryBuilder) -> Verdict:
    return verdict(h, "RP-05")


# ------------------------------------------------------------------------------------------ RP-05


def test_the_disk_of_a_second_process_with_an_id_is_no_replicas() -> None:
    """A refused process may take itself for the leader, and keep what no leader has."""
    other = (batch(0), batch(2, digest="other"), batch(4, 2))
    logs = {"broker-1": LOG, "broker-2": LOG, "broker-3": LOG, "broker-2-duplicate": other}
    assert verdict(disks(logs, mark=6), "RP-05").verdict is Outcome.HOLDS
    logs = {"broker-1": LOG, "broker-2": LOG, "broker-3": other}
    assert verdict(disks(logs, mark=6), "RP-05").verdict is Outcome.VIOLATED


def test_equal_logs_of_two_leader_epochs_exercise_rp_05() -> None:
    one = agreed(disks({"broker-1": LOG, "broker-2": LOG, "broker-3": LOG}))
    assert (one.verdict, one.exercised) == (Outcome.HOLDS, 1)


def test_equal_logs_of_one_leader_epoch_exercise_nothing() -> None:
    log = LOG[:2]
    one = disks({"broker-1": log, "broker-2": log, "broker-3": log}, committed=4)
    assert agreed(one).verdict is Outcome.NOT_EXERCISED


def test_a_run_whose_disks_were_not_read_exercises_nothing() -> None:
    assert agreed(disks({})).verdict is Outcome.NOT_EXERCISED


def test_one_other_byte_below_what_was_committed_breaks_rp_05() -> None:
    other = (LOG[0], batch(2, digest="other"), LOG[2])
    one = agreed(disks({"broker-1": LOG, "broker-2": other, "broker-3": LOG}))
    (broken,) = one.violations
    assert stated(broken, "slot", "other", "partition") == ("broker-2", "broker-1", "orders-0")
    assert stated(broken, "offset", "committed") == (2, 5)


def test_the_same_bytes_in_another_leader_epoch_break_rp_05() -> None:
    other = (LOG[0], batch(2, epoch=2, digest="d2"), LOG[2])
    one = disks({"broker-1": LOG, "broker-2": other, "broker-3": LOG})
    assert agreed(one).verdict is Outcome.VIOLATED


def test_a_member_of_the_isr_without_what_a_reader_got_breaks_rp_05() -> None:
    one = agreed(disks({"broker-1": LOG, "broker-2": LOG[:2], "broker-3": LOG}))
    (broken,) = one.violations
    assert stated(broken, "slot", "broker", "partition") == ("broker-2", "broker 2", "orders-0")
    assert stated(broken, "offset", "committed") == (3, 5)


def test_the_first_that_got_what_is_lacking_is_the_proof() -> None:
    one = HistoryBuilder()
    partition(one, 1, leader=1, epoch=2)
    read(one, 6)
    first = one.events()[-1]
    read(one, 6)
    for slot, log in (("broker-1", LOG), ("broker-2", LOG[:2]), ("broker-3", LOG)):
        one.add(DISKS, found(slot, log))
    assert agreed(one).violations[0].because == (first.ref,)


@pytest.mark.parametrize("mark", [0, 2])
def test_one_other_byte_in_the_first_batch_breaks_rp_05(mark: int) -> None:
    other = (batch(0, digest="other"), *LOG[1:])
    one = agreed(disks({"broker-1": LOG, "broker-2": other, "broker-3": LOG}, mark=mark))
    assert stated(one, "other", "offset") == ("broker-1", 0)


def test_the_disks_of_an_isr_that_is_not_complete_need_not_have_what_a_reader_got() -> None:
    """A member may have left it since, and the record of that was not read before the run ended."""
    one = disks({"broker-1": LOG, "broker-2": LOG[:2]}, isr=(1, 2))
    assert agreed(one).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("later_ms", "broken"), [(4_000, 0), (6_000, 1)])
def test_a_member_of_a_part_of_the_replicas_has_what_was_committed_a_while_before(
    later_ms: int, broken: int
) -> None:
    one = disks({"broker-1": LOG, "broker-2": LOG[:2]}, isr=(1, 2)).after(later_ms)
    assert agreed(one).violated == broken
    assert verdict(one, "RP-05", complete=False).violated == 0


@pytest.mark.parametrize("gone", [1, 2])
def test_a_member_of_the_isr_without_a_log_on_its_disk_breaks_rp_05(gone: int) -> None:
    logs = {f"broker-{one}": LOG for one in (1, 2, 3) if one != gone}
    (broken,) = agreed(disks(logs)).violations
    assert stated(broken, "broker", "partition", "committed") == (f"broker {gone}", "orders-0", 5)


def test_a_disk_without_a_log_of_what_was_never_committed_keeps_rp_05() -> None:
    assert agreed(disks({"broker-1": LOG, "broker-3": LOG}, committed=0)).violated == 0


def test_a_disk_without_a_log_that_a_fault_has_emptied_keeps_rp_05() -> None:
    one = HistoryBuilder()
    partition(one, 1, leader=1, epoch=2)
    read(one, 6)
    body = FaultInjected(
        fault_id="w",
        fault="wipe",
        targets=("broker-2",),
        receipt=True,
        evidence="",
        began_at_ns=0,
        effects=("empties-disk broker-2",),
    )
    one.add("harness", body)
    for slot in ("broker-1", "broker-3"):
        one.add(DISKS, found(slot, LOG))
    assert agreed(one).violated == 0


def shrunk(logs: Mapping[str, Sequence[StoredBatch]], *isrs: tuple[int, ...]) -> HistoryBuilder:
    """A run after whose last commit the ISR became these, one after another."""
    h = HistoryBuilder()
    partition(h, 1, leader=1, epoch=2)
    read(h, 6)
    for offset, isr in enumerate(isrs, 2):
        partition(h, offset, leader=1, epoch=2, isr=isr)
    for slot, batches in logs.items():
        h.add(DISKS, found(slot, batches))
    return h


def test_a_member_that_stays_in_a_smaller_isr_has_what_was_committed_before() -> None:
    other = (LOG[0], batch(2, digest="other"), LOG[2])
    for log in (LOG[:2], other, ()):
        one = agreed(shrunk({"broker-1": LOG, "broker-2": log, "broker-3": LOG[:1]}, (1, 2)))
        (broken,) = one.violations
        assert stated(broken, "slot") == "broker-2"


def test_a_replica_that_left_the_isr_and_is_back_in_a_part_of_it_may_lack_the_end() -> None:
    one = shrunk({"broker-1": LOG, "broker-2": LOG[:2]}, (1, 3), (1, 2, 3), (1, 2))
    assert agreed(one).violated == 0


def test_disks_are_compared_though_no_record_of_the_partition_was_read() -> None:
    one = HistoryBuilder()
    read(one, 6)
    for slot in ("broker-1", "broker-2"):
        one.add(DISKS, found(slot, LOG, mark=6))
    assert agreed(one).verdict is Outcome.HOLDS


def test_disks_of_which_nothing_was_committed_exercise_nothing() -> None:
    one = disks({"broker-1": LOG, "broker-2": LOG, "broker-3": LOG}, committed=0)
    assert agreed(one).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("acks", "outcome", "expected"),
    [(-1, "ok", Outcome.VIOLATED), (1, "ok", Outcome.HOLDS), (-1, "unknown", Outcome.HOLDS)],
)
def test_an_acknowledgement_of_all_counts_as_committed(
    acks: int, outcome: str, expected: Outcome
) -> None:
    one = HistoryBuilder()
    partition(one, 1, leader=1, epoch=2)
    one.add(
        CLIENT,
        ProduceCompleted(
            operation="a",
            topic="orders",
            partition=0,
            acks=acks,
            outcome=outcome,  # type: ignore[arg-type]
            offset=6,
            error="",
        ),
    )
    read(one, 6)
    for slot in ("broker-1", "broker-2", "broker-3"):
        one.add(DISKS, found(slot, LOG))
    assert agreed(one).verdict is expected


def test_a_replica_outside_the_isr_may_lag() -> None:
    one = disks({"broker-1": LOG, "broker-2": LOG[:1], "broker-3": LOG}, isr=(1, 3))
    assert agreed(one).violated == 0


@pytest.mark.parametrize(("mark", "expected"), [(2, Outcome.HOLDS), (4, Outcome.VIOLATED)])
def test_any_replica_is_compared_up_to_its_own_high_watermark(mark: int, expected: Outcome) -> None:
    other = (LOG[0], batch(2, digest="other"))
    one = disks({"broker-1": LOG, "broker-3": LOG}, isr=(1, 3))
    one.add(DISKS, found("broker-2", other, mark=mark))
    assert agreed(one).violated == (expected is Outcome.VIOLATED)


def test_a_hole_in_a_log_breaks_rp_05() -> None:
    one = agreed(disks({"broker-1": LOG, "broker-2": (LOG[0], LOG[2]), "broker-3": LOG}))
    assert stated(one, "slot", "partition") == ("broker-2", "orders-0")
    assert stated(one, "offset", "next_offset") == (2, 4)


def test_what_a_broker_has_deleted_is_not_compared() -> None:
    one = disks({"broker-1": LOG, "broker-3": LOG})
    one.add(DISKS, found("broker-2", (batch(2, digest="other"), LOG[2]), start=4))
    assert agreed(one).verdict is Outcome.HOLDS


def test_a_log_that_begins_later_than_it_says_is_compared_from_its_first_batch_on() -> None:
    one = disks({"broker-1": LOG[1:], "broker-2": LOG, "broker-3": LOG}, mark=6)
    assert agreed(one).verdict is Outcome.HOLDS


def test_several_segments_are_one_log() -> None:
    one = disks({"broker-1": LOG, "broker-3": LOG})
    one.add(DISKS, found("broker-2", LOG[:1]))
    one.add(DISKS, found("broker-2", LOG[1:]))
    assert agreed(one).verdict is Outcome.HOLDS


def test_a_membership_does_not_say_which_of_two_disks_of_one_id_it_is_of() -> None:
    one = disks({"broker-1": LOG, "broker-2": LOG, "broker-3": LOG, "broker-2-duplicate": ()})
    assert agreed(one).verdict is Outcome.HOLDS


def test_the_log_of_a_former_topic_of_that_name_is_not_compared() -> None:
    one = HistoryBuilder()
    partition(one, 1, leader=1, epoch=1)
    read(one, 100)
    one.add(
        "controller-1#1", TopicCommitted(offset=2, topic="orders", topic_id="old", deleted=True)
    )
    partition(one, 3, leader=1, epoch=2, isr=(1, 3), replicas=(1, 3))
    read(one, 6)
    one.add(DISKS, found("broker-1", LOG))
    one.add(DISKS, found("broker-2", (batch(0, digest="other"),), topic_id="old", mark=2))
    one.add(DISKS, found("broker-3", LOG))
    assert agreed(one).verdict is Outcome.HOLDS


# ------------------------------------------------------------------------------------------ RP-12


def acknowledge(h: HistoryBuilder, offset: int) -> None:
    h.add(
        CLIENT,
        ProduceCompleted(
            operation="a",
            topic="orders",
            partition=0,
            acks=-1,
            outcome="ok",
            offset=offset,
            error="",
        ),
    )


def resent(
    logs: Mapping[str, Sequence[StoredBatch]], *, moves: bool = True, offset: int = 4
) -> Verdict:
    """A write during which the leader changed, and the disks after that."""
    h = HistoryBuilder()
    partition(h, 1, leader=1, epoch=1)
    h.add(CLIENT, ProduceInvoked(operation="a", topic="orders", partition=0, acks=-1))
    if moves:
        partition(h, 2, leader=2, epoch=2)
    acknowledge(h, offset)
    for slot, batches in logs.items():
        h.add(DISKS, found(slot, batches))
    return verdict(h, "RP-12")


ONCE = (batch(0, sequence=0), batch(2, sequence=2), batch(4, 2, sequence=4))
TWICE = (batch(0, sequence=0), batch(2, sequence=2), batch(4, 2, sequence=2))


def test_a_write_that_outlasted_its_leader_and_is_stored_once_exercises_rp_12() -> None:
    one = resent({"broker-1": ONCE, "broker-2": ONCE, "broker-3": ONCE})
    assert (one.verdict, one.exercised) == (Outcome.HOLDS, 1)


def test_a_write_under_one_leader_does_not_exercise_rp_12() -> None:
    logs = {"broker-1": ONCE, "broker-2": ONCE, "broker-3": ONCE}
    assert resent(logs, moves=False).verdict is Outcome.NOT_EXERCISED


def test_an_isr_change_under_the_same_leader_does_not_exercise_rp_12() -> None:
    h = HistoryBuilder()
    partition(h, 1, leader=1, epoch=1)
    h.add(CLIENT, ProduceInvoked(operation="a", topic="orders", partition=0, acks=-1))
    partition(h, 2, leader=1, epoch=1, isr=(1, 2))
    partition(h, 3, leader=1, epoch=1)
    acknowledge(h, 4)
    for slot in ("broker-1", "broker-2", "broker-3"):
        h.add(DISKS, found(slot, ONCE))
    assert verdict(h, "RP-12").verdict is Outcome.NOT_EXERCISED


def test_a_write_at_the_first_offset_may_outlast_its_leader_too() -> None:
    one = resent({"broker-1": ONCE, "broker-2": ONCE, "broker-3": ONCE}, offset=0)
    assert one.exercised == 1


def test_a_write_that_no_disk_reaches_does_not_exercise_rp_12() -> None:
    logs = {"broker-1": ONCE, "broker-2": ONCE, "broker-3": ONCE}
    assert resent(logs, offset=6).verdict is Outcome.NOT_EXERCISED


def test_a_write_that_is_found_on_one_disk_only_does_not_exercise_rp_12() -> None:
    assert resent({"broker-1": ONCE}).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, -1), (-1, 0), (0, 0)])
def test_a_producer_without_an_id_counts_its_batches_as_it_likes(epoch: int, sequence: int) -> None:
    """librdkafka and the Java client number such batches -1, sarama and aiokafka 0."""
    log = tuple(
        batch(offset)._replace(producer_epoch=epoch, base_sequence=sequence) for offset in (0, 2)
    )
    one = resent({"broker-1": log, "broker-2": log, "broker-3": log}, offset=2)
    assert one.violated == 0


def test_the_first_sequence_number_at_two_offsets_breaks_rp_12() -> None:
    twice = (batch(0, sequence=0), batch(2, 2, sequence=0))
    one = resent({"broker-1": twice, "broker-2": twice, "broker-3": twice}, offset=2)
    assert stated(one, "sequence", "producer") == (0, 7)


def test_one_sequence_number_at_two_offsets_breaks_rp_12() -> None:
    one = resent({"broker-1": TWICE, "broker-2": TWICE, "broker-3": TWICE})
    assert stated(one, "slot", "partition", "sequence") == ("broker-1", "orders-0", 2)
    assert stated(one, "producer", "offset", "other_offset") == (7, 2, 4)


def test_batches_without_sequence_numbers_may_repeat() -> None:
    one = resent({"broker-1": LOG, "broker-2": LOG, "broker-3": LOG})
    assert one.verdict is Outcome.HOLDS


# ------------------------------------------------------------------------------------------ RP-27


@pytest.mark.parametrize(
    ("mark", "expected"),
    [(6, Outcome.HOLDS), (7, Outcome.VIOLATED), (0, Outcome.NOT_EXERCISED)],
)
def test_a_stored_high_watermark_is_not_above_the_log(mark: int, expected: Outcome) -> None:
    one = disks({"broker-2": LOG}, mark=mark)
    assert verdict(one, "RP-27").verdict is expected


def test_the_high_watermark_of_a_leader_exercises_nothing() -> None:
    one = disks({"broker-1": LOG}, mark=6)
    assert verdict(one, "RP-27").verdict is Outcome.NOT_EXERCISED


def test_a_copied_disk_may_have_a_newer_high_watermark() -> None:
    one = disks({"broker-2-duplicate": LOG}, mark=7)
    assert verdict(one, "RP-27").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ QC-07


def metadata(
    *logs: Sequence[StoredBatch], committed: Mapping[int, int] | None = None
) -> Sequence[object]:
    """Controllers with these metadata logs on their disks, and the records that were committed, by
    offset with their epochs. Returns what breaks QC-07: a record's epoch and offset, how many
    controllers have stored it, and how many there are."""
    h = HistoryBuilder()
    for offset, epoch in (committed or {1: 1, 5: 2}).items():
        h.add(OBSERVER, MetadataCommitted(offset=offset, epoch=epoch, kind="Topic", digest="d"))
    for number, log in enumerate(logs, 1):
        h.add(DISKS, found(f"controller-{number}", log, topic="__cluster_metadata"))
    violations = verdict(h, "QC-07").violations
    return [stated(one, "epoch", "offset", "stored", "controllers") for one in violations]


def test_committed_records_on_the_disks_of_a_majority_keep_qc_07() -> None:
    assert metadata(LOG, LOG, LOG[:1]) == []


def test_a_committed_record_on_the_disk_of_one_of_three_breaks_qc_07() -> None:
    assert metadata(LOG, LOG[:1], LOG[:1]) == [(2, 5, 1, 3)]


def test_a_record_of_another_epoch_in_its_place_is_not_the_committed_one() -> None:
    other = (LOG[0], LOG[1], batch(4, 3))
    assert metadata(LOG, LOG, other) == []
    assert metadata(LOG, other, other) == [(2, 5, 1, 3)]


def test_a_snapshot_has_the_records_before_the_log() -> None:
    assert metadata(LOG[2:], LOG[2:], LOG[2:]) == []
    assert metadata((), (), LOG) != []


def test_the_disks_of_brokers_are_no_voters() -> None:
    h = HistoryBuilder()
    h.add(OBSERVER, MetadataCommitted(offset=1, epoch=1, kind="Topic", digest="d"))
    h.add(DISKS, found("broker-1", (), topic="__cluster_metadata"))
    assert verdict(h, "QC-07").violated == 0


@pytest.mark.parametrize("clause", ["RP-05", "RP-27"])
@pytest.mark.parametrize(("rejoins", "outcome"), [(False, False), (True, True)])
def test_a_disk_that_a_fault_has_harmed_lacks_what_it_took(
    clause: str, rejoins: bool, outcome: bool
) -> None:
    """The run may end before its broker is taken out of the ISR. Once it has joined anew, it has
    caught up."""
    h = HistoryBuilder()
    partition(h, 1, leader=1, epoch=2)
    read(h, 6)
    fault = FaultInjected(
        fault_id="f", fault="damage_disk", targets=("broker-2#1",), receipt=True, evidence=""
    )
    h.add("harness", fault)
    if rejoins:
        partition(h, 2, leader=1, epoch=3, isr=(1, 3))
        partition(h, 3, leader=1, epoch=4)
    whole = [batch(0), batch(2), batch(4)]
    for slot, log in (("broker-1", whole), ("broker-2", whole[:1]), ("broker-3", whole)):
        h.add(DISKS, found(slot, log, mark=6))
    assert (verdict(h, clause).violated > 0) == outcome
