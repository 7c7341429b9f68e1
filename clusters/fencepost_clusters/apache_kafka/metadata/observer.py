"""The client that reads the metadata log: it fetches from the controllers like an observer.

It sends Kafka's own Fetch with replica id -1, over the clients' links, to the leader of the quorum.
It decodes the records below the high watermark and records them as events. It takes no part in the
quorum: to the leader it is no replica. If a controller does not answer, or does not lead, the next
one is asked.

If the log no longer includes the next offset to read, a snapshot replaces the missing records: the
state is recorded as the snapshot has it, and the records before it are recorded as missing, so that
no clause holds.

See docs/decisions/06-missed-evidence.md.
"""

from __future__ import annotations

import io
import os
import select
import socket
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, final
from uuid import UUID

import msgspec
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch_request
from kio.schema.fetch.v13.response import FetchResponse
from kio.serial import entity_reader, entity_writer

from fencepost import ClientStarted, EvidenceMissed, Recorder, WorkerConfig, run_worker
from fencepost_clusters.apache_kafka.builds import cache
from fencepost_clusters.apache_kafka.metadata import schema
from fencepost_clusters.apache_kafka.metadata.installed import schemas_in
from fencepost_clusters.apache_kafka.metadata.misplaced import ReplicaMisplaced
from fencepost_clusters.apache_kafka.metadata.records import Metadata, StoredRecord
from fencepost_clusters.apache_kafka.metadata.snapshot import MOST_BYTES, Snapshot, batches
from fencepost_kafka import KINDS, SnapshotLoaded
from fencepost_kafka.security import access_of, connected, receive

METADATA_LOG = UUID("00000000-0000-0000-0000-000000000001")
WAIT_MS = 50
"""How long a leader may wait for a record before it answers; later records are in the next
answer."""
LIMIT_S = 1.5
# kio's annotations give every number a type of its own, which its own coercion undoes: plain ints
# work.
_FETCH: Any = fetch_request


class Options(msgspec.Struct, frozen=True):
    """The worker's options: the controllers' port, the build whose schemas to use, and which
    controller to ask first."""

    port: int
    build: str
    first: int = 0


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The relevant part of a controller's answer. `leader` and `epoch` are the ones it knows, or
    -1."""

    error: str
    leader: int
    epoch: int
    high_watermark: int = -1
    diverges: bool = False
    snapshot: Snapshot | None = None
    """The snapshot to read instead, if the log no longer includes the requested offset."""
    records: Sequence[StoredRecord] = ()
    end: int = -1
    """The offset after the last batch (-1: there was none); a batch may have no metadata record."""
    end_epoch: int = -1


@final
@dataclass(slots=True)
class LogProgress:
    """How far the log was read, and the records read that are not known to be committed yet."""

    next_offset: int = 0
    last_epoch: int = 0
    leader_epoch: int = 0
    committed: tuple[int, int] = (0, 0)
    """The offset after the newest recorded record, and that record's epoch."""
    waiting: list[StoredRecord] = field(default_factory=list)

    def skip(self, snapshot: Snapshot) -> EvidenceMissed:
        """Continues after a snapshot; returns a sentence about the records that were skipped, if
        any."""
        missed = EvidenceMissed(
            what=f"metadata records {self.committed[0]} to {snapshot.end - 1} were not read: the "
            "log had been truncated, and a snapshot has only their result"
        )
        self.next_offset, self.last_epoch = snapshot.end, snapshot.epoch
        self.committed = snapshot.end, snapshot.epoch
        self.waiting.clear()
        return missed

    def take(self, answer: FetchResult) -> Sequence[StoredRecord]:
        """Adds an answer without error or snapshot; returns the records that are committed now."""
        if answer.diverges:
            # Records of a former leader may not be committed, so they are read again.
            self.next_offset, self.last_epoch = self.committed
            self.waiting.clear()
            return ()
        self.waiting += answer.records
        # By the last batch, and not by the last metadata record: a batch of control records has
        # none, and would be fetched for ever.
        if answer.end >= 0:
            self.next_offset, self.last_epoch = answer.end, answer.end_epoch
        # Records that are not committed wait: they may be a leader's that is deposed before they
        # are.
        committed = [stored for stored in self.waiting if stored.offset < answer.high_watermark]
        if committed:
            self.committed = committed[-1].offset + 1, committed[-1].epoch
            self.waiting = self.waiting[len(committed) :]
        return committed


