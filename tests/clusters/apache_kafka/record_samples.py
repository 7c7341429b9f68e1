"""Records samples of a version of Kafka from a real cluster, into the folder `samples`.

    .venv/bin/python tests/clusters/apache_kafka/record_samples.py 4.1.0 [RUN]

Faults make the nodes of a cluster print and store nearly all that the tables know; or RUN, the
folder of a run of that version that is over, such as a soak's, is searched for further rows; of a
version that is not pinned in full, such as an old one, only for lines of its nodes' logs. Rows
that samples of the version pin already are kept: to record one again, remove its sample first. The
events below the lines are those that the tables make now: read them before a commit.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from kafka_samples import (
    RECORDS,
    SAMPLES,
    VERSIONS,
    record_of,
    recorded,
    rows_of,
    slot_of,
    unpinned,
)
from msgspec import Struct

from fencepost import Shape
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.apache_kafka.log_memory import Configured
from fencepost_clusters.apache_kafka.log_parser import LINE, TABLE, KafkaLogParser
from fencepost_clusters.apache_kafka.metadata import records as metadata_log
from fencepost_clusters.apache_kafka.metadata import schema
from fencepost_clusters.apache_kafka.metadata.installed import schemas_in
from fencepost_clusters.apache_kafka.metadata.records import Metadata
from fencepost_clusters.apache_kafka.metadata.snapshot import batches

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "16384"}
"""How often a controller takes a snapshot; Kafka's own default is too rarely."""
NODE = re.compile(r"((?:controller|broker)-\d+)(?:-duplicate)?#")
PATIENCE_MS = 120_000
"""How long any step may take, on a busy machine."""
KEPT = 2
"""Lines of one row in one sample."""
COMMON = SAMPLES / "schemas"


# ------------------------------------------------------------------------------------------ faults


def inject_faults(run: Run) -> dict[str, bytes]:
    """Injects faults so that the cluster prints the lines in the tables; returns the metrics pages
    of a node of each role."""
    cluster, faults, clients = run.cluster, run.faults, run.clients
    until = partial(cluster.eventually, within_ms=PATIENCE_MS)
    clients.create_topic("many", partitions=12)
    writes = clients.produce("orders", "many", rate=100)
    until(writes.acked_at_least(50))
    nodes = {"controller": cluster.active_controller, "broker": cluster.leader("orders", 0)}
    pages = {role: clients.read_metrics(node).answer for role, node in nodes.items()}
    with faults.duplicate_id(nodes["broker"], disk="empty"):
        duplicate = cluster.node(f"{nodes['broker']}-duplicate")
        until(duplicate.refused_with("DUPLICATE_BROKER_REGISTRATION"))
    paused = cluster.leader("orders", 1)
    with faults.pause(paused):
        until(paused.fenced_by_controller)
        faults.duplicate_id(paused, disk="empty")
        until(cluster.node(f"{paused}-duplicate").active)
    until(paused.refused_with("STALE_BROKER_EPOCH"))
    faults.heal_all()
    faults.bounce(paused, after_ms=0)
    until(cluster.recovered)
    old = cluster.active_controller
    with faults.partition(old, [one for one in cluster.controllers if one != old]):
        until(cluster.another_controller(old))
    faults.bounce(cluster.active_controller, after_ms=0)
    until(cluster.recovered)
    away = cluster.followers("orders", 0)[0]
    with faults.kill(away):
        until(away.fenced_by_controller)
        clients.delete_broker(away)
    until(cluster.recovered)
    writes.stop()
    until(writes.settled)
    clients.alter_settings("orders", {"min.insync.replicas": "1"})
    clients.delete_topic("orders")
    return pages


# ------------------------------------------------------------------------------------ what it left


def glean_logs(folder: Path, version: str, wanted: set[str]) -> None:
    """The part of each log that has a line of a wanted row, which is removed from `wanted`."""
    for log in sorted((folder / "logs").iterdir()):
        node = NODE.match(log.name)
        if node is None:
            continue
        text = log.read_text(errors="replace").replace(str(folder.resolve()), "/run")
        printed = [line for line in text.splitlines() if LINE.match(line)]
        printed = [line for line in printed if rows_of(line)]
        found = {row for line in printed for row in rows_of(line)} & wanted
        if found:
            wanted -= found
            free = next(
                path
                for n in range(1, 100)
                if not (path := SAMPLES / f"{version}-{node[1]}-{n}.txt").exists()
            )
            log_parser = KafkaLogParser(slot_of(free), Configured(3_000, fetch_timeout_ms=1_500))
            kept = list(some(printed, found))
            free.write_text(
                "".join(block(line, (one.body for one in log_parser.parse(line))) for line in kept)
            )
            print(f"{free.name}: {len(kept)} lines")


def some(printed: Iterable[str], found: set[str]) -> Iterator[str]:
    """A few lines of each row; as far as possible about one partition, which prints most rows."""
    printed = list(printed)
    rows: dict[tuple[str, str], set[str]] = {}
    for line in printed:
        place = place_of(line)
        if place is not None:
            rows.setdefault(place, set()).update(rows_of(line))
    chosen = max(rows, key=lambda place: (len(rows[place] & found), len(rows[place])), default=None)
    known = set() if chosen is None else rows[chosen]
    count: Counter[str] = Counter()
    for line in printed:
        (row,) = rows_of(line)
        elsewhere = row in found and row not in known
        if count[row] < KEPT and (place_of(line) in (None, chosen) or elsewhere):
            count[row] += 1
            yield line


