"""What is read beside the segments of Kafka's logs, after bytes that Kafka 4.3.1 wrote, and the
rules that compare it with the batches (KR-37, KR-38)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clusters.apache_kafka.kraft_histories import verdict
from tests.suites.partition_histories import stated

from fencepost import Evidence, FaultInjected, ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome, Verdict
from fencepost_clusters.apache_kafka.beside_segments import (
    LeaderEpochsFound,
    ProducersFound,
    found_beside,
    leader_epochs,
    producers,
)
from fencepost_kafka import BrokerCommitted, SegmentFound

SNAPSHOT = (Path(__file__).parent / "samples" / "4.3.1-producers.snapshot").read_bytes()
"""One producer, the last message of which has sequence number 66 and offset 201."""
EPOCHS = "0\n3\n0 0\n2 13\n5 40\n"


# ----------------------------------------------------------------------------------------- reading


def test_the_producers_of_a_snapshot() -> None:
    assert producers(SNAPSHOT) == [(0, 0, 66, 201)]


def test_a_snapshot_without_producers() -> None:
    """That of the metadata's log, as Kafka 4.3.1 wrote it."""
    assert producers(bytes.fromhex("000148674bc700000000")) == []


def test_a_snapshot_that_kafka_would_not_load_is_not_read() -> None:
    for size in range(len(SNAPSHOT)):
        assert producers(SNAPSHOT[:size]) is None
    for at in (0, 2, 12, len(SNAPSHOT) - 1):
        damaged = bytearray(SNAPSHOT)
        damaged[at] ^= 1
        assert producers(bytes(damaged)) is None
    assert producers(SNAPSHOT + b"\0") == producers(SNAPSHOT), "what follows does not count"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (EPOCHS, [(0, 0), (2, 13), (5, 40)]),
        ("0\n0\n", []),
        ("0\n2\n0 0\n2 1x\n", [(0, 0)]),
        ("", []),
    ],
)
def test_the_leader_epochs_beside_a_log(
    tmp_path: Path, content: str, found: list[tuple[int, int]]
) -> None:
    assert list(leader_epochs(tmp_path)) == []
    (tmp_path / "leader-epoch-checkpoint").write_text(content)
    assert list(leader_epochs(tmp_path)) == found


