"""The metadata log, decoded by Kafka's own schemas, as versions of Kafka wrote it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from kafka_samples import RECORDS, VERSIONS, blocks, record_of, records, schemas
from msgspec import Struct, structs

from fencepost import EnvironmentFailed
from fencepost_clusters.apache_kafka.metadata import schema
from fencepost_clusters.apache_kafka.metadata.installed import schemas_in
from fencepost_clusters.apache_kafka.metadata.misplaced import ReplicaMisplaced
from fencepost_clusters.apache_kafka.metadata.observer import FetchResult, LogProgress
from fencepost_clusters.apache_kafka.metadata.records import Metadata, StoredRecord
from fencepost_clusters.apache_kafka.metadata.schema import Record, Undecodable, Versions, decode
from fencepost_clusters.apache_kafka.metadata.snapshot import Snapshot
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    FeatureFinalized,
    MetadataCommitted,
    PartitionCommitted,
    TopicCommitted,
)

REGISTERED = "RegisterBrokerRecord"
TOPIC = "HsPbQxXiQhu1vGbPDrTlIA"
Schemas = Mapping[int, schema.Schema]


@pytest.fixture(scope="module")
def known() -> Schemas:
    return schemas("4.3.1")


def recorded(known: Schemas) -> Iterator[StoredRecord]:
    """Records of one cluster's life: of a feature, the brokers, and one partition."""
    sample = next(one for one in RECORDS if one.stem == "records-4.3.1-1")
    return (record_of(line, known) for line, _ in blocks(sample))


@pytest.mark.parametrize("sample", RECORDS, ids=lambda sample: sample.stem)
def test_the_events_of_a_metadata_log(sample: Path) -> None:
    known, metadata = schemas(sample.stem.split("-")[1]), Metadata()
    for line, expected in blocks(sample):
        bodies = metadata.replay(record_of(line, known))
        assert [msgspec.json.encode(one).decode() for one in bodies] == expected, line


def test_a_version_is_read_by_its_own_schemas() -> None:
    for version in VERSIONS:
        registered = [one.record for one in records(version) if one.record.kind == REGISTERED]
        assert registered
        assert all(len(one.values["LogDirs"]) == 1 for one in registered), version


HOLDERS, OTHERS, UNASSIGNED, LOST = "B" * 22, "C" * 22, "A" * 22, "A" * 21 + "Q"
MISPLACED = ReplicaMisplaced(offset=3, topic="orders", partition=1, broker_id=1, directory=OTHERS)


@pytest.mark.parametrize(
    ("kind", "has", "found"),
    [
        (REGISTERED, OTHERS, (MISPLACED,)),
        (REGISTERED, HOLDERS, ()),
        (REGISTERED, UNASSIGNED, ()),
        (REGISTERED, LOST, ()),
        ("BrokerRegistrationChangeRecord", OTHERS, ()),
        (
            "BrokerRegistrationChangeRecord",
            HOLDERS,
            (structs.replace(MISPLACED, directory=HOLDERS),),
        ),
        ("NoOpRecord", None, ()),
    ],
)
def test_a_replica_is_misplaced_in_a_directory_that_its_broker_has_not_registered(
    known: Schemas, kind: str, has: str | None, found: tuple[Struct, ...]
) -> None:
    """A change of the registration replaces the directories; without any, nothing is known."""
    life, metadata = list(recorded(known)), Metadata()
    registered = next(
        one for one in life if one.record.kind == REGISTERED and one.record.values["BrokerId"] == 1
    )
    topic = next(one for one in life if one.record.kind == "TopicRecord")
    placed = next(one for one in life if one.record.kind == "PartitionRecord")

    def at(offset: int, one: StoredRecord, **values: object) -> Sequence[Struct]:
        record = dataclasses.replace(one.record, values={**one.record.values, **values})
        return metadata.replay(dataclasses.replace(one, offset=offset, record=record))

    at(0, registered, LogDirs=() if kind == "NoOpRecord" else (HOLDERS,))
    if kind == "BrokerRegistrationChangeRecord":
        changed = next(one for one in life if one.record.kind == kind)
        at(1, changed, BrokerId=1, LogDirs=(OTHERS,))
    at(2, topic)
    bodies = at(3, placed, Replicas=(1,), Directories=(has or OTHERS,))
    assert tuple(one for one in bodies if isinstance(one, ReplicaMisplaced)) == found


