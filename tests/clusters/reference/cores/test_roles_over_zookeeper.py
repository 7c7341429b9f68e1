"""What one broker over ZooKeeper does in the roles that control requests give it, and without its
session."""

from __future__ import annotations

import pytest
from broker_bench import BrokerBench
from role_requests import roles

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import BrokerStateChanged, LeadershipEnded, LeadershipStarted

ACTIVE = w.MetadataHeartbeatResponse(error_code=Error.NONE, current_state=2)


def learn(leader: int) -> w.UpdateMetadataRequest:
    state = w.UpdateMetadataPartition(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=1,
        isr=(1, 2),
        zk_version=0,
        replicas=(1, 2),
        offline_replicas=(),
    )
    at = w.UpdateMetadataEndpoint(
        port=9091, host="broker-2", listener="REPLICATION", security_protocol=0
    )
    return w.UpdateMetadataRequest(
        controller_id=2,
        controller_epoch=1,
        broker_epoch=w.NO_EPOCH,
        topic_states=(w.UpdateMetadataTopic(topic_name="orders", partition_states=(state,)),),
        live_brokers=(
            w.UpdateMetadataBroker(id=1, endpoints=()),
            w.UpdateMetadataBroker(id=2, endpoints=(at,)),
        ),
    )


def registered(**settings: str) -> BrokerBench:
    """Broker 1 has registered, and broker 2 is the controller."""
    bench = BrokerBench(**settings)
    bench.write(zk.Create(znodes.CONTROLLER, encode(znodes.ControllerInfo(2))))
    bench.start()
    bench.registers(2)
    bench.passes(0.1)
    return bench


def active(leader: int, **settings: str) -> BrokerBench:
    """Broker 1 is active, and has a replica of orders-0 with this leader."""
    bench = registered(**settings)
    bench.answer(bench.called(w.MetadataHeartbeatRequest), ACTIVE)
    for request in (learn(leader), roles(leader, 1)):
        (answered,) = bench.asks("REPLICATION", request)
        assert isinstance(answered, e.Reply)
    return bench


def asked(bench: BrokerBench, kind: type[m.Request]) -> int:
    """How many requests of this kind have no answer."""
    return sum(isinstance(one.message, kind) for one in bench.calls)


def test_a_leader_whose_replica_is_stopped_leads_no_more_until_a_later_epoch() -> None:
    """StopReplica without a deletion: the log stays."""
    bench = active(leader=1)
    stopped = w.StopReplicaTopic(topic_name="orders", partition_indexes=(0,))
    bench.asks(
        "REPLICATION",
        w.StopReplicaRequest(
            controller_id=2,
            controller_epoch=1,
            broker_epoch=w.NO_EPOCH,
            delete_partitions=False,
            topics=(stopped,),
        ),
    )
    assert (bench.did(LeadershipStarted), bench.did(LeadershipEnded)) == (1, 1)
    bench.asks("REPLICATION", roles(1, 2))
    assert (bench.did(LeadershipStarted), bench.did(LeadershipEnded)) == (2, 1)
    assert not any(isinstance(one, e.Delete) for one in bench.effects)


def test_a_follower_whose_fetch_was_refused_fetches_at_once_when_a_broker_registers() -> None:
    """Its leader may have refused it since it had not read this broker's registration."""
    bench = active(leader=2)
    bench.passes(0)
    refused = m.FetchResponse(error_code=Error.STALE_BROKER_EPOCH, responses=())
    bench.answer(bench.called(m.FetchRequest), refused)
    bench.passes(0.01)
    assert asked(bench, m.FetchRequest) == 0, "it would ask in a circle"
    bench.registers(3)
    bench.passes(0)
    assert asked(bench, m.FetchRequest) == 1


@pytest.mark.parametrize("has_session", [True, False])
def test_a_leader_asks_for_an_isr_change_only_while_it_is_registered(has_session: bool) -> None:
    """The request names its registration, and the controller refuses any other."""
    bench = active(leader=1, replica_lag_time_max_ms="1000")
    if not has_session:
        bench.session_ends()
    bench.passes(3)
    assert asked(bench, w.IsrChangeRequest) == has_session


def test_a_broker_without_heartbeats_is_active_with_its_registration_unless_it_is_to_stop() -> None:
    """HB-05: it hands its leaderships over in its next session, too."""
    bench = registered(inter_broker_protocol="2")
    states = [one.new for one in bench.notes if isinstance(one, BrokerStateChanged)]
    assert states == ["ACTIVE"]
    bench.give(e.ShutdownAsked())
    bench.session_ends()
    bench.session_begins()
    bench.passes(0.1)
    changes = [one.global_state for one in bench.notes if isinstance(one, BrokerStateChanged)]
    assert changes == ["Online", "Stopping"]
