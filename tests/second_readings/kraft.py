"""Second readings of Apache Kafka's own promises in KRaft mode, as its metadata log shows them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fencepost import NodeStarted, ProcessAsked, ProcessExited, ProcessSpawned
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
    PartitionCommitted,
    ProduceAnswered,
    TopicCommitted,
)
from second_readings.quorum import MS, before, partitions, told_in_order
from second_readings.reading import NEVER, At, History, Word, reading, undecided, violated


def brokers(history: History) -> dict[int, list[BrokerCommitted]]:
    """The records of each broker id, in the order of their offsets."""
    found: dict[int, dict[int, BrokerCommitted]] = {}
    for at in history.of(BrokerCommitted):
        found.setdefault(at.body.broker_id, {}).setdefault(at.body.offset, at.body)
    return {broker: [own[offset] for offset in sorted(own)] for broker, own in found.items()}


@reading("KR-01", BrokerCommitted)
def one_holder(history: History) -> Iterator[Word]:
    """While the process that holds a broker id has a session, another process with that id is
    refused: its registration follows only upon the record that fences the holder."""
    for broker, records in brokers(history).items():
        for one, other in pairwise(records):
            if one.incarnation != other.incarnation and not one.fenced:
                sure = told_in_order(history, BrokerCommitted)
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


@reading("KR-19", HeartbeatAnswered, BrokerCommitted)
def stale_epoch(history: History) -> Iterator[Word]:
    """A heartbeat with another epoch than that of the broker's newest registration is refused."""
    records = brokers(history)
    for at in history.of(HeartbeatAnswered):
        body = at.body
        if body.error != "NONE" or body.request_epoch < 0 or body.broker_id not in records:
            continue
        told = [
            one.body
            for one in history.of(BrokerCommitted)
            if one.place < at.place and one.body.broker_id == body.broker_id
        ]
        if told and body.request_epoch < max(one.broker_epoch for one in told):
            yield violated(body.broker_id, body.request_epoch)
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
    known = {at.process for at in history.of(BrokerStateChanged)}
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


@reading("KR-05", FollowingStarted, LeadershipStarted, LogAppended)
def followers_store_nothing(history: History) -> Iterator[Word]:
    """A produce sent to a broker that follows gets a not-leader error and has no effect, from the
    moment it began to follow."""
    for at in history.of(LogAppended):
        if not at.body.as_leader:
            continue
        turn = next(
            (
                one
                for one in before(history, at, FollowingStarted, LeadershipStarted)
                if (one.body.topic, one.body.partition) == (at.body.topic, at.body.partition)
            ),
            None,
        )
        if turn is not None and isinstance(turn.body, FollowingStarted):
            yield violated(at.process, at.body.topic, at.body.partition)


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
