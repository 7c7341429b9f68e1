"""A generated history of a working cluster, of any length, in order, without violations.

Three brokers lead six partitions of each of three topics; two producers write, two consumers read,
leases are renewed, leader epochs grow. The kinds of events are mixed as in a recorded run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from fencepost import Cause, ClientStarted, Event, NodeStarted, ProcessSpawned, RunEnded, RunStarted
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    FetchServed,
    FollowerFetched,
    FollowingStarted,
    HeartbeatAnswered,
    HeartbeatSent,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LeaseGranted,
    LogAppended,
    MetadataCommitted,
    PartitionCommitted,
    Polled,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
    SnapshotStored,
    TopicCommitted,
)

BROKERS = (1, 2, 3)
CONTROLLERS = ("controller-1#1", "controller-2#1", "controller-3#1")
TOPICS, PARTITIONS = ("orders", "payments", "shipments"), 6
PLACES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
HEARTBEAT_EVERY, EPOCH_EVERY, POLL_EVERY = 200, 5_000, 10
LEASE_MS = 3_000
STEP_NS = 50_000


class Steady:
    """Makes the history, one call a chapter; `at_ns` and the numbers of processes go on."""

    def __init__(self) -> None:
        self._now_ns = 1_000_000_000
        self._next: Counter[str] = Counter()
        self._correlation = 0
        self._metadata = 0
        self._epoch = dict.fromkeys(PLACES, 0)
        self._end = dict.fromkeys(PLACES, 0)
        self._polled = dict.fromkeys(PLACES, 0)
        self._cycle = 0

    def begin(self) -> Iterator[Event]:
        """The start: processes, a controller, registrations, topics, leaders, clients."""
        yield self._add("harness", RunStarted(system="reference/quorum", runtime="process", seed=0))
        for number, process in enumerate(CONTROLLERS):
            yield from self._spawn(process, "controller", 101 + number)
        for broker in BROKERS:
            yield from self._spawn(f"broker-{broker}#1", "broker", broker)
        yield self._add(CONTROLLERS[0], ControllerElected(epoch=1, log_end=0, last_epoch=-1))
        for broker in BROKERS:
            yield from self._register(broker)
        for topic in TOPICS:
            yield from self._commit("Topic", partial(_created, topic=topic))
        for place in PLACES:
            yield from self._new_epoch(place)
        for name, kind in (("producer", "producer"), ("consumer", "consumer")):
            for number in (1, 2):
                yield self._add(
                    f"clients/{name}-{number}#1", ClientStarted(kind=kind, library="made")
                )

    def cycle(self) -> Iterator[Event]:
        """One message is written, replicated and acknowledged; at times other events follow."""
        number, self._cycle = self._cycle, self._cycle + 1
        if number % HEARTBEAT_EVERY == 0:
            for broker in BROKERS:
                yield from self._heartbeat(broker, "ACTIVE")
        if number and number % EPOCH_EVERY == 0:
            yield from self._new_epoch(PLACES[number // EPOCH_EVERY % len(PLACES)])
        place = PLACES[number % len(PLACES)]
        yield from self._write(place, f"clients/producer-{number % 2 + 1}#1")
        if self._end[place] - self._polled[place] == POLL_EVERY:
            yield from self._poll(place)

    def finish(self) -> Iterator[Event]:
        """The final reading of every partition, and the end of all processes."""
        for place in PLACES:
            for start in range(0, self._end[place], 500):
                offsets = tuple(range(start, min(start + 500, self._end[place])))
                operations = tuple(_operation(place, offset) for offset in offsets)
                yield self._add(
                    "clients/reader-1#1",
                    Polled(
                        topic=place[0],
                        partition=place[1],
                        offsets=offsets,
                        operations=operations,
                        final=True,
                    ),
                )
            completed = ReadCompleted(
                topic=place[0],
                partition=place[1],
                start=0,
                end=self._end[place],
                outcome="ok",
                error="",
            )
            yield self._add("clients/reader-1#1", completed)
        yield self._add("harness", RunEnded(completed=True))

    def _add(self, process: str, body: Struct, cause: Cause | None = None) -> Event:
        seq = self._next[process]
        self._next[process] += 1
        self._now_ns += STEP_NS
        return Event(
            run="made", process=process, node_seq=seq, at_ns=self._now_ns, body=body, cause=cause
        )

    def _spawn(self, process: str, role: str, node_id: int) -> Iterator[Event]:
        slot = process.split("#", maxsplit=1)[0]
        yield self._add(
            "harness",
            ProcessSpawned(
                started=process, slot=slot, role=role, node_id=node_id, pid=1000 + node_id
            ),
        )
        yield self._add(
            process,
            NodeStarted(role=role, node_id=node_id, incarnation=_uuid(node_id), log_end=0),
        )

    def _register(self, broker: int) -> Iterator[Event]:
        """Fenced at first, then active by the controller's answer."""
        process = f"broker-{broker}#1"
        for fenced, old, new, why in (
            (True, "INITIAL", "FENCED", "registered"),
            (False, "FENCED", "ACTIVE", "unfenced"),
        ):
            registered = partial(_registered, broker=broker, fenced=fenced)
            yield from self._commit("Broker", registered)
            yield from self._heartbeat(broker, new)
            yield self._add(
                process,
                BrokerStateChanged(
                    broker_id=broker, old=old, new=new, broker_epoch=broker, reason=why
                ),
            )
            if fenced:  # its metadata are on its disk before it may go online
                yield self._add(
                    process,
                    SnapshotStored(
                        offset=self._metadata,
                        epoch=1,
                        records=1,
                        entities=1,
                        level=1,
                        digest=_uuid(0),
                    ),
                )

    def _commit(self, kind: str, body: Callable[[int], Struct]) -> Iterator[Event]:
        """One metadata record, replayed by every node; `body` makes its event of its offset."""
        offset, self._metadata = self._metadata, self._metadata + 1
        for process in (*CONTROLLERS, *(f"broker-{b}#1" for b in BROKERS)):
            yield self._add(
                process,
                MetadataCommitted(offset=offset, epoch=1, kind=kind, digest=f"{offset:08x}"),
            )
            yield self._add(process, body(offset))

    def _new_epoch(self, place: tuple[str, int]) -> Iterator[Event]:
        self._epoch[place] += 1
        epoch, end, leader = self._epoch[place], self._end[place], _leader(place)
        isr = _replicas(place)
        yield from self._commit(
            "Partition",
            lambda offset: PartitionCommitted(
                offset=offset,
                topic=place[0],
                partition=place[1],
                leader=leader,
                leader_epoch=epoch,
                isr=isr,
                replicas=isr,
            ),
        )
        started = LeadershipStarted(
            topic=place[0],
            partition=place[1],
            leader_epoch=epoch,
            isr=isr,
            log_start=0,
            log_end=end,
            high_watermark=end,
        )
        yield self._add(f"broker-{leader}#1", started)
        for follower in isr[1:]:
            following = FollowingStarted(
                topic=place[0],
                partition=place[1],
                leader=leader,
                leader_epoch=epoch,
                log_end=end,
                high_watermark=end,
            )
            yield self._add(f"broker-{follower}#1", following)

    def _heartbeat(self, broker: int, state: str) -> Iterator[Event]:
        now_ms = self._now_ns // 1_000_000
        process = f"broker-{broker}#1"
        self._correlation += 1
        sent = HeartbeatSent(
            broker_id=broker,
            broker_epoch=broker,
            controller=101,
            correlation=self._correlation,
            target_state="ACTIVE",
            lease_start_ms=now_ms,
            metadata_offset=self._metadata - 1,
        )
        yield self._add(process, sent)
        answered = HeartbeatAnswered(
            client=process,
            broker_id=broker,
            incarnation=_uuid(broker),
            request_epoch=broker,
            broker_epoch=broker,
            error="NONE",
            next_state=state,
            lease_start_ms=now_ms,
            lease_end_ms=now_ms + LEASE_MS,
            lease_period_ms=LEASE_MS,
            controller_epoch=1,
            active_controller=101,
            active=True,
        )
        cause = Cause(process, self._correlation, True)
        yield self._add(CONTROLLERS[0], answered, cause)
        granted = LeaseGranted(
            broker_id=broker,
            broker_epoch=broker,
            next_state=state,
            lease_start_ms=now_ms,
            lease_end_ms=now_ms + LEASE_MS,
            ends_at_ns=self._now_ns + LEASE_MS * 1_000_000,
            controller_epoch=1,
        )
        yield self._add(process, granted)

    def _write(self, place: tuple[str, int], client: str) -> Iterator[Event]:
        offset, epoch, leader = self._end[place], self._epoch[place], _leader(place)
        self._end[place] = end = offset + 1
        isr = _replicas(place)
        operation = _operation(place, offset)
        yield self._add(
            client,
            ProduceInvoked(
                operation=operation, topic=place[0], partition=place[1], acks=-1, idempotent=True
            ),
        )
        for broker in isr:
            appended = LogAppended(
                topic=place[0],
                partition=place[1],
                base_offset=offset,
                log_end=end,
                expected_base=offset,
                batch_epoch=epoch,
                leader_epoch=epoch,
                as_leader=broker == leader,
                digest=f"{offset:08x}",
                producer_id=-1,
                base_sequence=-1,
            )
            yield self._add(f"broker-{broker}#1", appended)
        at_leader = f"broker-{leader}#1"
        for follower in isr[1:]:
            fetched = FollowerFetched(
                topic=place[0],
                partition=place[1],
                leader_epoch=epoch,
                follower=follower,
                client=f"broker-{follower}#1",
                broker_epoch=follower,
                offset=end,
            )
            yield self._add(at_leader, fetched)
        marked = _mark(place, end, epoch, isr)
        yield self._add(at_leader, marked)
        answered = ProduceAnswered(
            topic=place[0],
            partition=place[1],
            client=client,
            acks=-1,
            error="NONE",
            base_offset=offset,
            log_end=end,
            leader_epoch=epoch,
            high_watermark=end,
            isr=isr,
            ends=(end,) * 3,
            duplicate=False,
        )
        yield self._add(at_leader, answered)
        yield self._add(
            client,
            ProduceCompleted(
                operation=operation,
                topic=place[0],
                partition=place[1],
                acks=-1,
                outcome="ok",
                offset=offset,
                error="",
            ),
        )
        for follower in isr[1:]:
            followed = _mark(place, end, epoch, ())
            yield self._add(f"broker-{follower}#1", followed)

    def _poll(self, place: tuple[str, int]) -> Iterator[Event]:
        start, end = self._polled[place], self._end[place]
        self._polled[place] = end
        client = f"clients/consumer-{place[1] % 2 + 1}#1"
        served = FetchServed(
            topic=place[0],
            partition=place[1],
            client=client,
            from_offset=start,
            to_offset=end,
            high_watermark=end,
            leader_epoch=self._epoch[place],
            state="ACTIVE",
        )
        yield self._add(f"broker-{_leader(place)}#1", served)
        offsets = tuple(range(start, end))
        operations = tuple(_operation(place, offset) for offset in offsets)
        yield self._add(
            client,
            Polled(
                topic=place[0],
                partition=place[1],
                offsets=offsets,
                operations=operations,
                final=False,
            ),
        )


