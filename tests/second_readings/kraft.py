"""Second readings of Apache Kafka's own promises in KRaft mode, as its metadata log shows them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fencepost import (
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessAsked,
    ProcessExited,
    ProcessSpawned,
)
from fencepost.events.names import slot_of
from fencepost_clusters.apache_kafka.beside_segments import LeaderEpochsFound, ProducersFound
from fencepost_clusters.apache_kafka.log_memory import FaultReported
from fencepost_clusters.apache_kafka.metadata.on_disk import MetadataStateFound
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    ControllerResigned,
    FollowingStarted,
    HeartbeatAnswered,
    LeadershipStarted,
    LeaseExpired,
    LogAppended,
    MetadataCommitted,
    PartitionCommitted,
    ProbeCompleted,
    ProduceAnswered,
    SegmentFound,
    StoredBatch,
    TopicCommitted,
)
from second_readings.quorum import MS, before, partitions, told_in_order
from second_readings.reading import NEVER, At, History, Word, reading, undecided, violated

FAULTS = (FaultInjected, FaultHealed)


def brokers(history: History) -> dict[int, list[BrokerCommitted]]:
    """The records of each broker id, in the order of their offsets."""
    found: dict[int, dict[int, BrokerCommitted]] = {}
    for at in history.of(BrokerCommitted):
        found.setdefault(at.body.broker_id, {}).setdefault(at.body.offset, at.body)
    return {broker: [own[offset] for offset in sorted(own)] for broker, own in found.items()}


def lives(history: History, incarnation: str, until: BrokerCommitted) -> bool:
    """Whether the process of an incarnation is known to have lived when a record was read."""
    read = next(at.place for at in history.of(BrokerCommitted) if at.body == until)
    ended = {at.body.ended for at in history.of(ProcessExited) if at.place < read}
    return any(
        at.body.incarnation == incarnation and at.place < read and at.process not in ended
        for at in history.of(NodeStarted)
    )


@reading("KR-01", BrokerCommitted, BrokerStateChanged, NodeStarted, ProcessExited)
def one_holder(history: History) -> Iterator[Word]:
    """While the process that holds a broker id has a session, another process with that id is
    refused: its registration follows only upon the record that fences the holder."""
    for at in history.of(BrokerStateChanged):
        epochs = {one.broker_epoch for one in brokers(history).get(at.body.broker_id, ())}
        if at.body.new == "ACTIVE" and at.body.broker_epoch not in epochs:
            yield undecided(at.process)  # no record of it is told
        own = next((one.body.incarnation for one in before(history, at, NodeStarted)), "")
        given = {
            one.incarnation
            for one in brokers(history).get(at.body.broker_id, ())
            if one.broker_epoch == at.body.broker_epoch
        }
        if at.body.new == "ACTIVE" and own and given and own not in given:
            yield undecided(at.process, "incarnation")  # which of the two is misquoted
    for broker, records in brokers(history).items():
        for one, other in pairwise(records):
            if one.incarnation != other.incarnation and not one.fenced:
                # A registration begins fenced: of one that is not, the first record is not told.
                # And the session of a dead process runs out, so that a registration may end it.
                registered = other.fenced and lives(history, one.incarnation, other)
                sure = registered and told_in_order(history, BrokerCommitted)
                yield (violated if sure else undecided)(broker, other.offset)


@reading("KR-10", PartitionCommitted)
def no_epoch_without_need(history: History) -> Iterator[Word]:
    """While its leader stays and no replica leaves it, a partition begins no leader epoch, whatever
    its ISR becomes."""
    for (topic, partition), records in partitions(history).items():
        for one, other in pairwise(records):
            stays = one.leader == other.leader and set(one.replicas) <= set(other.replicas)
            if stays and other.leader_epoch > one.leader_epoch:
                sure = not other.skipped and told_in_order(history, PartitionCommitted)
                yield (violated if sure else undecided)(topic, partition, other.offset)


@reading("KR-18", LeaseExpired, HeartbeatAnswered)
def session_lasts(history: History) -> Iterator[Word]:
    """A controller ends a broker's session no earlier than the session timeout after the last
    heartbeat that it accepted."""
    for at in history.of(LeaseExpired):
        body = at.body
        heard = [
            one.body.received_at_ns or one.at_ns
            for one in before(history, at, HeartbeatAnswered)
            if one.body.broker_id == body.broker_id and one.body.error == "NONE"
        ]
        for last_ns in (*heard[:1], *([body.last_heard_ns] if body.last_heard_ns >= 0 else [])):
            if at.at_ns < last_ns + body.lease_period_ms * MS:
                yield violated(body.broker_id, body.controller_epoch)


@reading("KR-19", HeartbeatAnswered, BrokerCommitted, MetadataCommitted)
def stale_epoch(history: History) -> Iterator[Word]:
    """A heartbeat with another epoch than that of the broker's newest registration is refused."""
    records = brokers(history)
    written = {at.body.offset: at.body.epoch for at in history.of(MetadataCommitted)}
    for at in history.of(HeartbeatAnswered):
        body = at.body
        if body.error != "NONE" or body.request_epoch < 0 or body.broker_id not in records:
            continue
        told = [
            one.body
            for one in history.of(BrokerCommitted)
            if one.place < at.place
            and one.body.broker_id == body.broker_id
            # The answer is logged once it is sent, and may be late.
            and one.at_ns < (body.received_at_ns or at.at_ns)
        ]
        newer = [one for one in told if one.broker_epoch > body.request_epoch]
        if newer:
            # A controller that is deposed and does not know it does not know the record either.
            by = [written[one.offset] for one in newer if one.offset in written]
            # Nor does any if only one observer has told it by then, and others read it later.
            early = min(one.offset for one in newer)
            tellers = [
                (one.process, one.place < at.place)
                for one in history.of(BrokerCommitted, MetadataCommitted)
                if one.body.offset == early
            ]
            by_then = {process for process, before in tellers if before}
            alone = len(by_then) < 2 and any(process not in by_then for process, _ in tellers)
            sure = bool(by) and min(by) <= body.controller_epoch and not alone
            yield (violated if sure else undecided)(body.broker_id, body.request_epoch)
        elif body.request_epoch not in {one.broker_epoch for one in records[body.broker_id]}:
            yield undecided(body.broker_id, body.request_epoch)