def request(reading: LogProgress) -> Any:
    """The next request."""
    partition = _FETCH.FetchPartition(
        partition=0,
        current_leader_epoch=reading.leader_epoch,
        fetch_offset=reading.next_offset,
        last_fetched_epoch=reading.last_epoch,
        log_start_offset=0,
        partition_max_bytes=MOST_BYTES,
    )
    return _FETCH.FetchRequest(
        max_wait=timedelta(milliseconds=WAIT_MS),
        min_bytes=1,
        max_bytes=MOST_BYTES,
        topics=(_FETCH.FetchTopic(topic_id=METADATA_LOG, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def frame(client: str, correlation: int, asked: Any) -> bytes:
    """The bytes of a request, with their length."""
    header = asked.__header_schema__(
        request_api_key=asked.__api_key__, request_api_version=asked.__version__,
        correlation_id=correlation, client_id=client,
    )  # fmt: skip
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(asked))(buffer, asked)
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def read_answer(body: bytes, schemas: Mapping[int, schema.Schema]) -> FetchResult:
    """Decodes an answer without its length; raises Undecodable for records of an unknown kind."""
    _, at = entity_reader(FetchResponse.__header_schema__)(body, 0)
    answer, _ = entity_reader(FetchResponse)(body, at)
    if answer.error_code is not ErrorCode.none or not answer.responses:
        return FetchResult(answer.error_code.name.upper(), -1, -1)
    part = answer.responses[0].partitions[0]
    leader = part.current_leader
    if part.error_code is not ErrorCode.none:
        return FetchResult(part.error_code.name.upper(), leader.leader_id, leader.leader_epoch)
    records: list[StoredRecord] = []
    end = end_epoch = -1
    for batch in batches(part.records or b""):
        end = batch.base_offset + batch.last_offset_delta + 1
        end_epoch = batch.partition_leader_epoch
        records += (
            StoredRecord(
                record.offset, end_epoch, schema.decode(schemas, record.value or b""),
                f"{zlib.crc32(record.value or b''):08x}", batch.base_offset,
            )
            for record in batch.records
        )  # fmt: skip
    instead = part.snapshot_id
    return FetchResult(
        error="",
        leader=leader.leader_id,
        epoch=leader.leader_epoch,
        high_watermark=part.high_watermark,
        diverges=part.diverging_epoch.epoch >= 0,
        snapshot=Snapshot(instead.end_offset, instead.epoch) if instead.epoch >= 0 else None,
        records=records,
        end=end,
        end_epoch=end_epoch,
    )


@final
class Observer:
    """One worker's work, until its standard input ends."""

    def __init__(
        self, config: WorkerConfig, options: Options, recorder: Recorder,
        schemas: Mapping[int, schema.Schema],
    ) -> None:  # fmt: skip
        self._client = config.process
        self._access = access_of(config)
        self._recorder = recorder
        self._schemas = schemas
        controllers = sorted(name for name in config.hosts if name.startswith("controller-"))
        self._ends = [(config.hosts[name], options.port) for name in controllers]
        self._at = options.first % len(self._ends)
        self._reading = LogProgress()
        self._metadata = Metadata()
        self._correlation = 0

    def run(self) -> None:
        """Asks one controller after the other, each for as long as it answers as the leader."""
        while not self._asked_to_stop(0):
            try:
                with connected(self._access, self._ends[self._at], LIMIT_S) as connection:
                    while self._ask(connection):
                        if self._asked_to_stop(0):
                            return
            except OSError:
                pass  # it is down, cut off or paused: another controller may lead by now
            # Any controller may lead, and one that does not lead answers with an error: so all are
            # asked in turn.
            self._at = (self._at + 1) % len(self._ends)
            self._asked_to_stop(WAIT_MS / 1000)

    def _ask(self, connection: socket.socket) -> bool:
        """Fetches once; returns whether to go on asking this controller."""
        answer = read_answer(self._exchange(connection, request(self._reading)), self._schemas)
        # The epoch is learned even from an error: a request with a former epoch is refused until
        # then.
        if answer.epoch > self._reading.leader_epoch:
            self._reading.leader_epoch = answer.epoch
            if answer.error:
                # This controller knows a newer epoch than the request had: it may be the leader,
                # and is asked again.
                return answer.error == "FENCED_LEADER_EPOCH"
        if answer.error:
            return False
        if answer.snapshot is not None:
            return self._read_snapshot(connection, answer.snapshot)
        for _, batch in groupby(self._reading.take(answer), attrgetter("batch")):
            for body in self._metadata.replay_batch(tuple(batch)):
                self._recorder.record(body)
        return True

    def _read_snapshot(self, connection: socket.socket, snapshot: Snapshot) -> bool:
        """Reads a snapshot to its end and records it; returns as `_ask` does."""
        while not snapshot.whole:
            asked = snapshot.request(self._reading.leader_epoch)
            if not snapshot.take(self._exchange(connection, asked)):
                return False
        # First what was missed, then what the snapshot has: so a rule knows, before it reads a
        # state, that the states before it may be missing.
        self._recorder.record(self._reading.skip(snapshot))
        digest = f"{zlib.crc32(snapshot.data):08x}"
        self._recorder.record(
            SnapshotLoaded(offset=snapshot.end, epoch=snapshot.epoch, digest=digest)
        )
        for body in self._metadata.restore(snapshot.end - 1, snapshot.records(self._schemas)):
            self._recorder.record(body)
        return True

    def _exchange(self, connection: socket.socket, asked: Any) -> bytes:
        """Sends a request; returns the answer's bytes, without their length."""
        self._correlation += 1
        connection.sendall(frame(self._client, self._correlation, asked))
        size = struct.unpack(">i", receive(connection, 4))[0]
        return receive(connection, size)

    @staticmethod
    def _asked_to_stop(limit_s: float) -> bool:
        """Whether standard input has ended; waits for that at most this long."""
        ready, _, _ = select.select([0], [], [], limit_s)
        return bool(ready) and not os.read(0, 4096)


def work(config: WorkerConfig, options: Options, recorder: Recorder) -> str:
    """Runs until it is asked to stop."""
    schemas = schemas_in(cache(os.environ) / options.build)
    Observer(config, options, recorder, schemas).run()
    return "stopped"


def main(argv: Sequence[str]) -> int:
    """See `run_worker`."""
    started = ClientStarted(kind="observer", library="kio")
    return run_worker(argv, Options, lambda _: started, work, (*KINDS, ReplicaMisplaced))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