def place_of(line: str) -> tuple[str, str] | None:
    """The partition that a line is about."""
    printed = LINE.match(line)
    found = [m for row in TABLE if printed and (m := row.message.search(printed[3]))]
    said = found[0].groupdict() if found else {}
    return (said["topic"], said["partition"]) if "topic" in said else None


def glean_records(folder: Path, version: str, home: Path) -> None:
    """The records about brokers, features and one partition, and the schemas they are read by."""
    log = next((folder / "data").glob("controller-*/__cluster_metadata-0/*0.log"), None)
    if log is None:
        print(f"{folder} has no metadata log any more")
        return
    known = schemas_in(home)
    kinds: set[str] = set()
    metadata = Metadata()
    printed: list[str] = []
    topic = ""
    for offset, epoch, value in values(log.read_bytes()):
        stored = record_of(f"{offset} {epoch} {value.hex()}", known)
        record, said = stored.record, stored.record.values
        if record.kind == "TopicRecord" and said["Name"] == "orders":
            topic = said["TopicId"]
        elsewhere = said.get("TopicId", topic) != topic or said.get("PartitionId", 0)
        idle_again = record.kind == "NoOpRecord" and record.kind in kinds
        if record.kind in {*metadata_log.TABLE, "NoOpRecord"} and not elsewhere and not idle_again:
            kinds.add(record.kind)
            printed.append(block(f"{offset} {epoch} {value.hex()}", metadata.replay(stored)))
    number = 1 + sum(one.stem.startswith(f"records-{version}-") for one in RECORDS)
    path = SAMPLES / f"records-{version}-{number}.txt"
    path.write_text("".join(printed))
    print(f"{path.name}: {len(printed)} records")
    keep_schemas(home, version, kinds)


def values(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Offset, epoch and value of each record of a log's file, without control records."""
    for batch in batches(data):
        for one in batch.records:
            yield one.offset, batch.partition_leader_epoch, one.value or b""


def keep_schemas(home: Path, version: str, kinds: set[str]) -> None:
    """The schemas that differ from those of the versions recorded before."""
    with zipfile.ZipFile(next((home / "lib").glob("kafka-metadata-*.jar"))) as jar:
        for name in jar.namelist():
            text = jar.read(name) if name.startswith("common/metadata/") else b""
            read = schema.read(text.decode()) if text and name.endswith(".json") else None
            if read is not None and read.name in kinds:
                common, own = COMMON / Path(name).name, COMMON / version / Path(name).name
                path = own if common.exists() and common.read_bytes() != text else common
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(text)


def keep_snapshot(folder: Path, version: str, home: Path) -> None:
    """Keeps the last snapshot of a controller, and the schemas of its records."""
    found = (folder / "data").glob("controller-*/__cluster_metadata-0/*.checkpoint")
    newest = max(found, key=lambda path: path.name)
    shutil.copyfile(newest, SAMPLES / f"snapshot-{version}.checkpoint")
    print(f"{newest.name}: {newest.stat().st_size} bytes")
    known = schemas_in(home)
    keep_schemas(
        home,
        version,
        {schema.decode(known, value).kind for _, _, value in values(newest.read_bytes())},
    )


def block(line: str, events: Iterable[Struct]) -> str:
    """A line, and below it the events made of it."""
    return "".join([line, "\n", *(f"  {msgspec.json.encode(one).decode()}\n" for one in events)])


def record(version: str) -> None:
    """Injects faults into a cluster of that version, and records samples of its folder."""
    plugins = load()
    folder = RunFolder.create(Path(tempfile.mkdtemp(prefix="kafka-samples-")) / "run")
    spec = RunSpec(plugins.system(f"apache/kraft@{version}"), Shape(settings=SNAPSHOTS))
    with Run.start(spec, plugins, folder) as run:
        pages = inject_faults(run)
        print(f"recorded: {folder.path}")
        lacks = missing(version)
        home = cache(os.environ) / version
        if lacks["metadata log"]:
            glean_records(folder.path, version, home)
        if not (SAMPLES / f"snapshot-{version}.checkpoint").exists():
            keep_snapshot(folder.path, version, home)
    for role, page in pages.items():
        path = SAMPLES / f"metrics-{version}-{role}.txt"
        if not path.exists():
            path.write_bytes(page)
    glean_logs(folder.path, version, lacks["log"])


def missing(version: str) -> dict[str, set[str]]:
    """The rows that no sample of the version pins."""
    return dict(unpinned(*recorded(version)))


def main(argv: list[str]) -> int:
    """See the module."""
    version, *runs = argv[1:]
    for run in map(Path, runs):
        lacks = missing(version)
        glean_logs(run, version, lacks["log"])
        if lacks["metadata log"] and version in VERSIONS:
            glean_records(run, version, cache(os.environ) / version)
    if not runs:
        record(version)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
