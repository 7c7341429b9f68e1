"""The reaction of a node to a message or a record that no healthy peer sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from world import World

from fencepost import NodeStopped, RunEnd
from fencepost.judging.judge import judge
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import load
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.core.quorum.raft import messages as quorum_messages
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A healthy cluster."""
    made = World(tmp_path / "run")
    assert made.until(made.healthy, 20)
    return made


def test_a_node_that_meets_an_unknown_record_ends_with_a_sentence(world: World) -> None:
    active = world.core(world.active())
    data = record_batch.build([b"\x63\x00"], active.log.end, active.raft.epoch, 1)
    part = m.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=0,
        current_leader=m.LeaderIdAndEpoch(leader_id=active.raft.me, leader_epoch=active.raft.epoch),
        records=data,
    )
    core = world.core("broker-1")
    core.raft._fetched(active.raft.me, part, e.Instant(world.now_ns, 0))
    wanted = core._out.drain()
    assert wanted[-1] == e.Exit(wanted[-2].body.reason, e.EXIT_UNREADABLE)  # type: ignore[union-attr]
    assert isinstance(wanted[-2], e.Note)
    assert isinstance(wanted[-2].body, NodeStopped)
    assert "type 99 is not known" in wanted[-2].body.reason
    core._out.note(NodeStopped(reason="too late"))
    assert core._out.drain() == ()


@pytest.mark.parametrize(
    "answer",
    [
        m.FetchResponse(error_code=0, responses=()),
        m.VoteResponse(error_code=0, topics=()),
        m.BeginQuorumEpochResponse(error_code=0, topics=()),
    ],
)
def test_an_answer_about_nothing_is_as_good_as_none(world: World, answer: m.Response) -> None:
    core = world.core("broker-1")
    core.raft._calls[10_000] = (101, 1)
    core.raft._fetch_call = 10_000
    assert core.raft.answered(10_000, answer, e.Instant(world.now_ns, 0))


def test_an_epoch_out_of_all_reason_is_not_adopted(world: World) -> None:
    slot = next(c for c in ("controller-1", "controller-2") if c != world.active())
    epoch = world.core(slot).raft.epoch
    for claimed in (quorum_messages.MAX_EPOCH, epoch + quorum_messages.FARTHEST_EPOCH + 1):
        vote = quorum_messages.vote(claimed, 103, 9, 9)
        asked = world.ask(slot, vote, "x#1")
        assert world.until(lambda asked=asked: asked.over, 5)
        assert asked.answer is None
    assert world.core(slot).raft.epoch == epoch


@pytest.mark.parametrize(
    ("defects", "outcome"),
    [((), Outcome.HOLDS), (("votes-twice",), Outcome.VIOLATED)],
    ids=["healthy", "votes-twice"],
)
def test_a_second_candidate_of_one_epoch_gets_no_vote(
    defects: tuple[str, ...], outcome: Outcome, tmp_path: Path
) -> None:
    """Two candidates of one epoch are rare by chance, so one voter is asked by both."""
    world = World(
        tmp_path / "run", defects=defects
    )  # there is no leader yet that the voter could follow
    voter = "controller-1"
    for candidate in (102, 103):
        vote = quorum_messages.vote(99, candidate, world.core(voter).log.end + 5, 98)
        world.ask(voter, vote, f"controller-{candidate - 100}#1")
    world.run(0.1)
    promises = load().promises
    end = RunEnd(complete=True, ended_at_ns=world.now_ns)
    judgement = judge(world.runtime.events(), promises.rules, promises.clauses, end, "quorum")
    assert judgement.verdicts["QC-07"].verdict is outcome


def test_an_unknown_state_value_changes_no_state(world: World) -> None:
    """QC-27: it is read as UNKNOWN, and the controller does nothing."""
    slot = world.active()
    active = world.core(slot)
    assert isinstance(active, ControllerNode)
    before = active.committed.image.brokers[2]
    asked = world.ask(
        slot,
        m.BrokerHeartbeatRequest(
            target_state=99,
            broker_id=2,
            broker_epoch=before.epoch,
            lease_start_time_ms=0,
            cur_metadata_offset=active.committed.applied - 1,
            listeners=(),
            incarnation_id=before.incarnation,
            current_state=99,
        ),
        "broker-2#1",
    )
    assert world.until(lambda: asked.over, 5)
    assert isinstance(asked.answer, m.BrokerHeartbeatResponse)
    left = (asked.answer.error_code, asked.answer.next_state, asked.answer.broker_epoch)
    assert left == (0, 3, before.epoch)
    assert active.committed.image.brokers[2] == before


@pytest.mark.parametrize("topics", [0, 2])
@pytest.mark.parametrize("parts", [0, 2])
def test_a_request_of_the_quorum_about_several_partitions_or_none_is_refused(
    topics: int, parts: int
) -> None:
    """There is one, so the others would be passed over in silence."""
    asked = quorum_messages.vote(1, 102, 0, 0)
    (topic,) = asked.topics
    (part,) = topic.partitions
    for several in (
        (topic,) * topics,
        (replace(topic, partitions=(part,) * parts),),
    ):
        found = quorum_messages.fault(replace(asked, topics=several), lambda node: True, 101, 0)
        assert found == "a quorum request is about one partition"
