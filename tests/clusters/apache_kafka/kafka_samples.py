"""Lines, records and pages of real versions of Kafka, as recorded in `samples`; and the rows of the
tables that no sample pins. `record_samples.py` records them.

    <version>-<slot>-<number>.txt   part of one node's log, in order
    records-<version>-<number>.txt  committed metadata records of one cluster: offset, epoch, value
    snapshot-<version>.checkpoint   a snapshot of a cluster's metadata
    metadata-<version>.log          the beginning of a node's metadata log, and, as .checkpoint, its
                                    snapshot at offset 94, of epoch 2
    metrics-<version>-<role>.txt    the metrics page of one node
    schemas/                        the schemas of those records; schemas/<version>/ has those that
                                    are others in that version

Below each line of a log, and each record, indented, are the events that are made of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fencepost import Slot
from fencepost_clusters.apache_kafka import log_parser, metrics
from fencepost_clusters.apache_kafka.metadata import records as metadata_log
from fencepost_clusters.apache_kafka.metadata import schema
from fencepost_clusters.apache_kafka.metadata.records import StoredRecord
from fencepost_kafka import Role

SAMPLES = Path(__file__).parent / "samples"
VERSIONS = ("4.4.0", "4.3.1", "4.1.0", "3.9.2")
ROLES = ("controller", "broker")
LOGS = sorted(SAMPLES.glob("*-*-*-*.txt"))
RECORDS = sorted(SAMPLES.glob("records-*-*.txt"))


def slot_of(log: Path) -> Slot:
    """The slot whose node printed the line."""
    _, role, number, _ = log.stem.split("-")
    id_ = int(number) if role == "broker" else 100 + int(number)
    return Slot(f"{role}-{number}", Role(role), id_, 1)


def blocks(sample: Path) -> Iterator[tuple[str, list[str]]]:
    """Each line, with the events below it."""
    line, events = "", []
    for text in sample.read_text().splitlines():
        if text.startswith("  "):
            events.append(text.strip())
            continue
        if line:
            yield line, events
        line, events = text, []
    yield line, events


def lines(version: str) -> Iterator[str]:
    """Every line of a version's logs."""
    for log in LOGS:
        if log.stem.startswith(f"{version}-"):
            yield from (line for line, _ in blocks(log))


def schemas(version: str) -> Mapping[int, schema.Schema]:
    """The recorded schemas, by their keys."""
    found: dict[int, schema.Schema] = {}
    for folder in (SAMPLES / "schemas", SAMPLES / "schemas" / version):
        read = (schema.read(path.read_text()) for path in folder.glob("*.json"))
        found |= {one.key: one for one in read if one is not None}
    return found


def record_of(line: str, known: Mapping[int, schema.Schema]) -> StoredRecord:
    """A recorded record, as a batch of its own."""
    offset, epoch, value = line.split()
    data = bytes.fromhex(value)
    digest = f"{zlib.crc32(data):08x}"
    return StoredRecord(int(offset), int(epoch), schema.decode(known, data), digest, int(offset))


def records(version: str) -> Iterator[StoredRecord]:
    """The metadata records of a version's clusters, one cluster after the other."""
    known = schemas(version)
    for log in RECORDS:
        if log.stem.startswith(f"records-{version}-"):
            yield from (record_of(line, known) for line, _ in blocks(log))


def page(version: str, role: str) -> str:
    """The metrics page of a node in that role; empty if none is recorded."""
    path = SAMPLES / f"metrics-{version}-{role}.txt"
    return path.read_text() if path.exists() else ""


def rows_of(line: str) -> Sequence[str]:
    """The rows of the log parser that match a line."""
    printed = log_parser.LINE.match(line)
    assert printed is not None
    ending = printed[2].rpartition(".")[2]
    return [
        row.message.pattern
        for row in log_parser.TABLE
        if row.logger == ending and row.message.search(printed[3])
    ]


def unpinned(
    printed: Iterable[str], stored: Iterable[StoredRecord], shown: Iterable[str]
) -> Mapping[str, set[str]]:
    """The rows of each table that no line, no record and no page of these exercises."""
    rows = {
        "log": {row.message.pattern for row in log_parser.TABLE},
        "metadata log": set(metadata_log.TABLE),
        "metrics": {row.field for row in metrics.TABLE},
    }
    pinned = {
        "log": {row for line in printed for row in rows_of(line)},
        "metadata log": {one.record.kind for one in stored},
        "metrics": {name for one in shown for name in metrics.figures(one)},
    }
    return {table: rows[table] - pinned[table] for table in rows}


def recorded(version: str) -> tuple[list[str], list[StoredRecord], list[str]]:
    """All samples of a version, as `unpinned` takes them."""
    shown = [page(version, role) for role in ROLES]
    return list(lines(version)), list(records(version)), shown