def test_a_folder_has_leader_epochs_and_a_snapshot_at_each_offset(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(EPOCHS)
    for name in ("00000000000000000340", "00000000000000000210", "cleaned"):
        (tmp_path / f"{name}.snapshot").write_bytes(SNAPSHOT)
    epochs, *snapshots = found_beside(
        tmp_path, slot="broker-1", node_id=1, topic="orders", partition=0
    )
    assert isinstance(epochs, LeaderEpochsFound)
    assert (epochs.epochs, epochs.starts) == ((0, 2, 5), (0, 13, 40))
    assert [one.offset for one in snapshots if isinstance(one, ProducersFound)] == [210, 340]
    assert epochs.sentence() == "the disk of broker-1 has 3 leader epochs of orders-0"
    assert snapshots[0].sentence() == (
        "the disk of broker-1 has 1 producers of orders-0 at offset 210"
    )


# ------------------------------------------------------------------------------------------- rules

Batch = tuple[int, int, int, int]
"""The first offset, the end, the leader epoch and the first sequence number."""
BATCHES: tuple[Batch, ...] = ((0, 3, 0, 0), (3, 4, 0, 3), (4, 10, 2, 4))


def stored(
    *batches: Batch,
    producer: int = 7,
    slot: str = "broker-1",
    topic: str = "orders",
    start: int = 0,
    h: HistoryBuilder | None = None,
) -> HistoryBuilder:
    """The log of a partition on a disk, all of whose batches one producer wrote."""
    h = HistoryBuilder() if h is None else h
    body = SegmentFound(
        slot=slot,
        node_id=1,
        topic=topic,
        topic_id="a",
        partition=0,
        log_start=start,
        log_end=batches[-1][1],
        high_watermark=0,
        base_offsets=tuple(one[0] for one in batches),
        ends=tuple(one[1] for one in batches),
        leader_epochs=tuple(one[2] for one in batches),
        digests=("",) * len(batches),
        producer_ids=(producer,) * len(batches),
        producer_epochs=(1,) * len(batches),
        base_sequences=tuple(one[3] for one in batches),
    )
    h.add("harness", body)
    return h


def epochs(
    h: HistoryBuilder, *entries: tuple[int, int], slot: str = "broker-1", topic: str = "orders"
) -> HistoryBuilder:
    body = LeaderEpochsFound(
        slot=slot,
        node_id=1,
        topic=topic,
        partition=0,
        epochs=tuple(one[0] for one in entries),
        starts=tuple(one[1] for one in entries),
    )
    h.add("harness", body)
    return h


def knows(
    h: HistoryBuilder, offset: int, *entries: tuple[int, int, int, int], slot: str = "broker-1"
) -> HistoryBuilder:
    body = ProducersFound(
        slot=slot,
        node_id=1,
        topic="orders",
        partition=0,
        offset=offset,
        producer_ids=tuple(one[0] for one in entries),
        producer_epochs=tuple(one[1] for one in entries),
        last_sequences=tuple(one[2] for one in entries),
        last_offsets=tuple(one[3] for one in entries),
    )
    h.add("harness", body)
    return h


@pytest.mark.parametrize(
    "entries",
    [((0, 0), (2, 4)), ((0, 0), (1, 4), (2, 4)), ((0, 0), (2, 4), (3, 10))],
    ids=["those of the batches", "one without a batch", "one that begins at the end"],
)
def test_epochs_in_whose_ranges_the_batches_lie_exercise_kr_37(
    entries: tuple[tuple[int, int], ...],
) -> None:
    found = verdict(epochs(stored(*BATCHES), *entries), "KR-37")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize(
    ("entries", "facts"),
    [
        (((0, 0), (2, 3)), (0, 3, 2)),
        (((0, 0), (2, 5)), (2, 4, 0)),
        (((0, 1), (2, 4)), (0, 0, -1)),
        ((), (0, 0, -1)),
    ],
)
def test_a_batch_outside_the_range_of_its_epoch_breaks_kr_37(
    entries: tuple[tuple[int, int], ...], facts: tuple[int, ...]
) -> None:
    found = verdict(epochs(stored(*BATCHES), *entries), "KR-37")
    assert (found.violated, found.violations[0].evidence) == (1, Evidence.SELF)
    assert stated(found, "partition") == "orders-0"
    assert stated(found, "epoch", "offset", "stored") == facts


@pytest.mark.parametrize(
    ("topic", "start", "violated"),
    [("orders", -1, 1), ("orders", 0, 1), ("orders", 1, 0), ("__cluster_metadata", -1, 0)],
)
def test_what_a_log_has_dropped_has_no_epoch_any_more(
    topic: str, start: int, violated: int
) -> None:
    """As before a snapshot of the metadata, whose records stay in their segment for a while."""
    h = epochs(stored(*BATCHES, topic=topic, start=start), (0, 3), (2, 4), topic=topic)
    assert verdict(h, "KR-37").violated == violated


def test_one_epoch_and_batches_without_any_exercise_nothing() -> None:
    old = (0, 3, -1, -1)
    for batches in (((0, 3, 0, 0),), (old, (3, 4, 0, 0))):
        h = epochs(stored(*batches), (0, batches[-1][0]))
        assert verdict(h, "KR-37").violated == 0
    assert verdict(epochs(stored((0, 3, 0, 0)), (0, 0)), "KR-37").exercised == 0


WRONG = (0, 0), (2, 5)
"""The epochs beside `BATCHES`, of which the last one begins too late."""


def struck(fault: str, *targets: str, disk: str = "") -> FaultInjected:
    return FaultInjected(
        fault_id=f"{fault}-1",
        fault=fault,
        targets=targets,
        receipt=True,
        evidence="",
        began_at_ns=0,
        arguments=f'{{"disk":"{disk}"}}',
    )


def wrong_after(*faults: FaultInjected, slot: str = "broker-1") -> Verdict:
    """KR-37 over a disk with wrong epochs, after these faults."""
    h = HistoryBuilder()
    for one in faults:
        h.add("harness", one)
    return verdict(epochs(stored(*BATCHES, slot=slot, h=h), *WRONG, slot=slot), "KR-37")


DAMAGED = struck("damage_disk", "broker-1#1")
COPIED = struck("duplicate_id", "broker-1#2", "broker-1-duplicate#1", disk="copy")


@pytest.mark.parametrize("fault", ["damage_disk", "lose_power"])
def test_wrong_epochs_of_a_disk_that_lost_the_end_of_its_log_are_excused(fault: str) -> None:
    found = wrong_after(struck(fault, "broker-1#1"))
    assert (found.violated, found.excused, found.exercised) == (0, 1, 0)


def test_wrong_epochs_of_a_copy_of_a_damaged_disk_are_excused() -> None:
    found = wrong_after(DAMAGED, COPIED, slot="broker-1-duplicate")
    assert (found.violated, found.excused) == (0, 1)


@pytest.mark.parametrize(
    ("faults", "slot"),
    [
        ((DAMAGED,), "broker-2"),
        ((struck("kill", "broker-1#1"),), "broker-1"),
        ((DAMAGED, struck("wipe_disk", "broker-1#2")), "broker-1"),
        ((COPIED, DAMAGED), "broker-1-duplicate"),
        ((DAMAGED, struck("duplicate_id", *COPIED.targets, disk="empty")), "broker-1-duplicate"),
        ((DAMAGED, COPIED, struck("duplicate_id", *COPIED.targets)), "broker-1-duplicate"),
    ],
    ids=["another", "killed", "emptied since", "copied before", "not copied", "no copy any more"],
)
def test_wrong_epochs_of_any_other_disk_break_kr_37(
    faults: tuple[FaultInjected, ...], slot: str
) -> None:
    found = wrong_after(*faults, slot=slot)
    assert (found.violated, found.excused) == (1, 0)


def registers(h: HistoryBuilder, broker: int, epoch: int) -> None:
    body = BrokerCommitted(
        offset=epoch, broker_id=broker, broker_epoch=epoch, fenced=True, incarnation=f"{epoch}"
    )
    h.add("clients/observer#1", body)


@pytest.mark.parametrize(
    ("registered", "slot", "excused"),
    [
        (1, "broker-1", 1),
        (1, "broker-1-duplicate", 1),
        (0, "broker-1", 0),
        (2, "broker-1", 0),
    ],
    ids=["the first process", "the second process", "refused", "another broker"],
)
def test_wrong_epochs_of_a_broker_whose_id_a_second_process_has_had_are_excused(
    registered: int, slot: str, excused: int
) -> None:
    h = HistoryBuilder()
    registers(h, 1, 5)
    registers(h, 2, 6)
    second = ProcessSpawned(
        started="broker-1-duplicate#1", slot="broker-1-duplicate", role="broker", node_id=1, pid=7
    )
    h.add("harness", second)
    if registered:
        registers(h, registered, 9)
    found = verdict(epochs(stored(*BATCHES, slot=slot, h=h), *WRONG, slot=slot), "KR-37")
    assert (found.excused, found.violated) == (excused, 1 - excused)


def test_right_epochs_of_a_damaged_disk_exercise_kr_37() -> None:
    h = HistoryBuilder()
    h.add("harness", DAMAGED)
    found = verdict(epochs(stored(*BATCHES, h=h), (0, 0), (2, 4)), "KR-37")
    assert (found.exercised, found.excused) == (1, 0)


def test_the_log_of_another_disk_says_nothing_of_this_one() -> None:
    h = epochs(stored(*BATCHES), (0, 0), slot="broker-2")
    knows(h, 10, slot="broker-2")
    for clause in ("KR-37", "KR-38"):
        assert verdict(h, clause).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("offset", "last"), [(10, (9, 9)), (9, (3, 3)), (4, (3, 3)), (3, (2, 2))])
