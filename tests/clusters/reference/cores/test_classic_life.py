"""A broker's life without a controller: its registration, its sessions, its disk and its end."""

from __future__ import annotations

from uuid import UUID

from tests.clusters.reference.broker_bench import ME, OTHER, BrokerBench
from tests.clusters.reference.classic_bench import (
    ENDPOINTS,
    KEY,
    at,
    bench,
    exists,
    fetches,
    is_multi,
    isr,
    known,
    noted,
    once,
    other_broker,
    process,
    started,
    stored_isr,
    topic,
)

from fencepost import NodeStopped
from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.replication.replica import log_name
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import (
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    LeadershipEnded,
    LeadershipStarted,
    RecoveryEnded,
    ReplicaRemoved,
    ReplicaStood,
    SessionChanged,
)

SHUTDOWN_MS = 4000
METADATA = m.MetadataRequest(topics=None)
LOG = log_name("orders", KEY)
STRAY = log_name("gone", (UUID(int=8), 0))
ENTRY = Entry(
    base=0,
    end=3,
    epoch=1,
    size=100,
    max_timestamp=0,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
)


def states(one: BrokerBench) -> list[tuple[str, str, int]]:
    """Its changes of state: the new one, the reason, and the broker epoch."""
    return [(x.new, x.reason, x.broker_epoch) for x in noted(one, BrokerStateChanged)]


def stopping(one: BrokerBench) -> BrokerBench:
    one.give(e.ShutdownAsked())
    return one


def leading(**more: str) -> BrokerBench:
    """A bench whose broker leads the one partition of a topic."""
    one = started(controlled_shutdown_timeout_ms=str(SHUTDOWN_MS), **more)
    topic(one, (1,))
    one.passes(0.1)
    assert noted(one, LeadershipStarted)
    return one


def leading_with_two() -> BrokerBench:
    """A bench whose broker leads a partition; broker 2 is a member of the ISR."""
    one = started(controlled_shutdown_timeout_ms=str(SHUTDOWN_MS))
    other_broker(one)
    mine = known(one).elections.process
    topic(one, (1, 2), isr((1, 2), (mine, process(one, 2))))
    one.passes(0.01)
    fetches(one)
    assert noted(one, LeadershipStarted)
    assert stored_isr(one).isr == (1, 2)
    return one


# ------------------------------------------------------------------------------------- registration


def test_a_registration_names_the_epoch_and_the_session() -> None:
    one = started()
    (registered,) = noted(one, BrokerRegistered)
    read = at(one, zk.GetData(znodes.broker(1)))
    assert isinstance(read, zk.Data)
    assert (registered.broker_epoch, registered.session) == (read.stat.czxid, ME)
    assert read.stat.owner == ME
    assert states(one) == [("ACTIVE", "registered", registered.broker_epoch)]
    assert known(one).elections.process == registered.broker_epoch
    assert zk.Exists(znodes.broker(1), watch=True) not in one.asked, "the answer says it"


def test_a_missing_chroot_is_named_and_the_broker_joins_once_it_exists() -> None:
    one = bench(chroot="/mine")
    one.start()
    (reason,) = one.reasons()
    assert "the chroot '/mine' of zookeeper.connect does not exist" in reason
    one.passes(0.9)
    assert not one.reasons()
    one.tree.request(OTHER, zk.Create("/mine"), 0)
    one.passes(0.2)
    assert noted(one, BrokerRegistered)
    asked = len(one.asked)
    one.passes(0.9)
    assert len(one.asked) == asked, "it joins once"


def test_a_missing_chroot_is_not_looked_for_without_a_connection() -> None:
    one = bench(chroot="/mine")
    one.start()
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    before = len(one.asked)
    one.passes(5)
    assert len(one.asked) == before


def test_a_cluster_of_another_format_is_not_joined() -> None:
    one = bench()
    one.tree.request(OTHER, zk.Create(znodes.BROKERS, b'{"version":2}'), 0)
    one.start()
    assert one.exited
    (stopped,) = noted(one, NodeStopped)
    assert stopped.reason == "/brokers has format 2, but this broker reads format 1"
    assert not exists(one, znodes.broker(1))


def test_a_broker_that_was_registered_joins_again_whatever_the_format_is_now() -> None:
    one = started()
    one.write(zk.SetData(znodes.BROKERS, b'{"version":2}'))
    one.session_ends()
    one.session_begins()
    assert not one.exited
    assert len(noted(one, BrokerRegistered)) == 2


def test_an_id_that_becomes_free_between_two_requests_is_taken() -> None:
    one = bench()
    refused = zk.Refused(zk.Reason.NODE_EXISTS)
    mine = znodes.broker(1)
    one.meddles = once(
        lambda request: isinstance(request, zk.Create) and request.path == mine, lambda _: refused
    )
    one.start()
    assert noted(one, BrokerRegistered)


