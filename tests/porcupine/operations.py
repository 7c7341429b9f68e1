"""Clients' answers about each log in a run, as operations for the checker beside this file.

The operations use no rule of ours. Partition logs are judged by client events only.

A partition's log. A write with acks=all that was acknowledged is an append between its call and its
answer, at the offset that the answer named. One that failed was never appended. A write whose end
is unknown counts at the offset where a reader found it. If a complete reading lacks it, it is left
out. Writes with other acks, and those of probes, have no promise: they count as unknown, and as one
append for each offset where they were found, since a resend may store them twice. A poll is a read
at any time since its consumer's last event. The final reading, if it is complete, is one read of
the whole log. Deleted topics are left out, because their names stand for several logs.

The metadata log. The nodes are its readers: records that a node replays in a row are one read. A
topic's creation or deletion by an admin client is an append between its call and its answer, at the
offset of its replayed record. Any other record may have been appended at any time. The records that
all nodes replayed are the whole log at the end of the run. The checker so finds an acknowledged
change that no node replays, two nodes with different records at one offset, and a later change
stored before an acknowledged one. A listing is no read of this log: a broker answers it from the
records that it has replayed so far, which promises no recency.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct
from tests.go_tool import go

from fencepost import Event
from fencepost_kafka import (
    AdminCompleted,
    MetadataCommitted,
    Polled,
    ProbeCompleted,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
    TopicCommitted,
    TopicMarked,
)

HERE = Path(__file__).parent
METADATA = "metadata"
STRETCH = 100
"""How many records in a row, replayed by one node, are taken for one read."""
ANYWHERE = NEVER = -1
ALL = -1
"""acks=all, as events have it."""


class Operation(Struct, frozen=True):
    """One line for the checker; times in nanoseconds, `returned` is NEVER if its end was not
    recorded."""

    log: str
    kind: str
    offset: int
    client: int
    call: int
    returned: int = msgspec.field(name="return")
    value: str = ""
    values: tuple[str, ...] = ()


class Judged(Struct, frozen=True):
    """The checker's verdict on one log: Ok, Illegal, or Unknown when its time ran out."""

    log: str
    result: str
    operations: int
    took_ms: float


def build(folder: Path) -> Path:
    """Builds the checker below `folder`."""
    program = folder / "porcupine"
    done = go("build", "-o", str(program), ".", cwd=HERE)
    assert done.returncode == 0, done.stderr
    return program


def judge(
    program: Path, operations: Iterable[Operation], limit_s: int = 20
) -> Mapping[str, Judged]:
    """The checker's result for each log."""
    lines = b"\n".join(msgspec.json.encode(one) for one in operations)
    done = subprocess.run(
        [str(program), "-limit", f"{limit_s}s"], input=lines, capture_output=True, check=True
    )
    judged = [msgspec.json.decode(line, type=Judged) for line in done.stdout.splitlines()]
    return {one.log: one for one in judged}


@dataclass(slots=True)
class _Write:
    """One message: when it was handed over, and its outcome."""

    call: int
    client: str
    acks: int
    outcome: str = "unknown"
    offset: int = ANYWHERE
    returned: int = NEVER


@dataclass(slots=True)
class _Partition:
    writes: dict[str, _Write] = field(default_factory=dict)
    reads: list[tuple[str, int, int, tuple[int, ...], tuple[str, ...]]] = field(
        default_factory=list
    )
    """The reader, the first and last possible time of the read, and the values by offset."""
    whole: list[tuple[str, int, int, ReadCompleted]] = field(default_factory=list)
    deleted: bool = False