@pytest.mark.parametrize("changes", [REGISTERED, "BrokerRegistrationChangeRecord"])
def test_a_replica_is_offline_while_its_broker_has_not_registered_its_directory(
    known: Schemas, changes: str
) -> None:
    """A registration states anew which partitions it concerns. The broker's next record of the
    directory, or the partition's, brings the replica back."""
    life, metadata = list(recorded(known)), Metadata()

    def at(offset: int, kind: str, **values: object) -> Sequence[tuple[int, tuple[int, ...]]]:
        one = next(one for one in life if one.record.kind == kind)
        record = dataclasses.replace(one.record, values={**one.record.values, **values})
        bodies = metadata.replay(dataclasses.replace(one, offset=offset, record=record))
        return [(one.offset, one.offline) for one in bodies if isinstance(one, PartitionCommitted)]

    for broker in (1, 2):
        at(broker, REGISTERED, BrokerId=broker, LogDirs=(HOLDERS,))
    at(3, "TopicRecord")
    placed = (HOLDERS, HOLDERS)
    assert at(4, "PartitionRecord", Replicas=(1, 2), Directories=placed) == [(4, ())]
    assert at(5, changes, BrokerId=2, LogDirs=(OTHERS,)) == [(5, (2,))]
    assert at(6, changes, BrokerId=2, LogDirs=(OTHERS,)) == []
    assert at(7, "PartitionChangeRecord", Replicas=None, Directories=None) == [(7, (2,))]
    placed = (HOLDERS, OTHERS)
    assert at(8, "PartitionChangeRecord", Replicas=None, Directories=placed) == [(8, ())]
    assert at(9, changes, BrokerId=3, LogDirs=(OTHERS,)) == []
    assert at(10, changes, BrokerId=1, LogDirs=(OTHERS,)) == [(10, (1,))]
    assert at(11, changes, BrokerId=1, LogDirs=(HOLDERS, OTHERS)) == [(11, ())]


EVERYONE = (1, 2, 3)


def partition(
    offset: int,
    leader: int,
    epoch: int,
    isr: tuple[int, ...],
    eligible: tuple[int, ...] = (),
    offline: tuple[int, ...] = (1,),
) -> PartitionCommitted:
    """A record of orders-1. Broker 1 has not registered the directory of its replica."""
    return PartitionCommitted(
        offset=offset,
        topic="orders",
        partition=1,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        replicas=EVERYONE,
        eligible=eligible,
        offline=offline,
    )


def test_the_events_of_a_clusters_life(known: Schemas) -> None:
    metadata = Metadata()
    events: dict[int, list[Struct]] = {}
    for stored in recorded(known):
        events[stored.offset] = list(metadata.replay(stored))
    assert events[2] == [
        MetadataCommitted(
            offset=2, epoch=1, kind="FeatureLevelRecord", digest="77240d18", version=0
        ),
        FeatureFinalized(offset=2, feature="metadata.version", level=30),
    ]
    registered = BrokerCommitted(
        offset=12, broker_id=3, broker_epoch=12, fenced=True, incarnation="4RWgJhJrR8-zKKcgf9SOsQ"
    )
    assert events[12][1:] == [registered]
    assert events[16][1:] == [
        BrokerCommitted(
            offset=16,
            broker_id=3,
            broker_epoch=12,
            fenced=False,
            incarnation="4RWgJhJrR8-zKKcgf9SOsQ",
        )
    ]
    assert events[25][1:] == [
        TopicCommitted(offset=25, topic="orders", topic_id=TOPIC, deleted=False)
    ]
    assert events[27][1:] == [partition(27, 1, 0, EVERYONE, offline=())]
    # A new leader begins an epoch, a change of the ISR alone does not.
    assert events[39][1:] == [partition(39, 2, 1, (2, 3))]
    assert events[57][1:] == [partition(57, 2, 1, EVERYONE)]
    # The leader is fenced: the record names the replica that is eligible beside the ISR (KIP-966).
    assert events[189][1:] == [partition(189, 3, 2, (3,), eligible=(2,))]
    assert events[191][1:] == [
        BrokerCommitted(
            offset=191,
            broker_id=2,
            broker_epoch=17,
            fenced=True,
            incarnation="Q6GFjUXzRfSDjpgTsfiIrQ",
        )
    ]
    assert events[192][1:] == [partition(192, 3, 2, (1, 3))]
    assert events[435][1:] == [
        TopicCommitted(offset=435, topic="orders", topic_id=TOPIC, deleted=True)
    ]