def test_a_registration_without_an_answer_is_found_again() -> None:
    """The same session has it after the connection is back."""
    one = bench()
    mine = znodes.broker(1)

    def lost(request: zk.Request) -> zk.Answer:
        one.carries_out(request)
        return zk.Unknown()

    one.meddles = once(
        lambda request: isinstance(request, zk.Create) and request.path == mine, lost
    )
    one.start()
    assert not noted(one, BrokerRegistered)
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    (registered,) = noted(one, BrokerRegistered)
    read = at(one, zk.GetData(mine))
    assert isinstance(read, zk.Data)
    assert registered.broker_epoch == read.stat.czxid


def test_a_missing_parent_of_the_registrations_is_named() -> None:
    one = bench()
    mine, gone = znodes.broker(1), zk.Refused(zk.Reason.NO_NODE)
    one.meddles = once(
        lambda request: isinstance(request, zk.Create) and request.path == mine, lambda _: gone
    )
    one.start()
    assert one.reasons() == ["/brokers/ids is missing"]
    one.passes(1.1)
    assert noted(one, BrokerRegistered)


# ----------------------------------------------------------------------------------------- sessions


def test_a_broker_whose_session_ends_is_fenced_until_it_registers_again() -> None:
    one = leading()
    (first,) = noted(one, BrokerRegistered)
    one.session_ends()
    assert states(one)[-1] == ("FENCED", "session_ended", -1)
    (ended,) = noted(one, LeadershipEnded)
    assert ended.reason == "metadata"
    assert known(one).known.led_by_me() == []
    before = len(one.asked)
    one.asks("CLIENT", METADATA)
    (close_or_reply,) = one.answers
    assert not isinstance(close_or_reply, e.Reply)
    assert len(one.asked) == before
    one.session_begins()
    _, second = noted(one, BrokerRegistered)
    assert states(one)[-1] == ("ACTIVE", "registered", second.broker_epoch)
    read = at(one, zk.GetData(znodes.broker(1)))
    assert isinstance(read, zk.Data)
    info = decode(znodes.broker(1), read.data, znodes.BrokerInfo)
    assert info.since == first.broker_epoch, "it is still the same process"
    assert known(one).elections.process == first.broker_epoch
    one.passes(0.1)
    assert len(noted(one, LeadershipStarted)) == 2, "so it is a member of the ISR"


def test_a_session_that_is_resumed_registers_nothing_and_reads_what_has_changed() -> None:
    one = started()
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.tree.disconnect(ME)
    topic(one, (1,))
    assert "orders" not in known(one).known.image.topics
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    assert "orders" in known(one).known.image.topics
    assert len(noted(one, BrokerRegistered)) == 1


def test_a_broker_stands_for_nothing_after_its_session_has_ended() -> None:
    one = started()
    topic(one, (2, 1))
    one.session_ends()
    one.passes(3)
    assert not noted(one, ReplicaStood)


def test_each_change_of_the_session_is_noted() -> None:
    one = started()
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    one.session_ends()
    changes = [(x.session, x.state, x.how) for x in noted(one, SessionChanged)]
    expired = zk.End.EXPIRED.value
    assert changes == [
        (ME, "connected", ""),
        (ME, "suspended", ""),
        (ME, "connected", ""),
        (ME, "ended", expired),
    ]


def test_a_broker_opens_another_session_after_one_has_ended() -> None:
    one = started()
    assert one.opened == 1
    one.session_ends()
    one.passes(1)
    assert one.opened == 2


# --------------------------------------------------------------------------------------------- disk


def test_logs_of_no_replica_are_deleted_once_the_cluster_is_read() -> None:
    one = bench()
    for path in (znodes.BROKERS, *znodes.PERSISTENT):
        content = encode(znodes.BrokerSettings(version=1)) if path == znodes.BROKERS else b""
        one.write(zk.Create(path, content))
    topic(one, (1,))
    one.start(logs={LOG: (ENTRY,), STRAY: ()}, watermarks={LOG: 2})
    assert [(x.topic, x.reason) for x in noted(one, ReplicaRemoved)] == [("gone", "stray")]
    assert [x.log for x in one.effects if isinstance(x, e.Delete)] == [STRAY]
    (ended,) = noted(one, RecoveryEnded)
    assert (ended.logs, ended.batches) == (2, 1)
    (replica,) = known(one).data.replicas.all()
    assert replica.log.end == 3


# ------------------------------------------------------------------------------------------ its end


