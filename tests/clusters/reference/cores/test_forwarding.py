"""A client's administrative request, which a broker of the quorum forwards to its controller."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from quorum_bench import CONTROLLERS, TERM, QuorumBroker, replies

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.raft.messages import fetch_answer
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

CREATE = m.CreateTopicsRequest(
    topics=(
        m.CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=()),
    ),
    timeout=1_000,
)
LIST = a.ListPartitionReassignmentsRequest(timeout=1_000, topics=None)


@pytest.fixture
def broker() -> QuorumBroker:
    return QuorumBroker().activates()


def created(error: Error) -> m.CreateTopicsResponse:
    return m.CreateTopicsResponse(
        topics=(m.CreatableTopicResult(name="orders", error_code=error, error_message=None),)
    )


def errors(done: list[e.Reply]) -> list[int]:
    answers = [one.message for one in done]
    return [one.topics[0].error_code for one in answers if isinstance(one, m.CreateTopicsResponse)]


def admin_calls(broker: QuorumBroker) -> int:
    return sum(one.channel == "admin" for one in broker.node.calls)


def test_the_answer_of_the_active_controller_is_passed_on(broker: QuorumBroker) -> None:
    assert broker.node.asks("CLIENT", CREATE) == []
    done = broker.node.answers("admin", created(Error.TOPIC_ALREADY_EXISTS))
    assert errors(replies(done)) == [Error.TOPIC_ALREADY_EXISTS]


def test_a_request_that_a_former_controller_refuses_is_sent_again_soon(
    broker: QuorumBroker,
) -> None:
    broker.node.asks("CLIENT", CREATE)
    assert replies(broker.node.answers("admin", created(Error.NOT_CONTROLLER))) == []
    broker.node.passes(0.049)
    assert admin_calls(broker) == 0
    broker.node.passes(0.001)
    assert admin_calls(broker) == 1
    done = broker.node.answers("admin", created(Error.NONE))
    assert errors(replies(done)) == [Error.NONE]


@pytest.mark.parametrize(("request_", "again"), [(CREATE, False), (LIST, True)])
def test_only_a_request_that_changes_nothing_is_repeated_after_a_call_without_an_answer(
    broker: QuorumBroker, request_: m.Request, again: bool
) -> None:
    """A change may have been carried out."""
    broker.node.asks("CLIENT", request_)
    lost = broker.node.called("admin")
    broker.node.calls.remove(lost)
    done = replies(broker.node.give(e.CallFailed(lost.call_id, "timed out")))
    assert errors(done) == ([] if again else [Error.REQUEST_TIMED_OUT])
    broker.node.passes(0.05)
    assert admin_calls(broker) == again


@pytest.mark.parametrize(("request_", "waits_ms"), [(CREATE, 4_000), (LIST, 2_000)])
def test_a_request_that_can_be_repeated_waits_for_one_controller_half_of_its_time(
    broker: QuorumBroker, request_: m.Request, waits_ms: int
) -> None:
    """By then another one may be active."""
    broker.node.asks("CLIENT", replace(request_, timeout=60_000))
    assert broker.node.called("admin").timeout_ms == waits_ms


def test_a_request_waits_until_the_address_of_the_active_controller_is_known(
    broker: QuorumBroker,
) -> None:
    """It may have joined the voters just now."""
    broker.node.passes(0.3)
    broker.beats(epoch=1, controller=(104, TERM + 1))
    assert broker.core.raft.leader == 104
    assert broker.node.asks("CLIENT", CREATE) == []
    assert admin_calls(broker) == 0
    joined = m.NodeEndpoint(node_id=104, host="c-4", port=9093)
    known = fetch_answer(104, TERM + 1, high_watermark=broker.end, voters=(*CONTROLLERS, joined))
    for _ in range(2):  # the first one brings its address, the second one that it leads
        broker.node.answers("metadata", known)
        broker.node.passes(0.2)
    assert broker.node.called("admin").address == ("c-4", 9093)


def test_a_request_that_finds_no_active_controller_in_time_is_refused(
    broker: QuorumBroker,
) -> None:
    leaderless = fetch_answer(
        None, 1, high_watermark=broker.end, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    broker.node.answers("metadata", leaderless)
    assert broker.node.asks("CLIENT", CREATE) == []
    before = len(broker.node.effects)
    broker.node.passes(0.99)
    assert errors(replies(broker.node.effects[before:])) == []
    broker.node.passes(0.01)
    assert errors(replies(broker.node.effects[before:])) == [Error.NOT_CONTROLLER]
    assert admin_calls(broker) == 0