def test_idle_records_make_no_event(known: Schemas) -> None:
    (idle,) = (one for one in recorded(known) if one.record.kind == "NoOpRecord")
    assert Metadata().replay(idle) == ()


def test_bytes_that_are_not_a_record_are_refused(known: Schemas) -> None:
    whole = bytes.fromhex("01110000000003000000000000000c010001ff")
    assert decode(known, whole).values["Fenced"] == -1
    for size in range(len(whole)):
        with pytest.raises(Undecodable):
            decode(known, whole[:size])
    for frame in (b"\x02", b"\x01\x7f\x00", b"\x01\x11\x63"):
        with pytest.raises(Undecodable, match=r"a record of frame|is not complete"):
            decode(known, frame + whole[3:])


def test_a_tagged_field_that_the_schema_lacks_is_skipped(known: Schemas) -> None:
    head = bytes.fromhex("01110000000003000000000000000c")
    one = decode(known, head + bytes.fromhex("020001ff630261ff"))
    assert one.values == decode(known, head + bytes.fromhex("010001ff")).values


def test_versions_are_read_as_schemas_write_them() -> None:
    assert 3 in Versions.of("2+")
    assert 1 not in Versions.of("2+")
    assert 2 in Versions.of("0-2")
    assert 0 not in Versions.of("none")
    assert 4 in Versions.of("4")


def test_a_request_or_response_is_not_a_metadata_record() -> None:
    text = '// licence\n{"apiKey": 1, "type": "request", "name": "FetchRequest"}'
    assert schema.read(text) is None


def changed(known: Schemas, offset: int, **values: object) -> StoredRecord:
    """A PartitionChangeRecord of orders-1 that changes just that."""
    record = next(s.record for s in recorded(known) if s.offset == 189)
    blank = dict.fromkeys(record.values) | {"Leader": -2}
    place = {name: record.values[name] for name in ("TopicId", "PartitionId")}
    return StoredRecord(offset, 1, Record(record.kind, 2, blank | place | values), "", 200)


def test_a_replica_eligible_before_a_batch_may_be_elected_within_it(
    known: Schemas,
) -> None:
    metadata = Metadata()
    for stored in recorded(known):
        if stored.offset < 200:  # the topic is deleted later
            metadata.replay(stored)
    metadata.replay(changed(known, 300, Isr=[3], EligibleLeaderReplicas=[2]))
    batch = (
        changed(known, 301, EligibleLeaderReplicas=[]),
        changed(known, 302, Leader=2, Isr=[2], EligibleLeaderReplicas=[]),
    )
    first, second = (b for b in metadata.replay_batch(batch) if isinstance(b, PartitionCommitted))
    assert (first.isr, first.eligible) == ((3,), (2,))
    assert (second.leader, second.eligible) == (2, ())
    # Alone in its batch, the record ends the eligibility that it names.
    metadata.replay(changed(known, 303, EligibleLeaderReplicas=[1]))
    (alone,) = metadata.replay_batch([changed(known, 304, EligibleLeaderReplicas=[])])[1:]
    assert alone.eligible == ()


@pytest.mark.parametrize(("topic", "cleared"), [("orders", True), ("", True), ("audit", False)])
def test_a_record_clears_the_eligible_leaders_of_a_topic_or_of_all(
    known: Schemas, topic: str, cleared: bool
) -> None:
    metadata = Metadata()
    for stored in recorded(known):
        if stored.offset < 200:
            metadata.replay(stored)
    metadata.replay(changed(known, 300, Leader=-1, Isr=[], EligibleLeaderReplicas=[2, 3]))
    clear = Record("ClearElrRecord", 0, {"TopicName": topic})
    _, *found = metadata.replay(StoredRecord(301, 1, clear, "", 300))
    assert found == ([partition(301, -1, 4, ())] if cleared else [])
    # There is nothing more to clear.
    assert metadata.replay(StoredRecord(302, 1, clear, "", 302))[1:] == []


def test_schemas_that_are_not_in_the_cache_are_missed_in_one_sentence(tmp_path: Path) -> None:
    says = r"Kafka 4\.1\.0, .* is not in .*: \./dev images kafka --kafka 4\.1\.0 installs it$"
    with pytest.raises(EnvironmentFailed, match=says):
        schemas_in(tmp_path / "4.1.0")


# ------------------------------------------------------------------------ what the observer reads