@reading("KR-21", PartitionCommitted)
def reassigned(history: History) -> Iterator[Word]:
    """A reassignment ends by a record whose ISR has every new replica, and without the replicas
    that were to be removed."""
    for (topic, partition), records in partitions(history).items():
        for one, other in pairwise(records):
            if not (one.adding or one.removing) or other.adding or other.removing:
                continue
            # One that is cancelled goes back to the replicas of before.
            if set(one.adding) & set(other.replicas):
                complete = set(one.adding) <= set(other.isr)
                gone = not set(one.removing) & {*other.isr, *other.replicas}
                if not complete or not gone:
                    yield (undecided if other.skipped else violated)(topic, partition)


@reading("KR-22", BrokerDeleted, PartitionCommitted, BrokerCommitted, TopicCommitted)
def unregistered(history: History) -> Iterator[Word]:
    """The batch that unregisters a broker takes it out of every ISR that has other members, and
    from its leaderships; until it registers again it gets none."""
    for at in history.of(BrokerDeleted):
        offset, broker = at.body.offset, at.body.broker_id
        again = [one.offset for one in brokers(history).get(broker, ()) if one.offset > offset]
        until = min(again, default=NEVER)
        for (topic, partition), records in partitions(history).items():
            for one in records:
                if offset < one.offset < until and one.leader == broker:
                    yield violated(broker, topic, partition)
            known = [one for one in records if one.offset <= offset]
            if known and broker in known[-1].isr and len(known[-1].isr) > 1:
                yield undecided(broker, topic, partition)  # where its batch ends, no event says


@reading("KR-28", BrokerStateChanged, NodeStarted, ProduceAnswered, LogAppended)
def registers_first(history: History) -> Iterator[Word]:
    """A broker's process answers no produce before it is registered."""
    # One whose first word names a later state had another one before, which is not told.
    firsts = {at.process: at.body.old for at in reversed(history.of(BrokerStateChanged))}
    known = {process for process, old in firsts.items() if old not in ("FENCED", "ACTIVE")}
    for at in history.of(ProduceAnswered, LogAppended):
        error = at.body.error if isinstance(at.body, ProduceAnswered) else "NONE"
        leads = not isinstance(at.body, LogAppended) or at.body.as_leader
        if error == "NONE" and leads:
            states = [*before(history, at, BrokerStateChanged)]
            if not states:
                yield (violated if at.process in known else undecided)(at.process)


