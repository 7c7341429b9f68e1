"""KIP-631: the quorum's controllers, leases and fencing. Each test injects a fault against one
promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fencepost import Condition, Shape, View
from fencepost.testing import EventLog, Faults
from fencepost_kafka import ElectionStarted, VoteAnswered
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode
from fencepost_suites.common.shapes import LONG_LEASE

clause = pytest.mark.clause
physical = pytest.mark.physical


@physical("sockets")
@clause("QC-13", "QC-14", "QC-16", "QC-17", "QC-20")
def test_a_broker_cut_off_from_the_controllers_fences_itself_and_serves_no_client(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")  # in the background, acks=all
    victim = cluster.leader("orders", 0)
    with faults.cut_from_controllers(victim):
        cluster.eventually(victim.fenced)
        assert not clients.fetch_directly(victim, "orders", 0).answered
        assert not clients.produce_directly(victim, "orders", 0).answered
        cluster.eventually(victim.fenced_by_controller)
    cluster.eventually(victim.active)


HOURS_WRONG = {
    **{f"controller-{n}": {"clock.offset.ms": str(n * 3_600_000)} for n in (1, 2, 3)},
    "broker-1": {"clock.offset.ms": "-86400000"},
}


@pytest.mark.parametrize("fencepost_shape", [Shape(own=HOURS_WRONG)], ids=["hours-wrong"])
@physical("clocks")
@clause("QC-13", "QC-14")
def test_wall_clocks_that_are_hours_wrong_change_no_lease(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    victim = cluster.brokers[0]
    with faults.kill(cluster.active_controller):  # its successor's clock differs
        cluster.eventually(victim.active)
    with faults.cut_from_controllers(victim):
        cluster.eventually(victim.fenced)
        cluster.eventually(victim.fenced_by_controller)
    cluster.eventually(victim.active)


@clause("QC-30", "QC-14")
def test_a_fenced_brokers_leaderships_go_to_live_members_of_the_isr(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(cluster.another_leader("orders", 0, victim))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))


@LONG_LEASE
@physical("signals")
@clause("QC-35", "REG-03")
def test_a_bounce_within_the_lease_gets_its_id_back_at_once(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    victim = cluster.leader("orders", 0)
    faults.bounce(victim, after_ms=500)
    cluster.eventually(victim.active, within_ms=2 * cluster.timing.lease_ms)
    cluster.eventually(cluster.recovered)


@pytest.mark.only("reference/quorum", reason="Kafka's brokers keep their epochs over a failover")
@physical("sockets")
@clause("QC-36", "QC-07", "QC-21", "QC-28", "QC-22")
def test_an_isolated_controller_resigns_and_its_successor_has_all_committed_metadata(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("before")
    clients.produce("orders")
    old = cluster.active_controller
    others = [c for c in cluster.controllers if c != old]
    # Brokers still reach the old controller: it must answer that it is not active any more.
    with faults.partition(old, others):
        cluster.eventually(~old.elected)
        new = cluster.active_controller
        assert new != old
        clients.create_topic("meanwhile")
    # One more failover: epochs and assignments of the second controller must survive in a third.
    faults.bounce(new, after_ms=0)
    cluster.eventually(cluster.recovered)
    assert clients.list_topics().outcome == "ok"


@pytest.mark.only(
    "reference/quorum", reason="Kafka's controllers do not say which heartbeats they accept"
)
@clause("QC-36")
def test_an_isolated_controller_renews_no_lease_of_a_broker_that_reaches_no_other(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    old, victim = cluster.active_controller, cluster.brokers[0]
    others = [c for c in cluster.controllers if c != old]
    with faults.partition([old, victim], others):
        cluster.eventually(victim.fenced)
        cluster.eventually(victim.fenced_by_controller)
    cluster.eventually(victim.active)


def a_second_in_its_epoch(after: int) -> Callable[[VoteAnswered], bool]:
    """Whether another candidate was answered before in the epoch of this answer, an epoch that
    comes after another."""
    asked: dict[int, set[int]] = {}

    def such(vote: VoteAnswered) -> bool:
        if vote.epoch <= after:
            return False
        asked.setdefault(vote.epoch, set()).add(vote.candidate)
        return len(asked[vote.epoch]) > 1

    return such


def in_one_epoch(candidates: Sequence[KafkaNode], after: int) -> Condition:
    """The newest elections that they started are of one epoch, which comes after another."""

    def holds(view: View) -> bool:
        began = [view.latest.get((c.process(view), "quorum.election_started")) for c in candidates]
        epochs = {e.body.epoch for e in began if e and isinstance(e.body, ElectionStarted)}
        return None not in began and len(epochs) == 1 and min(epochs) > after

    return Condition(" and ".join(map(str, candidates)) + " to stand in one epoch", holds)


@pytest.mark.only("reference/quorum", reason="Kafka's controllers do not log when they stand")
@clause("QC-07")
def test_a_voter_has_one_vote_an_epoch(
    cluster: KafkaCluster, faults: Faults, history: EventLog
) -> None:
    voter = cluster.active_controller
    first, second = (c for c in cluster.controllers if c != voter)
    rivals = (first, second)
    # The controllers may have stood against each other while they started, too.
    past = max(election.epoch for election in history.of(ElectionStarted))
    with faults.hold(rivals, rivals, "Vote", first=0, action="drop"):
        with faults.pause(voter):
            cluster.eventually(in_one_epoch(rivals, after=past))
        # Both asked for its vote while it was paused.
        second_vote = a_second_in_its_epoch(after=past)
        cluster.eventually(history.event_where(VoteAnswered, second_vote, "two votes"))


# It resigns only when asked, once it has not heard a voter for so long.
@pytest.mark.parametrize(
    "fencepost_shape",
    [Shape(settings={"controller.quorum.fetch.timeout.ms": "5000"})],
    ids=["slow-to-resign"],
)
@clause("QC-08", "QC-09")
def test_uncommitted_records_of_an_isolated_controller_are_undone(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    old = cluster.active_controller
    others = [c for c in cluster.controllers if c != old]
    with faults.partition(old, others):
        # The brokers still send changes to the old controller: it writes the change and cannot
        # commit it.
        clients.create_topic("asked-of-the-old-one")
    cluster.eventually(old.caught_up)


@clause("QC-18")
def test_shutdown_is_granted_once_leadership_is_off_the_broker(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.terminate(victim):
        cluster.eventually(cluster.another_leader("orders", 0, victim))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(victim.active)


@pytest.mark.parametrize("disk", ["empty", pytest.param("copy", marks=physical("disks"))])
@clause("QC-19")
def test_the_newest_of_two_processes_with_one_id_wins(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, disk: str
) -> None:
    clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.duplicate_id(victim, disk=disk):
        duplicate = cluster.node(f"{victim.name}-duplicate")
        cluster.eventually(duplicate.active)
        cluster.eventually(victim.fenced)
        cluster.eventually(victim.disowned)
        assert not clients.fetch_directly(victim, "orders", 0).answered
        assert not clients.produce_directly(victim, "orders", 0).answered
    cluster.eventually(cluster.recovered)


# Leadership must not return, or the broker may rightly lead again when the probe arrives.
@pytest.mark.parametrize(
    "fencepost_shape",
    [Shape(settings={"auto.leader.rebalance.enable": "0"})],
    ids=["leaders-stay"],
)
@physical("signals")
@clause("QC-20")
def test_a_broker_that_was_paused_past_its_lease_does_not_serve_from_memory(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.pause(victim):
        cluster.eventually(victim.fenced_by_controller)
    assert not clients.produce_directly(victim, "orders", 0, acks=1).answered
    cluster.eventually(victim.active)


def test_the_history_of_a_quiet_run_has_no_fencing(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("orders", count=200)
    cluster.eventually(writes.settled)
    assert len(writes.acked) == 200
    assert writes.acked <= clients.read_all("orders")
