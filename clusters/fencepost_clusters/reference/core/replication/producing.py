"""Produce: the checks of a client's batch, deduplication, and acknowledgement."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from fencepost import MS, Cause
from fencepost_clusters.reference.core.log.producers import begins_late, check_sequence
from fencepost_clusters.reference.core.node.effects import NEVER_NS, Instant, Note, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState, Session
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.refused_batches import RefusedBatches
from fencepost_clusters.reference.core.replication.replica import Key as ReplicaKey
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.core.replication.roles import APPENDED, ProduceRefusal
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.batch_header import BatchHeader
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ProduceAnswered, RequestRefused

Key = tuple[str, int]


class Appended(Struct, frozen=True, gc=False):
    """The offsets of a partition's appended batches: [base, end) in the log of `replica`."""

    replica: Replica
    base: int
    end: int
    epoch: int
    duplicate: bool


@dataclass(slots=True)
class _Pending:
    """A Produce that waits for its commit."""

    received: Received
    request: m.ProduceRequest
    cause: Cause | None
    deadline_ns: int
    waiting: dict[Key, Appended]
    done: dict[Key, m.PartitionProduceResponse] = field(default_factory=dict)
    replicas: frozenset[ReplicaKey] = frozenset()
    """The replicas whose change may settle it."""


