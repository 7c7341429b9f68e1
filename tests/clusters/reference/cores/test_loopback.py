"""Calls of a node to itself."""

from __future__ import annotations

import pytest

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.legacy.core.loopback import Loopback
from fencepost_clusters.reference.wire import legacy as w

SITE = Site("broker-1", "broker-1", {"CLIENT": 9092, "REPLICATION": 9094}, "broker-1#1")
OWN = ("broker-1", 9094)
ASKED = w.ControlledShutdownRequest(broker_id=1, broker_epoch=7)
ANSWER = w.ControlledShutdownResponse(error_code=0, remaining_partitions=())


def at(ms: int) -> e.Instant:
    return e.Instant(ms * 1_000_000, ms)


def called() -> tuple[Loopback, int]:
    """A call to itself at 0 ms that may take 100 ms; the number of the request that came of it."""
    loopback = Loopback(SITE)
    assert loopback.takes(e.Call(5, OWN, "shutdown", ASKED, 100), at(0))
    received = loopback.inputs.popleft()
    assert isinstance(received, e.Received)
    assert (received.message, received.correlation) == (ASKED, 5)
    return loopback, received.request_id


@pytest.mark.parametrize("reply", [True, False])
def test_the_answer_to_a_call_of_its_own_is_an_input(reply: bool) -> None:
    loopback, request = called()
    answer = e.Reply(request, ANSWER) if reply else e.Close(request, "unknown")
    assert loopback.takes(answer, at(10))
    assert list(loopback.inputs) == [e.Answered(5, ANSWER) if reply else e.CallFailed(5, "closed")]
    assert loopback.deadline_ns() is None


def test_a_call_without_an_answer_fails_at_its_timeout_and_a_later_answer_is_dropped() -> None:
    loopback, request = called()
    assert loopback.deadline_ns() == at(100).monotonic_ns
    loopback.tick(at(99))
    assert not loopback.inputs
    loopback.tick(at(100))
    assert loopback.inputs.popleft() == e.CallFailed(5, "timed out")
    assert loopback.deadline_ns() is None
    assert loopback.takes(e.Reply(request, ANSWER), at(101))
    assert not loopback.inputs


def test_what_is_for_others_leaves_the_node() -> None:
    loopback, _ = called()
    for effect in (
        e.Call(6, ("broker-2", 9094), "shutdown", ASKED, 100),
        e.Reply(0, ANSWER),
        e.Close(0, "unknown"),
        e.Recover(),
    ):
        assert not loopback.takes(effect, at(1))
    assert not loopback.inputs