@dataclass(slots=True)
class _Clients:
    """Numbers for names, as the checker wants them."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, process: str) -> int:
        return self.numbers.setdefault(process, len(self.numbers))


# ------------------------------------------------------------------------------------- partitions


def of_partitions(events: Iterable[Event]) -> Sequence[Operation]:
    """The operations on every partition, as clients saw them; logs by name, `orders-0`."""
    clients = _Clients()
    found: list[Operation] = []
    for log, partition in _collected(events).items():
        if not partition.deleted:
            found += _operations(log, partition, clients)
    return found


def _collected(events: Iterable[Event]) -> Mapping[str, _Partition]:
    partitions: dict[str, _Partition] = defaultdict(_Partition)
    deleted: set[str] = set()
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    for event in events:
        body, process, now = event.body, event.process, event.at_ns
        since = last.get(process, now)
        first.setdefault(process, now)
        last[process] = now
        if isinstance(body, TopicMarked) or (isinstance(body, TopicCommitted) and body.deleted):
            deleted.add(body.topic)
        if not isinstance(
            body, ProduceInvoked | ProduceCompleted | Polled | ReadCompleted | ProbeCompleted
        ):
            continue
        one = partitions[f"{body.topic}-{body.partition}"]
        one.deleted = body.topic in deleted
        match body:
            case ProduceInvoked():
                one.writes[body.operation] = _Write(now, process, body.acks)
            case ProduceCompleted():
                write = one.writes[body.operation]
                write.outcome, write.offset, write.returned = body.outcome, body.offset, now
            case ProbeCompleted() if body.api == "Produce":
                one.writes[body.operation] = _Write(body.sent_at_ns, process, acks=0)
            case Polled():
                since = first[process] if body.final else since
                one.reads.append((process, since, now, body.offsets, body.operations))
            case ReadCompleted():
                one.whole.append((process, first[process], now, body))
    for log, one in partitions.items():
        one.deleted = log.rpartition("-")[0] in deleted
    return partitions


def _operations(log: str, partition: _Partition, clients: _Clients) -> Iterable[Operation]:
    places: dict[str, dict[int, None]] = defaultdict(dict)
    for _, _, _, offsets, names in partition.reads:
        for offset, name in zip(offsets, names, strict=True):
            places[name].setdefault(offset)
    whole = any(body.outcome == "ok" for _, _, _, body in partition.whole)
    for name, write in partition.writes.items():
        yield from _appends(
            log, name, write=write, seen=tuple(places[name]), whole=whole, clients=clients
        )
    for process, since, until, offsets, names in partition.reads:
        client = clients.number(process)
        for start, values in _runs(offsets, names):
            yield Operation(
                log=log,
                kind="read",
                offset=start,
                client=client,
                call=since,
                returned=until,
                values=values,
            )
    for process, since, until, body in partition.whole:
        if body.outcome == "ok":
            read = {
                offset: name
                for reader, _, _, offsets, names in partition.reads
                for offset, name in zip(offsets, names, strict=True)
                if reader == process
            }
            # An offset below the end that a reading did not return has no message.
            values = tuple(read.get(o, "nothing") for o in range(body.start, body.end))
            client = clients.number(process)
            yield Operation(
                log=log,
                kind="whole",
                offset=body.start,
                client=client,
                call=since,
                returned=until,
                values=values,
            )


def _appends(
    log: str, name: str, write: _Write, seen: tuple[int, ...], whole: bool, clients: _Clients
) -> Iterable[Operation]:
    client = clients.number(write.client)
    promised = write.acks == ALL and write.outcome == "ok"
    if promised:
        place = write.offset if write.offset >= 0 else (seen or (ANYWHERE,))[0]
        yield Operation(
            log=log,
            kind="append",
            offset=place,
            client=client,
            call=write.call,
            returned=write.returned,
            value=name,
        )
    elif write.outcome == "failed":
        return
    elif write.acks == ALL:
        for place in seen[:1] or (() if whole else (ANYWHERE,)):
            yield Operation(
                log=log,
                kind="append",
                offset=place,
                client=client,
                call=write.call,
                returned=NEVER,
                value=name,
            )
    else:
        for place in seen or (() if whole else (ANYWHERE,)):
            yield Operation(
                log=log,
                kind="append",
                offset=place,
                client=client,
                call=write.call,
                returned=NEVER,
                value=name,
            )


def _runs(offsets: Sequence[int], names: Sequence[str]) -> Iterable[tuple[int, tuple[str, ...]]]:
    """What was read, cut where offsets do not follow each other."""
    begin = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] != offsets[at - 1] + 1:
            yield offsets[begin], tuple(names[begin:at])
            begin = at


# ----------------------------------------------------------------------------------- the metadata


def of_metadata(events: Iterable[Event]) -> Sequence[Operation]:
    """The operations upon the metadata log."""
    clients = _Clients()
    last: dict[str, int] = {}
    replayed: list[tuple[str, int, int, str]] = []
    about: dict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    changes: list[tuple[str, int, int, AdminCompleted]] = []
    ended = 0
    for event in events:
        body, process, now = event.body, event.process, event.at_ns
        since, last[process], ended = last.get(process, now), now, now
        match body:
            case MetadataCommitted():
                value = f"{body.epoch}/{body.kind}/{body.digest}"
                replayed.append((process, now, body.offset, value))
            case TopicCommitted() if not body.deleted:
                about["create_topic", body.topic].setdefault(body.offset)
            case TopicMarked():
                about["delete_topic", body.topic].setdefault(body.offset)
            case AdminCompleted() if body.outcome == "ok":
                changes.append((process, since, now, body))
    return _metadata(clients, replayed, about, changes, ended)


def _metadata(
    clients: _Clients,
    replayed: Sequence[tuple[str, int, int, str]],
    about: Mapping[tuple[str, str], Mapping[int, None]],
    changes: Sequence[tuple[str, int, int, AdminCompleted]],
    ended: int,
) -> Sequence[Operation]:
    appended = partial(Operation, log=METADATA, kind="append")
    records: dict[int, str] = {}
    for _, _, offset, value in replayed:
        records.setdefault(offset, value)
    times: dict[int, tuple[int, int, int]] = {}
    found: list[Operation] = []
    for process, since, until, body in changes:
        client = clients.number(process)
        if body.api not in ("create_topic", "delete_topic"):
            continue
        places = tuple(about.get((body.api, body.subject), ()))
        if not places:  # acknowledged, and replayed by no node
            name = f"{body.api} {body.subject}"
            found.append(
                appended(
                    offset=ANYWHERE,
                    client=client,
                    call=since,
                    returned=until,
                    value=name,
                )
            )
        elif len(places) == 1:
            times[places[0]] = (client, since, until)
    for offset in range(max(records, default=-1) + 1):
        value = records.setdefault(offset, "not reported")
        client, since, until = times.get(offset, (clients.number("unknown"), 0, NEVER))
        found.append(
            appended(
                offset=offset,
                client=client,
                call=since,
                returned=until,
                value=value,
            )
        )
    for process, until, start, seen in _stretches(replayed):
        client = clients.number(process)
        found.append(
            Operation(
                log=METADATA,
                kind="read",
                offset=start,
                client=client,
                call=until,
                returned=until,
                values=seen,
            )
        )
    values = tuple(records[offset] for offset in sorted(records))
    judge_ = clients.number("end")
    found.append(
        Operation(
            log=METADATA,
            kind="whole",
            offset=0,
            client=judge_,
            call=ended,
            returned=ended,
            values=values,
        )
    )
    return found


def _stretches(
    replayed: Sequence[tuple[str, int, int, str]],
) -> Iterable[tuple[str, int, int, tuple[str, ...]]]:
    """What each node replayed in a row, as one read at the end of so many records.

    One read per record would give finer times, but thousands of orders to search.
    """
    open_: dict[str, tuple[int, int, list[str]]] = {}
    for process, now, offset, value in replayed:
        _, start, seen = open_.get(process, (0, 0, []))
        if seen and (start + len(seen) != offset or len(seen) >= STRETCH):
            until, start, done = open_.pop(process)
            yield process, until, start, tuple(done)
            seen = []
        open_[process] = (now, start if seen else offset, [*seen, value])
    for process, (until, start, seen) in open_.items():
        yield process, until, start, tuple(seen)