@reading("KR-33", PartitionCommitted)
def led_from_the_first(history: History) -> Iterator[Word]:
    """A new partition has a leader from its first record on, which is a member of its ISR; and its
    ISR is of its replicas."""
    for (topic, partition), records in partitions(history).items():
        first = records[0]
        right = first.leader in first.isr and set(first.isr) <= set(first.replicas)
        # A later epoch shows that its first record was not seen.
        if not right:
            seen = first.leader_epoch == 0 and not first.skipped
            yield (violated if seen else undecided)(topic, partition)


@reading("KR-36", ControllerResigned)
def answers_with_an_error(history: History) -> Iterator[Word]:
    """An active controller answers with an error what it cannot carry out, and does not give its
    leadership up for it."""
    for at in history.of(ControllerResigned):
        if at.body.reason == "failed":
            yield violated(at.process, at.body.epoch)


@reading("KR-05", FollowingStarted, LeadershipStarted, LogAppended, ProbeCompleted)
def followers_store_nothing(history: History) -> Iterator[Word]:
    """A produce sent to a broker that follows gets a not-leader error and has no effect, from the
    moment it began to follow. Whether an append is a leader's is made of the lines by which the
    broker led or followed last, so it is no second word about that."""
    for at in history.of(LogAppended):
        turns = before(history, at, FollowingStarted, LeadershipStarted)
        turn = next((one for one in turns if partition_of(one) == partition_of(at)), None)
        if at.body.as_leader and turn is not None and isinstance(turn.body, FollowingStarted):
            yield undecided(at.process, at.body.topic, at.body.partition)
    for at in history.of(ProbeCompleted):
        if at.body.api != "Produce" or at.body.outcome != "answered":
            continue
        turns = [
            one
            for one in history.of(FollowingStarted, LeadershipStarted)
            if slot_of(one.process) == at.body.slot
            and partition_of(one) == partition_of(at)
            and one.place < at.place
        ]
        newest = [one for one in turns if one.process == turns[-1].process]
        if newest and isinstance(newest[-1].body, FollowingStarted):
            asked_later = at.body.sent_at_ns > newest[-1].at_ns
            yield (violated if asked_later else undecided)(at.body.slot, at.body.topic)


def partition_of(at: At) -> tuple[str, int]:
    return at.body.topic, at.body.partition


@reading(
    *("KR-04", ProcessAsked, ProcessExited, ProcessSpawned, PartitionCommitted, BrokerCommitted)
)
def leaves_free(history: History) -> Iterator[Word]:
    """A broker that is asked to shut down leaves the cluster only once it leads nothing that
    another broker could lead."""
    nodes = {at.body.started: at.body for at in history.of(ProcessSpawned)}
    asked = {at.body.asked for at in history.of(ProcessAsked)}
    for at in history.of(ProcessExited):
        born = nodes.get(at.body.ended)
        if born is None or born.role != "broker" or at.body.ended not in asked:
            continue
        if at.body.signal:
            continue  # it was killed in the end
        led = newest_led(history, at, born.node_id)
        for topic, partition in led:
            yield undecided(born.node_id, topic, partition)  # an observer may read it later


def newest_led(history: History, at: At, node: int) -> list[tuple[str, int]]:
    newest: dict[tuple[str, int], PartitionCommitted] = {}
    for one in history.of(PartitionCommitted):
        key = one.body.topic, one.body.partition
        if one.place < at.place and (key not in newest or one.body.offset > newest[key].offset):
            newest[key] = one.body
    return [key for key, body in newest.items() if body.leader == node and set(body.isr) - {node}]


@reading("KR-24", MetadataStateFound, *FAULTS)
def states_of_the_log(history: History) -> Iterator[Word]:
    """Each controller holds in memory the state that the metadata log leads to: what it wrote of it
    into a snapshot is what the records before that offset lead to, by any disk."""
    for at in history.of(MetadataStateFound):
        body = at.body
        if not body.by_snapshot or body.role != "controller":
            continue
        for one in history.of(MetadataStateFound):
            other = one.body
            if other.offset == body.offset and other.digest != body.digest:
                sure = not other.by_snapshot and not history.lost_data
                yield (violated if sure else undecided)(body.slot, body.offset)


