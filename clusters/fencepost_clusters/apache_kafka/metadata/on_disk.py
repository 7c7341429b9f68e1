"""The metadata that each node's disk holds once all processes have ended: the states that its
snapshots have, and those that its log leads to.

A node writes a snapshot of the state that it has in memory. So a snapshot shows what the node had
made of the log, and may be compared with what any other node's log leads to at the same offset.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from fencepost import Slot
from fencepost_clusters.apache_kafka.metadata import schema
from fencepost_clusters.apache_kafka.metadata.entities import Entities, Key
from fencepost_clusters.apache_kafka.metadata.snapshot import METADATA_TOPIC, batches

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_LENGTH_ENDS = 12
"""Where the bytes begin that a batch's length counts."""


class MetadataStateFound(Struct, frozen=True, tag="disk.metadata_state", kw_only=True):
    """The metadata of all records before `offset`, the last of which is of `epoch`, by the disk of
    a slot: by a snapshot there, or else by its log.

    `entities` is how many it describes, and `records` how many records it took. `orphans` are the
    settings of topics that do not exist, or that a former topic of the name had, and `sound` is the
    digest without them.
    """

    slot: str
    node_id: int
    role: str
    offset: int
    epoch: int
    by_snapshot: bool
    digest: str
    entities: int
    records: int
    orphans: tuple[str, ...] = ()
    sound: str = ""

    def sentence(self) -> str:
        how = "a snapshot" if self.by_snapshot else "its log"
        return (
            f"the disk of {self.slot} has, by {how}, {self.entities} entities at metadata offset "
            f"{self.offset}"
        )

    def concerns(self) -> Sequence[str]:
        return (f"slot {self.slot}",)


_At = tuple[int, int]
"""An offset, and the epoch of the record before it."""
_Dropped = dict[_At, set[tuple[Key, Any]]]
"""For each state of a log, the settings that deletions of topics had dropped by then."""


class _Stored(NamedTuple):
    """A record of a log: its offset, its batch's epoch, and what it says (None: a control
    record)."""

    offset: int
    epoch: int
    record: schema.Record | None


def metadata_states(
    disks: Mapping[str, Path], slots: Sequence[Slot], schemas: Mapping[int, schema.Schema]
) -> Iterator[MetadataStateFound]:
    """What each snapshot on these disks holds, and what each log leads to at its offset."""
    folders = {slot: disks[slot.name] / f"{METADATA_TOPIC}-0" for slot in slots}
    snapshots: list[tuple[Slot, _At, Entities]] = []
    for slot, folder in folders.items():
        for path in sorted(folder.glob("*.checkpoint")):
            named = _SNAPSHOT.fullmatch(path.name)
            if named is None or not int(named[1]):
                continue  # the one that a disk is formatted with
            entities = Entities()
            for batch in batches(path.read_bytes()):
                for record in batch.records:
                    entities.replay(schema.decode(schemas, record.value or b""))
            snapshots.append((slot, (int(named[1]), int(named[2])), entities))
    wanted = sorted({at for _, at, _ in snapshots})
    dropped: _Dropped = {}
    by_log = [
        state
        for slot, folder in folders.items()
        for state in _by_log(slot, folder, wanted, schemas, dropped)
    ]
    for slot, at, entities in snapshots:
        yield _state(slot, at, entities, by_snapshot=True, dropped=dropped.get(at, ()))
    yield from by_log


def _by_log(
    slot: Slot,
    folder: Path,
    wanted: Sequence[_At],
    schemas: Mapping[int, schema.Schema],
    dropped: _Dropped,
) -> Iterator[MetadataStateFound]:
    """The states at those offsets, as far as the log begins at 0 and has a record of that epoch
    right before: then all records before are the same, too, as in any log of Raft."""
    entities, due = Entities(), list(wanted)
    last = (0, -1)
    for stored in _records(folder, schemas):
        while due and due[0][0] <= stored.offset:
            at = due.pop(0)
            # The epoch must match, too: a log that has another record there leads to another state,
            # and rightly so.
            if at == last:
                dropped.setdefault(at, set()).update(entities.dropped)
                yield _state(slot, at, entities, by_snapshot=False)
        # A log that begins after offset 0 leads to no state by itself.
        if not last[0] and stored.offset:
            return
        if stored.record is not None:
            entities.replay(stored.record)
        last = stored.offset + 1, stored.epoch
    if due and due[0] == last:
        dropped.setdefault(last, set()).update(entities.dropped)
        yield _state(slot, last, entities, by_snapshot=False)


def _records(folder: Path, schemas: Mapping[int, schema.Schema]) -> Iterator[_Stored]:
    for path in sorted(folder.glob("*.log")):
        for batch in batches(_whole(path.read_bytes())):
            epoch = batch.partition_leader_epoch
            # A batch of control records: its offsets count, though it says nothing of the metadata.
            if not batch.records:
                for offset in range(
                    batch.base_offset, batch.base_offset + batch.last_offset_delta + 1
                ):
                    yield _Stored(offset, epoch, None)
            for record in batch.records:
                value = schema.decode(schemas, record.value or b"")
                yield _Stored(record.offset, epoch, value)


def _whole(data: bytes) -> bytes:
    """The whole batches at the beginning of a segment's bytes."""
    at = 0
    while at + _LENGTH_ENDS <= len(data):
        size = int.from_bytes(data[at + 8 : at + _LENGTH_ENDS], "big")
        # A process that was killed may have left a part of a batch at the end.
        if size <= 0 or at + _LENGTH_ENDS + size > len(data):
            break
        at += _LENGTH_ENDS + size
    return data[:at]


def _state(
    slot: Slot,
    at: _At,
    entities: Entities,
    *,
    by_snapshot: bool,
    dropped: Collection[tuple[Key, Any]] = (),
) -> MetadataStateFound:
    orphans = entities.orphans(dropped)
    return MetadataStateFound(
        slot=slot.name,
        node_id=slot.node_id,
        role=str(slot.role),
        offset=at[0],
        epoch=at[1],
        by_snapshot=by_snapshot,
        digest=entities.digest(),
        entities=len(entities),
        records=entities.records,
        orphans=tuple(sorted(f"{topic} {name}" for _, _, topic, name in orphans)),
        sound=entities.digest(but=orphans),
    )
