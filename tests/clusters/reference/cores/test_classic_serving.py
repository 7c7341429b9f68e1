"""A broker without a controller serves clients, and follows leaders."""

from __future__ import annotations

from tests.clusters.reference.broker_bench import BrokerBench
from tests.clusters.reference.classic_bench import (
    TOPIC,
    fetches,
    isr,
    known,
    noted,
    other_broker,
    process,
    started,
    topic,
)

from fencepost import Cause
from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import LogAppended, ReplicaStood

BATCH = record_batch.build([b"one"], 0, -1, 1)


def produce() -> m.ProduceRequest:
    data = m.PartitionProduceData(index=0, records=BATCH)
    topics = (m.TopicProduceData(name="orders", partition_data=(data,)),)
    return m.ProduceRequest(acks=-1, timeout=30000, topic_data=topics)


def fetch() -> m.FetchRequest:
    asked = m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return m.FetchRequest(
        max_wait=400,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=(m.FetchTopic(topic="orders", partitions=(asked,)),),
    )


def leading() -> BrokerBench:
    """A bench whose broker leads a partition; broker 2 is a member of the ISR."""
    one = started(controlled_shutdown_timeout_ms="2000")
    other_broker(one)
    topic(one, (1, 2), isr((1, 2), (known(one).elections.process, process(one, 2))))
    one.passes(0.01)
    fetches(one)
    return one


def produced(answers: list[e.Reply | e.Close]) -> list[Error]:
    found = []
    for answer in answers:
        if isinstance(answer, e.Reply) and isinstance(answer.message, m.ProduceResponse):
            part = answer.message.responses[0].partition_responses[0]
            found.append(Error(part.error_code))
    return found


def test_a_message_is_acknowledged_once_the_isr_has_it() -> None:
    one = leading()
    assert one.asks("CLIENT", produce()) == []
    fetches(one, offset=1)
    assert produced(one.answers) == [Error.NONE]


def test_a_fetch_that_waits_is_answered_once_there_are_messages() -> None:
    one = leading()
    assert one.asks("CLIENT", fetch()) == []
    one.asks("CLIENT", produce())
    before = len(one.answers)
    fetches(one, offset=1)
    kinds = [type(x.message) for x in one.answers[before:] if isinstance(x, e.Reply)]
    assert kinds.count(m.FetchResponse) == 2, "the client's and the follower's"


def test_a_fetch_that_waits_is_completed_though_the_session_ends() -> None:
    one = leading()
    assert one.asks("CLIENT", fetch()) == []
    before = len(one.answers)
    one.session_ends()
    one.passes(0.5)
    (answer,) = one.answers[before:]
    assert isinstance(answer, e.Reply)
    assert isinstance(answer.message, m.FetchResponse)


def test_a_broker_that_ends_answers_the_messages_that_wait() -> None:
    one = leading()
    info = znodes.BrokerInfo((), version=1, stopping=True)
    one.write(zk.SetData(znodes.broker(2), encode(info)))
    assert one.asks("CLIENT", produce()) == []
    one.give(e.ShutdownAsked())
    assert one.answers[1:] == []
    one.passes(2.1)
    assert one.exited
    assert len(one.answers) == 2


def test_what_a_request_does_is_caused_by_it_and_nothing_later_is() -> None:
    one = leading()
    one.asks("CLIENT", produce())
    cause = Cause(process="test", seq=1, request=True)
    (appended,) = [
        x for x in one.effects if isinstance(x, e.Note) and isinstance(x.body, LogAppended)
    ]
    assert appended.cause == cause
    before = len(one.effects)
    one.write(zk.Delete(znodes.broker(2)))
    later = [x for x in one.effects[before:] if isinstance(x, e.Note)]
    assert later
    assert all(x.cause is None for x in later)


def following() -> BrokerBench:
    """A bench whose broker follows broker 2."""
    one = started()
    other_broker(one)
    mine, two = known(one).elections.process, process(one, 2)
    topic(one, (2, 1), isr((2, 1), (two, mine)))
    content = znodes.Isr(epoch=4, leader=2, isr=(2, 1), since=(two, mine), version=1)
    leader = zk.Create(znodes.leader("orders", 0), b"2", ephemeral=True)
    one.write(zk.Multi((leader, zk.SetData(znodes.isr("orders", 0), encode(content)))))
    one.passes(0.6)
    return one


def fetch_calls(one: BrokerBench) -> list[e.Call]:
    return [each for each in one.calls if isinstance(each.message, m.FetchRequest)]


def test_a_follower_fetches_again_after_an_answer_and_after_a_failure() -> None:
    one = following()
    (call,) = fetch_calls(one)
    one.calls.clear()
    one.give(e.CallFailed(call.call_id, "lost"))
    one.passes(1)
    (call,) = fetch_calls(one)
    records = record_batch.stamp(BATCH, 0, 4)
    part = m.PartitionData(
        partition_index=0, error_code=Error.NONE, high_watermark=0, records=records
    )
    topics = (m.FetchableTopicResponse(partitions=(part,), topic_id=TOPIC),)
    one.answer(call, m.FetchResponse(error_code=Error.NONE, session_id=1, responses=topics))
    one.passes(1)
    assert len(fetch_calls(one)) == 1
    assert len(noted(one, LogAppended)) == 1
    assert not noted(one, ReplicaStood)