def stored(offset: int, epoch: int = 1) -> StoredRecord:
    return StoredRecord(offset, epoch, Record("NoOpRecord", 0, {}), "", offset)


def answer(high_watermark: int, *offsets: int, epoch: int = 1) -> FetchResult:
    end = offsets[-1] + 1 if offsets else -1
    records = tuple(stored(offset, epoch) for offset in offsets)
    return FetchResult("", 101, epoch, high_watermark, records=records, end=end, end_epoch=epoch)


def test_a_record_below_the_high_watermark_makes_one_event() -> None:
    reading = LogProgress()
    assert reading.take(answer(0, 0, 1, 2)) == []
    assert reading.next_offset == 3
    assert [one.offset for one in reading.take(answer(2))] == [0, 1]
    assert [one.offset for one in reading.take(answer(4, 3))] == [2, 3]
    assert reading.take(answer(4)) == []


def test_the_records_of_a_deposed_leader_are_read_again_and_make_no_event() -> None:
    reading = LogProgress()
    reading.take(answer(2, 0, 1, 2, 3))
    assert (reading.next_offset, reading.last_epoch) == (4, 1)
    assert reading.take(FetchResult("", 102, 2, 3, diverges=True)) == ()
    assert (reading.next_offset, reading.last_epoch) == (2, 1)
    found = reading.take(answer(4, 2, 3, epoch=2))
    assert [(one.offset, one.epoch) for one in found] == [(2, 2), (3, 2)]


def test_a_batch_without_metadata_moves_the_position_on() -> None:
    reading = LogProgress()
    control = FetchResult("", 101, 1, 1, end=1, end_epoch=1)
    assert reading.take(control) == []
    assert reading.next_offset == 1


# ---------------------------------------------------------------------- a log that has been cut


def test_after_a_snapshot_the_observer_goes_on_and_records_what_it_missed() -> None:
    reading = LogProgress()
    reading.take(answer(2, 0, 1, 2, 3))  # two of them may be a deposed leader's
    found = reading.skip(Snapshot(40, 7))
    assert "metadata records 2 to 39 were not read" in found.what
    assert (reading.next_offset, reading.last_epoch, reading.committed) == (40, 7, (40, 7))
    assert [one.offset for one in reading.take(answer(42, 40, 41, epoch=7))] == [40, 41]


def test_a_snapshot_makes_events_of_changed_entities(known: Schemas) -> None:
    before = [one for one in recorded(known) if one.offset < 435]  # then the topic is deleted
    metadata = Metadata()
    for stored in before:
        metadata.replay(stored)
    snapshot = [one.record for one in before]
    # Unchanged entities make no event again, except features, of which only the level is known.
    assert metadata.restore(500, snapshot) == [
        FeatureFinalized(offset=500, feature="metadata.version", level=30)
    ]
    # In between broker 1 was deleted, broker 2 unfenced, and the topic replaced by another.
    found = metadata.restore(600, altered(snapshot))
    assert found[0] == TopicCommitted(offset=600, topic="orders", topic_id=TOPIC, deleted=True)
    assert found[1] == BrokerDeleted(offset=600, broker_id=1)
    assert found[3] == TopicCommitted(offset=600, topic="orders", topic_id="another", deleted=False)
    (unfenced,) = (one for one in found if isinstance(one, BrokerCommitted))
    assert (unfenced.offset, unfenced.broker_id, unfenced.fenced) == (600, 2, False)
    assert {one.offset for one in found if isinstance(one, PartitionCommitted)} == {600}
    # From then on the log is replayed onto that state.
    gone = StoredRecord(601, 9, Record("RemoveTopicRecord", 0, {"TopicId": "another"}), "", 601)
    assert metadata.replay(gone)[1:] == [
        TopicCommitted(offset=601, topic="orders", topic_id="another", deleted=True)
    ]
    # Nothing was known before, so everything makes an event.
    assert [type(one) for one in Metadata().restore(9, snapshot)].count(TopicCommitted) == 1


def altered(snapshot: list[Record]) -> Iterator[Record]:
    """A state that differs from a snapshot's; see its use."""
    for record in snapshot:
        values = dict(record.values)
        if values.get("BrokerId") == 1:
            continue
        if values.get("BrokerId") == 2 and "Fenced" in values:
            values["Fenced"] = False
        if "TopicId" in values:
            values["TopicId"] = "another"
        yield Record(record.kind, record.version, values)