@reading(
    *("KR-29", PartitionCommitted, BrokerCommitted, BrokerDeleted, TopicCommitted),
    *(ProcessAsked, ProcessSpawned),
)
def goes_to_the_next(history: History) -> Iterator[Word]:
    """When a broker is fenced, each partition that it led goes to the first live member of its ISR
    in the order of its replicas."""
    told = told_in_order(history, PartitionCommitted) and told_in_order(history, BrokerCommitted)
    nodes = {at.body.started: at.body.node_id for at in history.of(ProcessSpawned)}
    stopping = {nodes.get(at.body.asked, -1) for at in history.of(ProcessAsked)}
    states = brokers(history)
    for (topic, partition), records in partitions(history).items():
        again = any(at.body.topic == topic for at in history.of(TopicCommitted) if at.body.deleted)
        for one, other in pairwise(records):
            lost = states.get(one.leader, ())
            since = next((state for state in lost if state.offset > one.offset), None)
            former = [state for state in lost if state.offset <= one.offset]
            # The records of one decision come in one batch, with the fencing after the partitions.
            near = since is not None and since.fenced and since.offset > other.offset
            fences = near and bool(former) and not former[-1].fenced
            if not fences or one.leader in (-1, other.leader) or one.leader in other.isr:
                continue
            expected = None
            for replica in other.replicas:
                known = [state for state in states.get(replica, ()) if state.offset < other.offset]
                if replica in one.isr and replica != one.leader and known and not known[-1].fenced:
                    expected = replica
                    break
            if expected in (None, other.leader):
                continue
            # One that is being shut down is passed over, and so is one without its directory.
            sure = told and not (other.skipped or again or stopping or other.offline)
            yield (violated if sure else undecided)(topic, partition, other.offset)


def batches(history: History, slot: str, topic: str, partition: int) -> list[StoredBatch]:
    """The batches of a log on a disk, in the order of their offsets."""
    found = [
        batch
        for at in history.of(SegmentFound)
        if (at.body.slot, at.body.topic, at.body.partition) == (slot, topic, partition)
        for batch in at.body.batches()
    ]
    return sorted(found, key=lambda batch: batch.base_offset)


@reading("KR-37", LeaderEpochsFound, SegmentFound, *FAULTS)
def epochs_of_batches(history: History) -> Iterator[Word]:
    """The leader epochs that a replica stores beside its log are those of its batches."""
    word = undecided if history.lost_data else violated
    for at in history.of(LeaderEpochsFound):
        body = at.body
        stored = list(zip(body.starts, body.epochs, strict=True))
        for (start, epoch), (later, newer) in pairwise(stored):
            if later < start or newer <= epoch:
                yield word(body.slot, body.topic, body.partition, "order")
            elif later == start:
                yield undecided(body.slot, body.topic, body.partition, start)
        for batch in batches(history, body.slot, body.topic, body.partition):
            own = [epoch for start, epoch in stored if start <= batch.base_offset]
            if own and own[-1] != batch.leader_epoch:
                yield word(body.slot, body.topic, body.partition, batch.base_offset)
            elif not own:
                # No line of the file is lost, but the file may be.
                yield undecided(body.slot, body.topic, body.partition, batch.base_offset)
        of_batches = {
            batch.leader_epoch for batch in batches(history, body.slot, body.topic, body.partition)
        }
        if set(body.epochs) - of_batches:
            yield undecided(body.slot, body.topic, body.partition, "no batch")  # it wrote nothing


@reading("KR-38", ProducersFound, SegmentFound, *FAULTS)
def producers_of_batches(history: History) -> Iterator[Word]:
    """What a replica stores of producers as of an offset is what the batches below that offset say
    of them."""
    word = undecided if history.lost_data else violated
    for at in history.of(ProducersFound):
        body = at.body
        below = [
            batch
            for batch in batches(history, body.slot, body.topic, body.partition)
            if batch.end <= body.offset and batch.producer_id >= 0 and batch.base_sequence >= 0
        ]
        newest = {batch.producer_id: batch for batch in below}
        place = body.slot, body.topic, body.partition, body.offset
        rows = zip(
            body.producer_ids,
            body.producer_epochs,
            body.last_sequences,
            body.last_offsets,
            strict=True,
        )
        for producer, epoch, sequence, offset in rows:
            batch = newest.pop(producer, None)
            if batch is None:
                yield undecided(*place, producer)  # its batches may be deleted
                continue
            last = (batch.base_sequence + batch.end - batch.base_offset - 1) % (1 << 31)
            if (epoch, sequence, offset) != (batch.producer_epoch, last, batch.end - 1):
                yield word(*place, producer)
        for producer in newest:
            yield undecided(*place, producer, "forgotten")  # it may have expired


@reading("KR-39", FaultReported, *FAULTS)
def meets_no_fault(history: History) -> Iterator[Word]:
    """A node meets no fault that it has no answer for."""
    for at in history.of(FaultReported):
        yield (undecided if history.lost_data else violated)(at.process, at.body.what)