class Producing:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        replicas: Replicas,
        session: Session,
        policies: ReplicationPolicies,
        out: Outbox,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._session = session
        self._policies = policies
        self._out = out
        self._refused_batches = RefusedBatches()
        self._pending: list[_Pending] = []
        self._due_ns = NEVER_NS
        """When the first of them times out."""

    def deadline_ns(self) -> int | None:
        """When the first waiting Produce times out."""
        return self._due_ns if self._pending else None

    def produce(
        self, received: Received, request: m.ProduceRequest, state: ClusterState, now: Instant
    ) -> None:
        """Handles a Produce."""
        pending = _Pending(
            received, request, self._out.cause, now.monotonic_ns + request.timeout * MS, {}
        )
        touched: list[Replica] = []
        for topic in request.topic_data:
            for part in topic.partition_data:
                key = (topic.name, part.index)
                outcome = self._append(received, request, state, topic.name, part)
                if isinstance(outcome, Error):
                    self._refused_batches.refused(key, part.records or b"", outcome)
                    pending.done[key] = m.PartitionProduceResponse(
                        index=part.index, error_code=outcome
                    )
                    self._note(pending, key, outcome, None)
                    continue
                if not outcome.duplicate:
                    touched.append(outcome.replica)
                pending.waiting[key] = outcome
        # After all partitions are appended. If this broker is the only member of an ISR, this
        # commits at once, and the request need not wait.
        for one in touched:
            one.advance()
        if not self._settled(pending, now):
            pending.replicas = frozenset(one.replica.key for one in pending.waiting.values())
            self._pending.append(pending)
            self._due_ns = min(one.deadline_ns for one in self._pending)

    # ---------------------------------------------------------------------------------- appending

    def _append(
        self,
        received: Received,
        request: m.ProduceRequest,
        state: ClusterState,
        topic: str,
        part: m.PartitionProduceData,
    ) -> Appended | Error:
        partition = state.partition(topic, part.index)
        one = self._replicas.get(partition.topic_id, part.index) if partition is not None else None
        if partition is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        # Each refusal that a client answers by sending the batch again is remembered
        # (`RefusedBatches`).
        if one is None or not self._policies.accepts_writes(one.part):
            self._refused(received, topic, part.index, Error.NOT_LEADER_OR_FOLLOWER, "not_leader")
            return Error.NOT_LEADER_OR_FOLLOWER
        if request.acks not in (-1, 0, 1):
            return Error.INVALID_REQUIRED_ACKS
        least = self._limit(state, topic, "min.insync.replicas", "min.insync.replicas")
        # By the stored ISR: a shrink that was only asked for may still be refused. With fewer acks
        # the client has not asked for the guarantee that this setting makes.
        if request.acks == -1 and len(one.partition.isr) < least:
            self._refused(
                received, topic, part.index, Error.NOT_ENOUGH_REPLICAS, "not_enough_replicas"
            )
            return Error.NOT_ENOUGH_REPLICAS
        try:
            batches = tuple(record_batch.split(part.records or b""))
        except record_batch.CorruptBatch:
            return Error.CORRUPT_MESSAGE
        if not batches:
            return Error.INVALID_REQUEST
        most = self._limit(state, topic, "max.message.bytes", "message.max.bytes")
        return self._store((topic, part.index), one, batches, most)

    def _limit(self, state: ClusterState, topic: str, name: str, of_broker: str) -> int:
        """A topic's setting, or that of this broker."""
        changed = state.setting(topic, name)
        return int(changed) if changed else self._settings.ms(of_broker)

    def _store(
        self,
        place: Key,
        one: Replica,
        batches: tuple[tuple[BatchHeader, bytes], ...],
        most_bytes: int,
    ) -> Appended | Error:
        for header, _ in batches:
            if header.size > most_bytes:
                return Error.MESSAGE_TOO_LARGE
            # Control batches are a coordinator's, and this cluster has no transactions.
            if header.control or header.transactional:
                return Error.INVALID_REQUEST
        # An idempotent producer sends one batch in a request to a partition, so the first one
        # speaks for all.
        header, _ = batches[0]
        # Duplicates are known from the log itself, so they are known to each leader whose log has
        # the batch (RP-12).
        window = one.log.producer(header.producer_id)
        known = check_sequence(self._policies.remembered_batches(window, one.epoch_start), header)
        if isinstance(known, Error):
            return known
        # It is acknowledged as the first one was: once it is committed, with the offsets of the
        # stored batch.
        if known is not None:
            return Appended(one, known.base, known.end, known.epoch, True)
        # The log has no batch of this producer, so any sequence number could be its next. Of two
        # batches under way the first one may have been refused, here or by a former leader, and
        # will come again. Were the second one stored before it, librdkafka would take the first one
        # for stored, and report messages as acknowledged that no log holds.
        if not window and (
            begins_late(header, one.log.start, one.epoch)
            or self._refused_batches.precede(place, header)
        ):
            return Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._refused_batches.stored(place, header)
        stored = [one.append(header, data) for header, data in batches]
        return Appended(one, stored[0].base, stored[-1].end, one.epoch, False)

    # ------------------------------------------------------------------------------- acknowledging

    def settle(self, now: Instant) -> None:
        """Answers every Produce that is committed, has lost its leader, or waited too long."""
        if not self._replicas.changed and now.monotonic_ns < self._due_ns:
            return
        # An append commits nothing, so no Produce is settled by it alone.
        changed = [key for key, change in self._replicas.changed.items() if change != APPENDED]
        self._pending = [
            one
            for one in self._pending
            # Nothing that it waits for has changed, and its time is not up: it goes on waiting
            # without a look.
            if (now.monotonic_ns < one.deadline_ns and one.replicas.isdisjoint(changed))
            or not self._settled(one, now)
        ]
        self._due_ns = min((one.deadline_ns for one in self._pending), default=NEVER_NS)

    def _settled(self, pending: _Pending, now: Instant) -> bool:
        """Whether a Produce waits for nothing any more; it is answered then."""
        for key, stored in list(pending.waiting.items()):
            error = self._verdict(pending, stored, now)
            if error is not None:
                del pending.waiting[key]
                self._finish(pending, key, stored, error)
        if not pending.waiting:
            self._answer(pending)
        return not pending.waiting

    def fail_all(self, now: Instant) -> None:
        """The lease ended: no waiting Produce is acknowledged as committed any more (QC-17)."""
        for pending in self._pending:
            for key, stored in pending.waiting.items():
                self._finish(pending, key, stored, Error.NOT_LEADER_OR_FOLLOWER)
            self._answer(pending)
        self._pending = []

    def _verdict(self, pending: _Pending, stored: Appended, now: Instant) -> Error | None:
        """The error to answer (NONE: stored as asked), or None to go on waiting."""
        if not self._policies.waits_for_followers(pending.request.acks):
            return Error.NONE
        one = stored.replica
        # A leader that stepped down does not know whether the batch survives. The client hears of
        # an error, and sends the batch again to the new leader, which knows a duplicate (RP-31). To
        # wait for the high watermark here would be wrong: it is the new leader's then, and may
        # count another batch.
        if not one.leading:
            return self._policies.error_on_stepping_down
        # Every member of the ISR has the last of the appended batches, and so all before it.
        if one.high_watermark >= stored.end:
            return Error.NONE
        return Error.REQUEST_TIMED_OUT if now.monotonic_ns >= pending.deadline_ns else None

    def _finish(self, pending: _Pending, key: Key, stored: Appended, error: Error) -> None:
        base = stored.base if error is Error.NONE else -1
        pending.done[key] = m.PartitionProduceResponse(
            index=key[1], error_code=error, base_offset=base, log_start_offset=0
        )
        self._note(pending, key, error, stored)

    def _note(self, pending: _Pending, key: Key, error: Error, stored: Appended | None) -> None:
        one = stored.replica if stored is not None else None
        good = stored is not None and error is Error.NONE
        isr = one.partition.isr if one is not None else ()
        self._out.add(
            Note(
                ProduceAnswered(
                    topic=key[0],
                    partition=key[1],
                    client=pending.received.client,
                    acks=pending.request.acks,
                    error=error.name,
                    base_offset=stored.base if stored is not None and good else -1,
                    log_end=stored.end if stored is not None and good else -1,
                    leader_epoch=one.epoch if one is not None else -1,
                    high_watermark=one.high_watermark if one is not None else -1,
                    isr=isr,
                    ends=tuple(one.end_of(r) for r in isr) if one is not None else (),
                    duplicate=stored.duplicate if stored is not None else False,
                ),
                pending.cause,
            )
        )

    def _answer(self, pending: _Pending) -> None:
        # The client waits for no answer; the shell must still be told that the request is done.
        if pending.request.acks == 0:
            self._out.add(Reply(pending.received.request_id, None))
            return
        topics = tuple(
            m.TopicProduceResponse(
                name=topic.name,
                partition_responses=tuple(
                    pending.done[topic.name, part.index] for part in topic.partition_data
                ),
            )
            for topic in pending.request.topic_data
        )
        self._out.add(Reply(pending.received.request_id, m.ProduceResponse(responses=topics)))

    def _refused(
        self, received: Received, topic: str, index: int, error: Error, reason: ProduceRefusal
    ) -> None:
        self._out.note(
            RequestRefused(
                api="Produce",
                topic=topic,
                partition=index,
                client=received.client,
                requester=-1,
                error=error.name,
                reason=reason,
                state=self._session.state.label,
            )
        )
