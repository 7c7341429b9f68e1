"""The reaction of a leader to the answers to its ISR changes, without a cluster."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node import settings
from fencepost_clusters.reference.core.node.effects import Call, Instant, Note
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome, Replicas
from fencepost_clusters.reference.core.replication.roles import Contact
from fencepost_clusters.reference.legacy.core import settings as legacy_settings
from fencepost_clusters.reference.legacy.core.broker.commands import Commands
from fencepost_clusters.reference.legacy.core.broker.isr_requests import KnownZnodes
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import IsrChangeAnswered, IsrChangeAsked, LeadershipEnded

TOPIC = uuid.UUID(int=9)
KEY = (TOPIC, 0)
PROPERTIES = {
    "process.roles": "broker",
    "broker.id": "1",
    "controller.connect": "101@controller-1:9093",
}


def at(ms: int) -> Instant:
    return Instant(ms * 1_000_000, ms)


def cluster() -> Image:
    """Brokers 1 to 3 are active; broker 1 leads a partition whose ISR lacks broker 3."""
    image = Image()
    for broker in (1, 2, 3):
        image.replay(
            r.BrokerRecord(
                broker_id=broker,
                broker_epoch=broker,
                end_points=(),
                fenced=False,
                incarnation_id=uuid.UUID(int=broker),
            ),
            broker,
        )
    image.replay(r.TopicRecord(name="orders", topic_id=TOPIC), 4)
    partition = r.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4
    )
    image.replay(partition, 5)
    return image


@pytest.fixture
def leader() -> tuple[Replicas, Outbox, Image]:
    """Broker 1's replicas, of which it leads one."""
    out, image = Outbox(), cluster()
    read = settings.read(PROPERTIES)
    replicas = Replicas(read, Asking(out), ReplicationPolicies(), out)
    replicas.adopt(image, [KEY], at(0))
    return replicas, out, image


class Asking:
    """A controller is `known`; a request to it is a call without content."""

    broker_epoch = 1
    learns_by_answer = False

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self.known = True

    def can_ask(self) -> bool:
        return self.known

    def ask(
        self,
        call_id: int,
        one: Replica,
        members: tuple[int, ...],
        joined: tuple[int, ...],
        state: ClusterState,
    ) -> None:
        request = m.AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=())
        self._out.add(Call(call_id, ("controller-1", 9093), "isr", request, 1000))


@pytest.mark.parametrize("known_between", [True, False])
def test_a_replica_that_was_taken_away_and_given_back_joins_once_it_has_fetched_again(
    leader: tuple[Replicas, Outbox, Image], known_between: bool
) -> None:
    """It deleted its log meanwhile (RP-23), and what it had fetched before was counted: it joined
    with an empty log, was elected, and acknowledged messages were lost. The leader may learn of
    both changes at once."""
    replicas, _, image = leader
    one = replicas.by_key[KEY]
    fetched(one, 3, one.log.end, at(1))
    assert one.joiners(at(1), 1_000_000) == (3,)
    for epoch, members in ((5, (1, 2)), (6, (1, 2, 3))):
        moved = r.PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=members,
            isr=(1, 2),
            leader=1,
            leader_epoch=epoch,
        )
        image.replay(moved, epoch + 1)
        if known_between or epoch == 6:
            replicas.adopt(image, [KEY], at(epoch))
    one = replicas.by_key[KEY]
    assert one.joiners(at(7), 10_000_000) == ()
    fetched(one, 3, one.log.end, at(8))
    assert one.joiners(at(8), 10_000_000) == (3,)


def fetched(one: Replica, follower: int, offset: int, now: Instant) -> None:
    """A follower's only fetch in a session."""
    one.fetched(
        follower,
        client=f"broker-{follower}#1",
        broker_epoch=follower,
        offset=offset,
        contact=Contact(now.monotonic_ns),
        now=now,
    )


def asked(out: Outbox) -> tuple[list[int], list[IsrChangeAsked]]:
    """The calls that were made, and the events of ISR changes that were asked for."""
    effects = out.drain()
    calls = [one.call_id for one in effects if isinstance(one, Call)]
    bodies = [getattr(one, "body", None) for one in effects]
    return calls, [body for body in bodies if isinstance(body, IsrChangeAsked)]


