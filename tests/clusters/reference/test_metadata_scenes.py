"""The metadata's promises, each in a scene that puts healthy cores to the test."""

from __future__ import annotations

import pytest
from chaos import chaos
from metadata_scenes import FINDS, OFTEN, left_behind
from scenes import play
from world import World

from fencepost import Event
from fencepost.judging.judge import Outcome, judge
from fencepost.plugins.manager import Plugins, load
from fencepost_clusters.reference.defects.catalogue import DEFECTS
from fencepost_clusters.reference.wire import messages as m
from fencepost_kafka import MetadataDigest, SnapshotLoaded

BREAKS = {defect.name: defect.breaks for defect in DEFECTS}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("defect", FINDS)
def test_healthy_cores_keep_the_promise_and_exercise_it(
    defect: str, seed: int, plugins: Plugins
) -> None:
    scene, settings = FINDS[defect]
    events, end = play(scene, seed, settings=settings)
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert BREAKS[defect][0] in judgement.of(Outcome.HOLDS)


def loaded(events: list[Event], slot: str) -> int:
    """How many times a slot's processes rebuilt their state from a snapshot."""
    return sum(e.process.startswith(slot) and isinstance(e.body, SnapshotLoaded) for e in events)


@pytest.mark.parametrize("seed", [1])
def test_a_node_that_was_left_behind_gets_a_snapshot_and_has_the_same_state(
    seed: int, plugins: Plugins
) -> None:
    events, end = play(left_behind, seed, settings=OFTEN)
    assert loaded(events, "controller-") >= 1
    assert loaded(events, "broker-3") >= 1
    assert loaded(events, "broker-2") >= 1
    reported = [e.process for e in events if isinstance(e.body, MetadataDigest)]
    assert {p.partition("#")[0] for p in reported} >= {"controller-1", "broker-2", "broker-3"}
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)
    assert {"QC-06", "QC-11", "QC-12"} <= set(judgement.of(Outcome.HOLDS))


@pytest.mark.parametrize("seed", [40])
def test_frequent_snapshots_in_the_midst_of_everything_break_no_promise(
    seed: int, plugins: Plugins
) -> None:
    events, end, recovered = chaos(seed, settings=OFTEN)
    assert recovered
    assert loaded(events, "") >= 1
    judgement = judge(events, plugins.rules, plugins.clauses, end, "quorum")
    assert not judgement.of(Outcome.VIOLATED)


def test_an_unknown_state_value_changes_no_state() -> None:
    """QC-27: it is read as UNKNOWN, and what is to be done about it is nothing."""
    world = World(1)
    assert world.until(world.healthy, 20)
    active = world.active()
    assert active is not None
    before = active.committed.image.brokers[2]
    asked = m.BrokerHeartbeatRequest(
        target_state=99,
        broker_id=2,
        broker_epoch=before.epoch,
        lease_start_time_ms=0,
        cur_metadata_offset=active.committed.applied - 1,
        listeners=(),
        incarnation_id=before.incarnation,
        current_state=99,
    )
    number = world.ask(world.active_slot(), asked, "broker-2#1", "CONTROLLER")
    assert world.until(lambda: number in world.answers, 5)
    answer = world.answers[number]
    assert isinstance(answer, m.BrokerHeartbeatResponse)
    assert (answer.error_code, answer.next_state, answer.broker_epoch) == (0, 3, before.epoch)
    assert active.committed.image.brokers[2] == before
