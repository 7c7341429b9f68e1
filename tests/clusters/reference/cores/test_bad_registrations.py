"""Missing or unreadable znodes: a broker logs which, and keeps running."""

from __future__ import annotations

from broker_bench import OTHER, BrokerBench

from fencepost import NodeStopped
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import BrokerRegistered, ControllerBegan, ControllerEnded


def test_a_broker_registers_once_its_chroot_exists() -> None:
    bench = BrokerBench("/nowhere")
    bench.start()
    bench.passes(3)
    reasons = bench.reasons()
    assert set(reasons) == {"the chroot '/nowhere' of zookeeper.connect does not exist"}
    assert 3 <= len(reasons) <= 4
    bench.write(zk.Create("/nowhere"))
    bench.passes(1)
    assert bench.did(BrokerRegistered) == 1
    assert bench.did(ControllerBegan) == 1


def test_a_broker_that_registered_in_a_new_session_does_not_try_again_later() -> None:
    bench = BrokerBench("/nowhere")
    bench.start()
    bench.session_ends()
    bench.write(zk.Create("/nowhere"))
    bench.session_begins()
    bench.passes(2)
    assert bench.did(BrokerRegistered) == 1


def test_a_controller_whose_epoch_is_unreadable_begins_once_it_is_mended() -> None:
    bench = BrokerBench()
    bench.write(zk.Create(znodes.CONTROLLER_EPOCH, b"three"))
    bench.start()
    bench.passes(3)
    reasons = bench.reasons()
    assert len(reasons) in (3, 4)
    assert all(znodes.CONTROLLER_EPOCH in reason for reason in reasons)
    assert bench.did(BrokerRegistered) == 1
    assert bench.did(ControllerBegan) == 0
    found, _ = bench.tree.request(OTHER, zk.Exists(znodes.CONTROLLER), 0)
    assert isinstance(found, zk.Found)
    assert found.stat is None, "it keeps /controller, so no other broker can begin"
    bench.write(zk.SetData(znodes.CONTROLLER_EPOCH, b"3"))
    bench.passes(1)
    (began,) = (one for one in bench.notes if isinstance(one, ControllerBegan))
    assert began.epoch == 4


def test_an_unreadable_controller_znode_names_no_controller_until_it_is_gone() -> None:
    bench = BrokerBench()
    bench.write(zk.Create(znodes.CONTROLLER, b"{"))
    bench.start()
    bench.passes(2)
    assert bench.did(ControllerBegan) == 0
    assert any(znodes.CONTROLLER in reason for reason in bench.reasons())
    bench.write(zk.Delete(znodes.CONTROLLER))
    assert bench.did(ControllerBegan) == 1


def test_a_controller_whose_znode_was_deleted_ends_its_term_and_is_elected_again() -> None:
    bench = BrokerBench()
    bench.start()
    bench.write(zk.Delete(znodes.CONTROLLER))
    terms = [
        (type(one), one.epoch)
        for one in bench.notes
        if isinstance(one, ControllerBegan | ControllerEnded)
    ]
    assert terms == [(ControllerBegan, 1), (ControllerEnded, 1), (ControllerBegan, 2)]


def test_a_controller_ends_its_term_when_another_broker_is_elected() -> None:
    bench = BrokerBench()
    bench.start()
    other = encode(znodes.ControllerInfo(2))
    create = zk.Create(znodes.CONTROLLER, other, ephemeral=True)
    bench.write(zk.Multi((zk.Delete(znodes.CONTROLLER), create)))
    (ended,) = (one for one in bench.notes if isinstance(one, ControllerEnded))
    assert (ended.epoch, ended.reason) == (1, "deposed")


def test_unreadable_settings_of_brokers_leave_the_defaults() -> None:
    bench = BrokerBench()
    bench.start()
    bench.write(zk.SetData(znodes.BROKER_CONFIG, b"["))
    assert any(znodes.BROKER_CONFIG in reason for reason in bench.reasons())
    bench.passes(2)
    assert bench.did(ControllerEnded) == 0


def test_an_unreadable_registration_is_named_and_is_no_broker() -> None:
    bench = BrokerBench()
    bench.start()
    bench.write(zk.Create(znodes.broker(2), b"{"))
    bench.passes(2)
    assert any(znodes.broker(2) in reason for reason in bench.reasons())
    assert bench.did(ControllerEnded) == 0


def test_a_broker_serves_no_client_before_a_controller_has_sent_it_metadata() -> None:
    """It is active as soon as it has registered, if its protocol knows no heartbeats."""
    bench = BrokerBench(inter_broker_protocol="2")
    bench.write(zk.Create(znodes.CONTROLLER, encode(znodes.ControllerInfo(2))))
    bench.start()
    (registered,) = (one for one in bench.notes if isinstance(one, BrokerRegistered))
    (closed,) = bench.asks("CLIENT", m.MetadataRequest(topics=None))
    assert isinstance(closed, e.Close)
    metadata = w.UpdateMetadataRequest(
        controller_id=2,
        controller_epoch=1,
        broker_epoch=registered.broker_epoch,
        topic_states=(),
        live_brokers=(),
    )
    (answered,) = bench.asks("REPLICATION", metadata)
    assert isinstance(answered, e.Reply)
    (served,) = bench.asks("CLIENT", m.MetadataRequest(topics=None))
    assert isinstance(served, e.Reply)


def test_a_later_registration_names_the_first_one_of_its_process() -> None:
    """RP-06: so the process that has run for the longest is known after a time without
    ZooKeeper."""
    bench = BrokerBench()
    bench.start()
    bench.session_ends()
    bench.session_begins()
    first, again = (one for one in bench.notes if isinstance(one, BrokerRegistered))
    assert again.broker_epoch > first.broker_epoch
    stored = bench.tree.request(OTHER, zk.GetData(znodes.broker(1)), 0)[0]
    assert isinstance(stored, zk.Data)
    assert decode("", stored.data, znodes.BrokerInfo).since == first.broker_epoch


def test_a_process_whose_id_another_one_has_taken_does_not_register_in_a_new_session() -> None:
    """HB-24."""
    bench = BrokerBench()
    bench.start()
    bench.session_ends()
    bench.write(zk.Create(znodes.broker(1), b"{}", ephemeral=True))
    bench.session_begins()
    assert bench.did(BrokerRegistered) == 1
    stored = bench.tree.request(OTHER, zk.GetData(znodes.broker(1)), 0)[0]
    assert isinstance(stored, zk.Data)
    assert stored.stat.owner == OTHER


def test_a_broker_that_is_asked_to_stop_before_it_registered_ends_at_once() -> None:
    bench = BrokerBench()
    bench.give(e.Tick())
    bench.give(e.Recovered({}, {}))
    bench.give(e.ShutdownAsked())
    assert bench.did(NodeStopped) == 1
