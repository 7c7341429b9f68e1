"""The voters as one node knows them: from its configuration, its log and the answers it gets."""

from __future__ import annotations

from unittest.mock import Mock

from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.quorum.raft.electorate import Electorate, voters_record
from fencepost_clusters.reference.core.quorum.raft.policies import RaftPolicies
from fencepost_clusters.reference.wire import messages as m

VOTERS = {101: ("c-1", 9093), 102: ("c-2", 9093)}


def endpoints(*nodes: int) -> tuple[m.NodeEndpoint, ...]:
    return tuple(m.NodeEndpoint(node_id=n, host=f"c-{n - 100}", port=9093) for n in nodes)


def controller() -> Electorate:
    return Electorate(VOTERS, (), RaftPolicies(), Outbox())


def broker() -> Electorate:
    return Electorate({}, (("c-1", 9093),), RaftPolicies(), Outbox())


def test_an_answer_names_the_voters_of_the_newest_record() -> None:
    one = controller()
    assert one.endpoints() == endpoints(101, 102)
    one.take([voters_record({**VOTERS, 103: ("c-3", 9093)})], 5)
    assert one.endpoints() == endpoints(101, 102, 103)


def test_a_broker_follows_the_voters_of_each_answer() -> None:
    one = broker()
    for nodes in ((101, 102), (101, 103), (101, 102), (101, 102)):
        one.learn(endpoints(*nodes))
        assert one.voters == {n: (f"c-{n - 100}", 9093) for n in nodes}
        assert one.endpoints() == endpoints(*nodes)


def test_a_broker_looks_at_the_same_voters_once() -> None:
    """Each answer to a fetch names them."""
    follow = Mock(side_effect=lambda learned, bootstrap: learned)
    one = Electorate({}, (("c-1", 9093),), RaftPolicies(voters_to_follow=follow), Outbox())
    for nodes in ((101, 102), (101, 102), (101, 103)):
        one.learn(endpoints(*nodes))
    assert follow.call_count == 2


def test_a_controller_knows_its_voters_and_those_that_another_controller_names() -> None:
    one = controller()
    one.learn(endpoints(101, 104))
    assert [n for n in range(100, 106) if one.is_known(n)] == [101, 102, 104]
    assert one.voters == VOTERS