def steady(wanted: int) -> Iterator[Event]:
    """At least so many events, and the final reading after them."""
    made = Steady()
    count = 0
    for event in made.begin():
        count += 1
        yield event
    while count < wanted:
        for event in made.cycle():
            count += 1
            yield event
    yield from made.finish()


def _registered(offset: int, broker: int, fenced: bool) -> Struct:
    return BrokerCommitted(
        offset=offset,
        broker_id=broker,
        broker_epoch=broker,
        fenced=fenced,
        incarnation=_uuid(broker),
    )


def _created(offset: int, topic: str) -> Struct:
    return TopicCommitted(offset=offset, topic=topic, topic_id=f"id-{topic}", deleted=False)


def _replicas(place: tuple[str, int]) -> tuple[int, ...]:
    """The leader first, then the others as the placement formula has them."""
    first, turn = place[1] % 3, place[1] // 3
    return tuple(BROKERS[i % 3] for i in (first, *(first + 1 + (j + turn) % 2 for j in (0, 1))))


def _leader(place: tuple[str, int]) -> int:
    return PLACES.index(place) % 3 + 1


def _operation(place: tuple[str, int], offset: int) -> str:
    return f"{place[0]}-{place[1]}:{offset}"


def _uuid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


def _mark(
    place: tuple[str, int], end: int, epoch: int, isr: tuple[int, ...]
) -> HighWatermarkAdvanced:
    """All of a log is committed, by its leader or, without an ISR, by a follower."""
    return HighWatermarkAdvanced(
        topic=place[0],
        partition=place[1],
        high_watermark=end,
        log_end=end,
        leader_epoch=epoch,
        as_leader=bool(isr),
        isr=isr,
        counted=isr,
    )