def test_a_broker_that_leads_nothing_ends_at_once() -> None:
    one = stopping(started())
    assert noted(one, BrokerStopping)
    one.passes(0.2)
    assert one.exited
    assert one.closed
    assert [each[:2] for each in states(one)[-2:]] == [
        ("ACTIVE", "stopping"),
        ("SHUTDOWN", "shutdown_granted"),
    ]
    assert not one.checkpoints
    (stopped,) = noted(one, NodeStopped)
    assert stopped.reason == "shut down"


def test_a_broker_that_is_asked_to_stop_before_it_registers_ends_at_once() -> None:
    one = bench()
    one.give(e.Tick())
    one.give(e.ShutdownAsked())
    assert one.exited
    assert states(one) == [("SHUTDOWN", "shutdown_requested", -1)]


def test_a_stopping_broker_tells_the_others_and_stands_no_more() -> None:
    one = stopping(leading())
    read = at(one, zk.GetData(znodes.broker(1)))
    assert isinstance(read, zk.Data)
    assert decode(znodes.broker(1), read.data, znodes.BrokerInfo).stopping
    topic(one, (1,), name="later", topic_id=UUID(int=8))
    one.passes(1)
    assert len(noted(one, ReplicaStood)) == 1


def test_the_only_member_of_an_isr_leads_until_the_limit() -> None:
    one = stopping(leading())
    one.passes(SHUTDOWN_MS / 1000 - 0.01)
    assert not one.exited
    assert exists(one, znodes.leader("orders", 0))
    assert not noted(one, LeadershipEnded)
    stopping(one)
    assert len(noted(one, BrokerStopping)) == 1
    before = len(one.checkpoints)
    one.passes(0.02)
    assert one.exited
    assert states(one)[-1][:2] == ("SHUTDOWN", "shutdown_timeout")
    (ended,) = noted(one, LeadershipEnded)
    assert ended.reason == "shutdown"
    assert len(one.checkpoints) > before, "its high watermark is kept"


def test_a_broker_without_a_connection_tells_nothing_when_it_stops() -> None:
    one = leading()
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    before = len(one.asked)
    stopping(one)
    assert len(one.asked) == before


def test_a_broker_that_never_registered_tells_nothing_when_it_stops() -> None:
    one = bench(chroot="/mine")
    one.start()
    before = len(one.asked)
    assert stopping(one).exited
    assert len(one.asked) == before


def test_a_stopping_broker_whose_session_ends_leads_nothing_and_ends() -> None:
    one = stopping(leading())
    one.session_ends()
    assert one.exited
    assert states(one)[-1][:2] == ("SHUTDOWN", "shutdown_granted")


def test_a_leader_gives_up_what_another_member_can_lead() -> None:
    one = leading_with_two()
    stopping(one)
    one.passes(0.2)
    assert not exists(one, znodes.leader("orders", 0))
    (ended,) = noted(one, LeadershipEnded)
    assert ended.reason == "metadata"
    assert one.exited
    assert states(one)[-1][:2] == ("SHUTDOWN", "shutdown_granted")


def test_a_leader_gives_nothing_up_to_a_member_that_is_stopping_too() -> None:
    one = leading_with_two()
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1, stopping=True))
    one.write(zk.SetData(znodes.broker(2), info))
    stopping(one)
    one.passes(1)
    assert exists(one, znodes.leader("orders", 0))
    assert not one.exited


def test_a_leadership_that_was_given_up_without_an_answer_is_given_up_again() -> None:
    one = leading_with_two()
    one.meddles = once(is_multi, lambda _: zk.Unknown())
    stopping(one)
    one.passes(0.05)
    assert exists(one, znodes.leader("orders", 0))
    one.passes(0.2)
    assert not exists(one, znodes.leader("orders", 0))


# ----------------------------------------------------------------------------------------- requests


def test_other_requests_on_the_brokers_listener_are_closed() -> None:
    one = started()
    (answer,) = one.asks("REPLICATION", METADATA)
    assert isinstance(answer, e.Close)


def test_a_follower_gets_no_records_of_a_broker_without_a_registration() -> None:
    one = leading_with_two()
    one.session_ends()
    (answer,) = fetches(one)
    assert isinstance(answer, e.Reply)
    assert isinstance(answer.message, m.FetchResponse)
    assert answer.message.error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_a_client_is_served_once_the_cluster_is_read() -> None:
    one = bench()
    waits: list[zk.Request] = []
    listing = zk.GetChildren(znodes.TOPICS, watch=True)

    def asked_meanwhile(request: zk.Request) -> None:
        waits.append(request)
        one.asks("CLIENT", METADATA)

    one.meddles = once(lambda request: request == listing, asked_meanwhile)
    one.start()
    (answer,) = one.answers
    assert isinstance(answer, e.Close)
    (served,) = one.asks("CLIENT", METADATA)
    assert isinstance(served, e.Reply)