def test_a_refused_member_that_fell_behind_meanwhile_is_not_asked_for_again(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    """RP-10: it may join at the high watermark only, which waited for it until the refusal."""
    replicas, out, image = leader
    one = replicas.by_key[KEY]
    fetched(one, 2, 0, at(1))
    fetched(one, 3, 0, at(1))
    replicas.tick(image, at(200))
    (call,), (change,) = asked(out)
    assert change.new_isr == (1, 2, 3)
    batch = record_batch.build([b"x"], 0, -1, 1)
    one.append(record_batch.parse(batch), batch)
    fetched(one, 2, 1, at(210))
    assert one.high_watermark == 0, "what may have been added counts"
    replicas.answered(call, IsrOutcome(Error.INELIGIBLE_REPLICA), at(220))
    assert one.high_watermark == 1
    out.drain()
    replicas.tick(image, at(400))
    assert asked(out) == ([], [])
    fetched(one, 3, 1, at(410))
    replicas.tick(image, at(600))
    _, (change,) = asked(out)
    assert (change.new_isr, change.ends, change.high_watermark) == ((1, 2, 3), (1, 1, 1), 1)


def test_a_replica_that_would_have_to_leave_the_isr_at_once_does_not_join_it(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    """RP-09 and RP-10: the ISR of a quiet partition would change again and again."""
    replicas, out, image = leader
    one = replicas.by_key[KEY]
    lag_ms = settings.read(PROPERTIES).ms("replica.lag.time.max.ms")
    fetched(one, 3, 0, at(1))
    fetched(one, 2, 0, at(lag_ms))
    lag_ns = lag_ms * 1_000_000
    assert one.joiners(at(lag_ms), lag_ns) == (3,)
    assert one.joiners(at(1 + lag_ms), lag_ns) == ()
    replicas.tick(image, at(1 + lag_ms))
    assert asked(out) == ([], [])


def test_after_an_uncertain_refusal_replicas_that_may_have_been_added_count(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    replicas, out, image = leader
    one = replicas.by_key[KEY]
    fetched(one, 2, 0, at(1))
    fetched(one, 3, 0, at(1))
    replicas.tick(image, at(200))
    (call,), _ = asked(out)
    batch = record_batch.build([b"x"], 0, -1, 1)
    one.append(record_batch.parse(batch), batch)
    fetched(one, 2, 1, at(210))
    replicas.answered(call, IsrOutcome(Error.NOT_CONTROLLER), at(220))
    assert one.high_watermark == 0


def test_a_leader_that_is_answered_the_isr_it_has_goes_on_asking() -> None:
    """Over ZooKeeper a leader learns the stored ISR from answers only. An answer without a change
    confirms its earlier request."""
    out, image = Outbox(), cluster()
    read = legacy_settings.read({"broker.id": "1", "zookeeper.connect": "zookeeper-1:2181"})
    asking = Asking(out)
    asking.learns_by_answer = True
    replicas = Replicas(read, asking, ReplicationPolicies(), out)
    known = KnownZnodes()
    lifecycle: Any = SimpleNamespace(epoch=1, is_registered=True, lost=False)
    policies = LegacyBrokerPolicies()
    commands = Commands(read, lifecycle, replicas, known, policies=policies, out=out)
    commands.roles.replay(r.TopicRecord(name="orders", topic_id=TOPIC), 1)
    partition = r.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4
    )
    commands.roles.replay(partition, 2)
    known.versions[KEY] = 7
    replicas.adopt(commands.roles, [KEY], at(0))
    one = replicas.by_key[KEY]
    for follower in (2, 3):
        fetched(one, follower, 0, at(1))
    replicas.tick(image, at(200))
    (lost,), _ = asked(out)
    replicas.failed(lost, at(210))
    joiner = image.brokers.pop(3)
    replicas.tick(image, at(400))
    (call,), (change,) = asked(out)
    assert change.new_isr == change.old_isr == (1, 2)
    replicas.answered(call, IsrOutcome(Error.NONE, (1, 2)), at(410))
    commands.isr_stored(KEY, (1, 2), None, at(410))
    assert known.versions[KEY] == 7, "what is the same as before was not written"
    image.brokers[3] = joiner
    replicas.tick(image, at(600))
    _, (change,) = asked(out)
    assert change.new_isr == (1, 2, 3)


# ------------------------------------------------------------------------------------- the answers


def joining(leader: tuple[Replicas, Outbox, Image]) -> int:
    """Broker 3 has caught up, so the leader asks for it; returns the call."""
    replicas, out, image = leader
    for follower in (2, 3):
        fetched(replicas.by_key[KEY], follower, 0, at(1))
    replicas.tick(image, at(200))
    (call,), _ = asked(out)
    return call


def stored(isr: tuple[int, ...], epoch: int = 4) -> r.IsrChangeRecord:
    return r.IsrChangeRecord(partition_id=0, topic_id=TOPIC, isr=isr, leader=1, leader_epoch=epoch)


def test_an_isr_that_is_stored_in_the_same_leader_epoch_ends_the_request(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    """Until then another change of the same partition leaves it in flight."""
    replicas, _, image = leader
    call, one = joining(leader), leader[0].by_key[KEY]
    for isr, in_flight in (((1, 2), call), ((1, 2, 3), None)):
        image.replay(stored(isr), image.offset)
        replicas.adopt(image, [KEY], at(210))
        assert one.partition.isr == isr
        assert one.asked == in_flight
        assert one.adding == ((3,) if in_flight else ())


def test_a_granted_isr_is_in_flight_until_it_is_stored(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    replicas, out, image = leader
    replicas.answered(joining(leader), IsrOutcome(Error.NONE, (1, 2, 3), 4), at(210))
    out.drain()
    replicas.tick(image, at(1000))
    assert asked(out) == ([], [])


@pytest.mark.parametrize("refused", [True, False])
def test_a_request_without_success_is_repeated_after_a_while(
    leader: tuple[Replicas, Outbox, Image], refused: bool
) -> None:
    replicas, out, image = leader
    call = joining(leader)
    assert replicas.is_isr_request(call)
    if refused:
        replicas.answered(call, IsrOutcome(Error.NOT_CONTROLLER), at(210))
    else:
        assert replicas.failed(call, at(210))
    assert not replicas.is_isr_request(call)
    assert not replicas.failed(call, at(210))
    out.drain()
    assert replicas.deadline_ns() == at(310).monotonic_ns
    replicas.tick(image, at(309))
    assert asked(out) == ([], [])
    replicas.tick(image, at(310))
    _, (change,) = asked(out)
    assert change.new_isr == (1, 2, 3)


@pytest.mark.parametrize("answered", [True, False])
def test_the_outcome_of_an_earlier_request_changes_nothing_of_a_later_one(
    leader: tuple[Replicas, Outbox, Image], answered: bool
) -> None:
    replicas, _, image = leader
    earlier, one = joining(leader), leader[0].by_key[KEY]
    image.replay(stored((1,)), 6)
    replicas.adopt(image, [KEY], at(210))
    replicas.tick(image, at(400))
    later = one.asked
    assert later not in (None, earlier)
    if answered:
        replicas.answered(earlier, IsrOutcome(Error.INELIGIBLE_REPLICA), at(410))
    else:
        replicas.failed(earlier, at(410))
    assert (one.asked, one.adding) == (later, (2, 3))


def test_the_outcome_of_a_request_about_a_deleted_topic_changes_nothing(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    replicas, out, image = leader
    call = joining(leader)
    image.replay(r.DeleteTopicRecord(name=TOPIC), 6)
    replicas.adopt(image, [KEY], at(210))
    out.drain()
    replicas.answered(call, IsrOutcome(Error.NOT_CONTROLLER), at(220))
    assert out.drain() == ()


def test_a_leader_asks_for_no_replica_of_a_fenced_broker(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    """RP-10."""
    replicas, out, image = leader
    image.brokers[3] = replace(image.brokers[3], fenced=True)
    for follower in (2, 3):
        fetched(replicas.by_key[KEY], follower, 0, at(1))
    replicas.tick(image, at(200))
    assert asked(out) == ([], [])
    image.brokers[3] = replace(image.brokers[3], fenced=False)
    replicas.tick(image, at(299))
    assert asked(out) == ([], [])
    replicas.tick(image, at(300))
    assert len(asked(out)[0]) == 1


def test_a_member_that_does_not_fetch_leaves_the_isr_once_its_time_is_up(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    """RP-09: `lag_ns` in the record is how long it has not been caught up."""
    replicas, out, image = leader
    image.replay(stored((1, 2, 3)), 6)
    replicas.adopt(image, [KEY], at(0))
    fetched(replicas.by_key[KEY], 2, 0, at(1000))
    lag_ms = settings.read(PROPERTIES).ms("replica.lag.time.max.ms")
    replicas.tick(image, at(lag_ms - 1))
    assert asked(out) == ([], [])
    replicas.tick(image, at(lag_ms))
    _, (change,) = asked(out)
    assert (change.old_isr, change.new_isr) == ((1, 2, 3), (1, 2))
    assert change.lag_ns == at(lag_ms).monotonic_ns


def test_a_broker_that_has_stopped_its_replicas_asks_for_no_isr(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    replicas, out, image = leader
    replicas.retire_all("taken_over")
    (ended,) = [one.body for one in out.drain()[-1:] if isinstance(one, Note)]
    assert isinstance(ended, LeadershipEnded)
    assert ended.reason == "taken_over"
    replicas.tick(image, at(100_000))
    assert asked(out) == ([], [])
    assert not replicas.by_key[KEY].leading


def test_a_member_that_is_expelled_leaves_the_isr_at_once(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    """HB-24: another process has its id. A replica outside the ISR has nothing to leave."""
    replicas, out, image = leader
    image.replay(stored((1, 2, 3)), 6)
    replicas.adopt(image, [KEY], at(0))
    fetched(replicas.by_key[KEY], 2, 0, at(9))
    replicas.tick(image, at(10))
    assert asked(out) == ([], [])
    replicas.expel(KEY, 7)
    replicas.tick(image, at(11))
    assert asked(out) == ([], [])
    replicas.expel(KEY, 3)
    replicas.tick(image, at(12))
    _, (change,) = asked(out)
    assert change.new_isr == (1, 2)


def test_the_answer_to_a_request_is_recorded_with_the_leader_epoch_of_the_request(
    leader: tuple[Replicas, Outbox, Image],
) -> None:
    replicas, out, image = leader
    call, one = joining(leader), leader[0].by_key[KEY]
    assert one.proposed == (1, 2, 3)
    image.replay(stored((1, 2), epoch=5), 6)
    replicas.adopt(image, [KEY], at(205))
    assert one.proposed is None
    out.drain()
    replicas.answered(call, IsrOutcome(Error.NONE, (1, 2, 3), 4), at(210))
    (event,) = [one.body for one in out.drain() if isinstance(one, Note)]
    assert isinstance(event, IsrChangeAnswered)
    assert (event.leader_epoch, event.granted_epoch) == (4, 4)
    assert (event.error, event.isr) == ("NONE", (1, 2, 3))


def test_a_leader_that_knows_no_controller_asks_once_it_does_and_looks_now_and_then() -> None:
    out, image = Outbox(), cluster()
    asking = Asking(out)
    asking.known = False
    replicas = Replicas(settings.read(PROPERTIES), asking, ReplicationPolicies(), out)
    replicas.adopt(image, [KEY], at(0))
    for follower in (2, 3):
        fetched(replicas.by_key[KEY], follower, 0, at(1))
    replicas.tick(image, at(200))
    assert asked(out) == ([], [])
    assert replicas.deadline_ns() == at(300).monotonic_ns
    asking.known = True
    replicas.tick(image, at(300))
    assert len(asked(out)[0]) == 1


@pytest.mark.parametrize("by_answer", [True, False])
def test_an_isr_without_an_answer_is_unsettled_only_where_nothing_else_brings_it(
    by_answer: bool,
) -> None:
    """A leader of the quorum plane learns it from the metadata."""
    out, image = Outbox(), cluster()
    asking = Asking(out)
    asking.learns_by_answer = by_answer
    replicas = Replicas(settings.read(PROPERTIES), asking, ReplicationPolicies(), out)
    replicas.adopt(image, [KEY], at(0))
    call, one = joining((replicas, out, image)), replicas.by_key[KEY]
    replicas.failed(call, at(210))
    assert one.unsettled is by_answer
    assert (one.asked, one.adding) == (None, (3,))
    replicas.confirmed(KEY)
    assert not one.unsettled
    assert one.adding == ()
