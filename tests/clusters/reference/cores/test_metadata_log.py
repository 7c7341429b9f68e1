"""Records, snapshots and their log: round trips, and bytes that cannot be read."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node import settings
from fencepost_clusters.reference.core.node.effects import Instant, StoreSnapshot
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.quorum.metadata import snapshots
from fencepost_clusters.reference.core.quorum.metadata.policies import MetadataPolicies
from fencepost_clusters.reference.core.quorum.raft.metadata_log import MetadataLog, Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.shell.storage import DamagedFile, Disk
from fencepost_clusters.reference.wire import record_batch, records

names = st.text("abcdef", min_size=1, max_size=5)
small = st.integers(0, 5)
ids = st.tuples() | st.tuples(small) | st.tuples(small, small)
incarnations = st.integers(1, 9).map(lambda n: uuid.UUID(int=n))
CONTROLLER = {
    "process.roles": "controller",
    "controller.id": "101",
    "controller.listeners": "CONTROLLER",
    "controller.connect": "101@controller-1:9093",
}
ANY_RECORD = st.one_of(
    st.builds(
        records.BrokerRecord,
        broker_id=small,
        broker_epoch=st.integers(0, 1 << 60),
        end_points=st.just((records.EndPoint(name="CLIENT", host="x", port=40_000),)),
        rack=st.none() | names,
        fenced=st.booleans(),
        incarnation_id=incarnations,
        superseded=st.lists(incarnations, max_size=3).map(tuple),
        registered_at=st.integers(-1, 99),
    ),
    st.builds(records.TopicRecord, name=names, topic_id=incarnations, deleting=st.booleans()),
    st.builds(
        records.PartitionRecord,
        partition_id=small,
        topic_id=incarnations,
        replicas=ids,
        isr=ids,
        removing_replicas=ids,
        adding_replicas=ids,
        leader=small,
        leader_epoch=small,
    ),
    st.builds(
        records.ConfigRecord, resource_type=small, resource_name=names, name=names, value=names
    ),
    st.builds(
        records.IsrChangeRecord,
        partition_id=small,
        topic_id=incarnations,
        isr=ids,
        leader=small,
        leader_epoch=small,
    ),
    st.builds(
        records.AccessControlRecord,
        resource_type=small,
        resource_name=st.none() | names,
        pattern_type=small,
        principal=names,
        host=names,
        operation=small,
        permission_type=small,
    ),
    st.builds(records.DeleteBrokerRecord, id=small),
    st.builds(records.DeleteTopicRecord, name=incarnations),
)


@given(ANY_RECORD, st.integers(1, records.MAX_LEVEL))
def test_every_record_comes_back_from_every_level(record: records.Record, level: int) -> None:
    value = records.encode(record, level)
    assert records.decode(value) == record
    assert records.version_of(value) == records.version_at(type(record), level)


@given(ANY_RECORD, st.binary(max_size=9), st.integers(40, 1000))
def test_an_unknown_tagged_field_is_skipped(
    record: records.Record, content: bytes, tag: int
) -> None:
    if isinstance(record, records.BrokerRecord):  # without tags of its own, so that they end it
        record = replace(record, fenced=False, incarnation_id=None, registered_at=-1, superseded=())
    value = records.encode(record)
    assert value[-1] == 0
    more = value[:-1] + b"\x01" + _unsigned(tag) + bytes([len(content)]) + content
    assert records.decode(more) == record


def test_an_unknown_tagged_field_is_skipped_beside_and_within_known_fields() -> None:
    end_point = records.EndPoint(name="CLIENT", host="x", port=40_000)
    record = records.BrokerRecord(
        broker_id=1, broker_epoch=5, end_points=(end_point,), fenced=True, incarnation_id=None
    )
    value = records.encode(record)
    assert value[-4:] == b"\x01\x00\x01\x01"  # one tagged field: number 0, of one byte
    beside = value[:-4] + b"\x02\x00\x01\x01\x63\x02ab"
    assert records.decode(beside) == record
    # The end point's own tags come before the rack, which is null, and the fence.
    within = value[:-6] + b"\x01\x63\x02ab" + value[-5:]
    assert records.decode(within) == record


def _unsigned(number: int) -> bytes:
    return bytes([(number & 0x7F) | 0x80, number >> 7]) if number > 0x7F else bytes([number])


def everything() -> Image:
    """An image with an entity of each kind."""
    image = Image()
    topic, gone = uuid.UUID(int=1), uuid.UUID(int=2)
    end_points = (records.EndPoint(name="CLIENT", host="x", port=9092, security_protocol=0),)

    def broker(epoch: int, incarnation: int) -> records.BrokerRecord:
        return records.BrokerRecord(
            broker_id=1,
            broker_epoch=epoch,
            end_points=end_points,
            fenced=incarnation == 8,
            incarnation_id=uuid.UUID(int=incarnation),
        )

    def config(kind: int, name: str, key: str) -> records.ConfigRecord:
        return records.ConfigRecord(resource_type=kind, resource_name=name, name=key, value="2")

    for record in (
        broker(0, 7),
        broker(1, 8),
        config(64, "", "metadata.format"),
        config(4, "", "min.insync.replicas"),
        config(4, "1", "min.insync.replicas"),
        records.TopicRecord(name="orders", topic_id=topic),
        config(2, "orders", "min.insync.replicas"),
        records.PartitionRecord(
            partition_id=0,
            topic_id=topic,
            replicas=(1, 2),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            adding_replicas=(2,),
            removing_replicas=(1,),
        ),
        records.IsrChangeRecord(
            partition_id=0, topic_id=topic, isr=(1, 2), leader=2, leader_epoch=4
        ),
        records.TopicRecord(name="gone", topic_id=gone),
        records.TopicRecord(name="gone", topic_id=gone, deleting=True),
        records.AccessControlRecord(
            resource_type=2,
            resource_name=None,
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=4,
            permission_type=3,
        ),
    ):
        image.replay(record, image.offset)
    return image


@pytest.mark.parametrize("level", [1, 2])
def test_a_snapshot_rebuilds_the_very_state(level: int) -> None:
    image = everything()
    values = [records.encode(one, level) for one in snapshots.records_of(image)]
    loaded = snapshots.load(Snapshot(image.offset, 3, record_batch.build(values, 0, 3, 1)))
    assert vars(loaded) == vars(image)
    assert snapshots.digest(loaded) == snapshots.digest(image)


def test_a_snapshot_is_stored_with_the_slice_that_completes_it() -> None:
    """The next one cannot begin before."""
    image = everything()
    values = [records.encode(records.DeleteBrokerRecord(id=9))] * image.offset
    log = MetadataLog([record_batch.build(values, 0, 1, 1)])
    size = len(snapshots.records_of(image))
    parsed = settings.read({**CONTROLLER, "metadata.snapshot.slice.records": str(size // 3)})
    written = snapshots.Snapshots(parsed, log, MetadataPolicies(), Outbox())
    assert size % 3 == 0
    written.start(image, Instant(0, 0))
    times = (Instant(n * snapshots.SLICE_NS, 0) for n in range(3))
    assert [written.tick(image, at) for at in times] == [False, False, True]
    assert written.last_offset == image.offset


def test_there_is_one_snapshot_at_a_time_and_one_for_each_offset() -> None:
    image = everything()
    log = MetadataLog(log_of(*[1] * 20))
    parsed = settings.read({**CONTROLLER, "metadata.snapshot.slice.records": "1"})
    out = Outbox()
    written = snapshots.Snapshots(parsed, log, MetadataPolicies(), out)
    first = image.offset
    written.start(image, Instant(0, 0))
    image.replay(records.DeleteBrokerRecord(id=9), image.offset)
    written.start(image, Instant(0, 0))
    for n in range(20):
        written.tick(image, Instant(n * snapshots.SLICE_NS, 0))
    stored = [one.offset for one in out.drain() if isinstance(one, StoreSnapshot)]
    assert stored == [first]
    written.checkpoint(image, Instant(0, 0))
    written.start(image, Instant(0, 0))
    assert not written.under_way, "it would be the same"
    stored = [one.offset for one in out.drain() if isinstance(one, StoreSnapshot)]
    assert stored == [first + 1]


def log_of(*epochs: int) -> list[bytes]:
    """A batch of one record for each epoch."""
    value = records.encode(records.DeleteBrokerRecord(id=1))
    return [record_batch.build([value], at, epoch, 1) for at, epoch in enumerate(epochs)]


def test_a_log_goes_on_after_its_snapshot_and_knows_its_epoch() -> None:
    batches = log_of(1, 1, 2, 2)
    log = MetadataLog(batches)
    log.compact(Snapshot(3, 2, b""))
    assert (log.start, log.start_epoch, log.end, log.last_epoch) == (3, 2, 4, 2)
    again = MetadataLog(batches, Snapshot(3, 2, b""))
    assert (again.start, again.end, again.read(3, 100)) == (3, 4, batches[3])
    bare = MetadataLog((), Snapshot(3, 2, b""))
    assert (bare.end, bare.last_epoch, bare.index.end_for_epoch(5)) == (3, 2, (2, 3))
    assert bare.index.end_for_epoch(1) == (-1, 0)
    assert bare.truncate(2) == 0
    assert bare.snapshot is None


def test_a_log_reads_what_it_keeps_and_nothing_that_it_dropped() -> None:
    batches = log_of(1, 1, 2, 2)
    log = MetadataLog(batches)
    assert [log.epoch_before(offset) for offset in range(5)] == [-1, 1, 1, 2, 2]
    assert log.truncate(3) == 3
    assert log.read(0, 1000) == b"".join(batches[:3])
    log.compact(Snapshot(2, 1, b""))
    assert (log.start, log.read(2, 1000), log.epoch_before(2)) == (2, batches[2], 1)
    assert log.truncate(2) == 2
    assert log.snapshot is not None, "the log ends where its snapshot does"
    log.append(batches[2])
    log.install(Snapshot(9, 3, b""))
    assert (log.end, log.batches(0, 9), log.epoch_before(9)) == (9, (), 3)


def test_a_gap_after_the_snapshot_is_no_log() -> None:
    with pytest.raises(record_batch.CorruptBatch, match="nothing from 1 to 3"):
        MetadataLog(log_of(1, 1, 2, 2)[3:], Snapshot(1, 1, b""))


def test_a_snapshot_on_disk_replaces_the_older_one_and_the_log_below_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 100)
    log = disk.log("__kafka_metadata-0")
    for data in log_of(1, 1, 1, 1, 1):
        log.append(data)
    disk.store_snapshot("__kafka_metadata-0", 2, 1, b"old")
    disk.store_snapshot("__kafka_metadata-0", 4, 1, b"new")
    stored = Disk(tmp_path, 100).stored()
    assert stored.snapshot == Snapshot(4, 1, b"new")
    assert [record_batch.parse(b).base_offset for b in stored.metadata] == [4]


@pytest.mark.parametrize("content", ["", "{", '{"epoch": "x", "voted_for": 1}', "[]"])
def test_a_damaged_vote_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "quorum-state.json").write_text(content)
    with pytest.raises(DamagedFile, match=r"quorum-state\.json"):
        Disk(tmp_path, 100).stored()
    (tmp_path / "quorum-state.json").write_text(json.dumps({"epoch": 3, "voted_for": None}))
    assert Disk(tmp_path, 100).stored().vote == Vote(3)