def test_a_producers_last_message_below_the_offset_exercises_kr_38(
    offset: int, last: tuple[int, int]
) -> None:
    found = verdict(knows(stored(*BATCHES), offset, (7, 1, *last)), "KR-38")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([(7, 1, 9, 8)], (1, 9, 8)),
        ([(7, 1, 8, 9)], (1, 8, 9)),
        ([(7, 0, 9, 9)], (0, 9, 9)),
        ([(8, 1, 9, 9)], ()),
        ([], ()),
    ],
)
def test_another_last_message_breaks_kr_38(
    entries: list[tuple[int, int, int, int]], named: tuple[int, ...]
) -> None:
    found = verdict(knows(stored(*BATCHES), 10, *entries), "KR-38")
    assert (found.violated, found.violations[0].evidence) == (1, Evidence.SELF)
    assert stated(found, "slot", "offset", "partition") == ("broker-1", 10, "orders-0")
    assert stated(found, "producer", "named", "stored") == (7, named, (1, 9, 9))


def test_a_producer_whose_id_is_0_is_one() -> None:
    h = knows(stored(*BATCHES, producer=0), 10)
    assert verdict(h, "KR-38").violated == 1


def test_sequence_numbers_begin_again_at_0_after_the_highest() -> None:
    """KIP-98."""
    h = knows(stored((0, 4, 0, 2**31 - 2)), 4, (7, 1, 1, 3))
    assert verdict(h, "KR-38").verdict is Outcome.HOLDS


def test_a_producer_whose_batches_are_gone_and_a_snapshot_past_the_log_prove_nothing() -> None:
    h = knows(stored(*BATCHES, producer=-1), 10, (7, 1, 9, 9))
    knows(h, 11)
    assert verdict(h, "KR-38").verdict is Outcome.NOT_EXERCISED
    h = knows(stored(*BATCHES), 11)
    assert verdict(h, "KR-38").verdict is Outcome.NOT_EXERCISED


def test_a_batch_that_is_no_write_of_a_producer_does_not_count() -> None:
    """The end of a transaction has its producer's id, and no sequence number."""
    h = knows(stored((0, 1, 0, -1)), 1)
    assert verdict(h, "KR-38").verdict is Outcome.NOT_EXERCISED
