"""Leaders without a controller whose transactions are refused, overtaken, or not read again."""

from __future__ import annotations

from tests.clusters.reference.broker_bench import BrokerBench
from tests.clusters.reference.classic_bench import (
    alone,
    at,
    exists,
    fetches,
    isr,
    known,
    noted,
    once,
    other_broker,
    process,
    restarted,
    started,
    stored_isr,
    topic,
)

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import IsrChangeAnswered, LeadershipEnded, LeadershipStarted, ReplicaStood

LEADER, ISR = znodes.leader("orders", 0), znodes.isr("orders", 0)
REFUSED = zk.Done((zk.Refused(zk.Reason.BAD_VERSION),))


def reads_isr(request: zk.Request) -> bool:
    return isinstance(request, zk.GetData) and request.path == ISR


def writes_isr(request: zk.Request) -> bool:
    """A leader stores an ISR."""
    return (
        isinstance(request, zk.Multi)
        and request.writes[0] == zk.Check(LEADER)
        and request.writes[-1].path == ISR
    )


def gives_up(request: zk.Request) -> bool:
    return isinstance(request, zk.Multi) and request.writes[-1] == zk.Delete(LEADER)


def led_for_a_moment() -> BrokerBench:
    """A bench whose broker is about to return a leadership to broker 2."""
    one = started(leader_imbalance_check_interval_ms="2000")
    other_broker(one)
    topic(one, (2, 1), isr((1, 2), (known(one).elections.process, process(one, 2))))
    one.passes(0.3)
    fetches(one)
    assert noted(one, LeadershipStarted)
    return one


def then_loses(one: BrokerBench, request: zk.Request) -> zk.Answer:
    """Carries out a request, after which ZooKeeper answers no more."""
    one.meddles = lambda _: zk.Unknown()
    return one.carries_out(request)


def test_a_leader_whose_give_up_is_refused_leads_on_and_reads_the_partition() -> None:
    one = led_for_a_moment()
    one.meddles = once(gives_up, lambda _: REFUSED)
    before = len(one.asked)
    one.passes(1.71)
    since = one.asked[before:]
    number = next(n for n, request in enumerate(since) if gives_up(request))
    assert any(map(reads_isr, since[number:]))
    assert not noted(one, LeadershipEnded)
    assert exists(one, LEADER)


def test_a_leader_that_gave_up_serves_no_more_though_it_reads_nothing() -> None:
    one = led_for_a_moment()
    one.meddles = lambda request: then_loses(one, request) if gives_up(request) else None
    one.passes(1.71)
    (ended,) = noted(one, LeadershipEnded)
    assert ended.reason == "metadata"


def test_a_new_leader_gives_nothing_up_before_it_serves() -> None:
    one = started(leader_imbalance_check_interval_ms="1000")
    other_broker(one)
    topic(one, (2, 1), isr((1, 2), (known(one).elections.process, process(one, 2))))
    one.passes(1.5)
    (stood,) = noted(one, ReplicaStood)
    assert stood.won
    assert stored_isr(one).preparing
    assert exists(one, LEADER)


def test_a_first_isr_that_is_refused_is_stored_by_the_next_try() -> None:
    one = started()
    topic(one, (1,), isr((1,), (known(one).elections.process,)))
    one.meddles = once(writes_isr, lambda _: REFUSED)
    one.passes(0.5)
    first, _ = (n for n, request in enumerate(one.asked) if writes_isr(request))
    assert any(map(reads_isr, one.asked[first:]))
    assert len(noted(one, LeadershipStarted)) == 1


def test_an_isr_that_is_read_back_as_it_was_ends_the_request_for_another() -> None:
    """Its znode was written meanwhile, with the same content."""
    one = alone((1, 2))

    def meanwhile(_: zk.Request) -> None:
        read = at(one, zk.GetData(ISR))
        assert isinstance(read, zk.Data)
        one.write(zk.SetData(ISR, read.data))

    one.meddles = once(writes_isr, meanwhile)
    fetches(one)
    one.passes(0.2)
    assert len([request for request in one.asked if writes_isr(request)]) == 3
    assert stored_isr(one).isr == (1, 2)


def test_an_isr_without_an_answer_is_stored_by_the_next_try() -> None:
    one = alone((1, 2))
    lost: list[zk.Request] = []

    def loses(request: zk.Request) -> zk.Answer:
        lost.append(request)
        return zk.Unknown()

    one.meddles = once(writes_isr, loses)
    fetches(one)
    one.passes(0.5)
    assert len(lost) == 1
    assert stored_isr(one).isr == (1, 2)


def test_an_isr_that_is_stored_is_noted_with_its_answer() -> None:
    one = alone((1, 2))
    fetches(one)
    one.passes(0.2)
    (answered,) = noted(one, IsrChangeAnswered)
    assert (answered.error, answered.isr, answered.granted_epoch) == ("NONE", (1, 2), 4)


def test_a_member_whose_process_is_replaced_while_it_joins_leaves_again() -> None:
    one = alone((1, 2))
    one.meddles = once(writes_isr, lambda _: restarted(one))
    fetches(one)
    one.passes(0.2)
    assert stored_isr(one).isr == (1,)


def test_a_winner_serves_followers_before_it_reads_anything() -> None:
    one = started()
    topic(one, (1, 2), isr((1, 2), (known(one).elections.process, 7)))

    def elects(request: zk.Request) -> bool:
        return isinstance(request, zk.Multi) and request.writes[0].path == LEADER

    one.meddles = lambda request: then_loses(one, request) if elects(request) else None
    one.passes(0.01)
    (replica,) = known(one).data.replicas.all()
    assert replica.serves_followers


def test_a_broker_does_not_stand_while_its_connection_is_lost() -> None:
    one = started()
    topic(one, (2, 1))
    one.passes(0.1)
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.passes(2)
    assert not any(isinstance(request, zk.Multi) for request in one.asked)


def test_a_broker_without_a_session_leads_nothing_and_wants_no_tick_for_it() -> None:
    one = alone()
    one.session_ends()
    assert known(one).leading.deadline_ns() is None
    assert known(one).session.connected is None


def test_a_leader_that_was_elected_while_there_was_no_session_is_read_in_the_next() -> None:
    one = started()
    other_broker(one)
    two = process(one, 2)
    topic(one, (2, 1), isr((2,), (two,)))
    one.session_ends()
    content = znodes.Isr(epoch=4, leader=2, isr=(2,), since=(two,), version=1)
    leader = zk.Create(LEADER, b"2", ephemeral=True)
    at(one, zk.Multi((leader, zk.SetData(ISR, encode(content)))))
    one.session_begins()
    found = known(one).known.image.partitions[known(one).known.image.topics["orders"]][0]
    assert (found.leader, found.leader_epoch) == (2, 4)
