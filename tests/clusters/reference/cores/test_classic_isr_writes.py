"""A leader of the plane without a controller writes its ISR, whatever ZooKeeper answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.clusters.reference.classic_bench import KEY, TOPIC, isr

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.classic.core.isr_writes import IsrWrites
from fencepost_clusters.reference.classic.core.known import Known, Read, StoredIsr
from fencepost_clusters.reference.core.node.effects import Instant, ToZooKeeper
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.over_zookeeper.core.session import Session
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk

CALL, MINE, OTHERS = 77, 5, 6
PATH = znodes.isr("orders", 0)
FENCED = IsrOutcome(Error.FENCED_LEADER_EPOCH)


def stat(mzxid: int = 60, version: int = 9, owner: int = 0) -> zk.Stat:
    return zk.Stat(
        czxid=5,
        mzxid=mzxid,
        pzxid=5,
        ctime_ms=0,
        mtime_ms=0,
        version=version,
        cversion=0,
        owner=owner,
        length=0,
        children=0,
    )


class Leader:
    """Broker 1 leads orders-0 in leader epoch 3, and begins to store the ISR (1, 2)."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.known = Known(1, self.out)
        self.known.set_topic("orders", znodes.Topic(id=TOPIC, version=1), 10, 10)
        self.knows(isr((1,), (30,)), 50)
        self.session = Session((("zookeeper-1", 2181),), "", 3000, self.out)
        self.session.changed(zk.Connected(MINE), Instant(0, 0))
        self.lifecycle: Any = SimpleNamespace(epoch=20, registered=True)
        self.written: list[tuple[int, object, IsrOutcome | None]] = []
        self.writes = IsrWrites(
            self.known, self.lifecycle, self.session, lambda *what: self.written.append(what)
        )
        replica: Any = SimpleNamespace(
            me=1, topic="orders", index=0, epoch=3, key=KEY, partition=self.known.partition(KEY)
        )
        state: Any = None
        self.writes.ask(CALL, replica, (1, 2), (2,), state)

    def knows(self, content: znodes.Isr, offset: int, version: int = 4) -> None:
        read = Read(
            offset=offset,
            led=True,
            assigned=(1, 2, 3),
            target=None,
            isr=StoredIsr(content, version),
            versions={},
        )
        self.known.set_partition(KEY, read)

    def asked(self) -> ToZooKeeper:
        """The newest request to ZooKeeper."""
        return [one for one in self.out.drain() if isinstance(one, ToZooKeeper)][-1]

    def answer(self, *answers: zk.Answer) -> None:
        for one in answers:
            self.session.answered(self.asked().request_id, one)

    def outcome(self) -> IsrOutcome | None:
        ((call, key, outcome),) = self.written
        assert (call, key) == (CALL, KEY)
        return outcome


@pytest.fixture
def leader() -> Leader:
    return Leader()


REFUSED = zk.Done((zk.Refused(zk.Reason.ROLLED_BACK), zk.Refused(zk.Reason.BAD_VERSION)))
LEADS = zk.Found(stat(owner=MINE))


def found(epoch: int = 3, leader: int = 1) -> zk.Data:
    content = znodes.Isr(epoch=epoch, leader=leader, isr=(1, 3), since=(30, 31), version=1)
    return zk.Data(encode(content), stat())


def test_a_leader_writes_while_it_leads_and_over_the_version_that_it_knows(leader: Leader) -> None:
    request = leader.asked().request
    assert isinstance(request, zk.Multi)
    check, write = request.writes
    assert check == zk.Check(znodes.leader("orders", 0))
    assert isinstance(write, zk.SetData)
    assert (write.path, write.version) == (PATH, 4)
    assert znodes.isr_of(PATH, write.data).since == (30, -1)


def test_a_stored_isr_counts_at_once(leader: Leader) -> None:
    leader.answer(zk.Done((zk.Checked(), zk.DataSet(stat()))))
    assert leader.outcome() == IsrOutcome(Error.NONE, (1, 2), 3)
    assert leader.known.isrs[KEY].version == 9
    assert leader.known.offsets[KEY] == 60
    one = leader.known.partition(KEY)
    assert one is not None
    assert one.isr == (1, 2)


@pytest.mark.parametrize("refused", [REFUSED, zk.Refused(zk.Reason.BAD_VERSION)])
def test_a_refused_write_finds_the_isr_of_an_earlier_one_that_had_no_answer(
    refused: zk.Answer, leader: Leader
) -> None:
    leader.answer(refused, LEADS, found())
    assert leader.outcome() == IsrOutcome(Error.NONE, (1, 3), 3)
    assert leader.known.isrs[KEY].version == 9


@pytest.mark.parametrize(
    ("leads", "read"),
    [
        (zk.Found(None), found()),
        (zk.Found(stat(owner=OTHERS)), found()),
        (LEADS, found(epoch=4)),
        (LEADS, found(leader=2)),
        (LEADS, zk.Data(b"1,2", stat())),
    ],
    ids=("unled", "another-session", "next-epoch", "another-leader", "unreadable"),
)
def test_a_deposed_leader_stores_nothing(leads: zk.Found, read: zk.Data, leader: Leader) -> None:
    leader.answer(REFUSED, leads, read)
    assert leader.outcome() == FENCED
    assert leader.known.isrs[KEY].version == 4


@pytest.mark.parametrize(
    "answers",
    [
        (zk.Unknown(),),
        (zk.Unsent(),),
        (REFUSED, zk.Unknown(), zk.Unknown()),
        (REFUSED, zk.Unknown(), found()),
        (REFUSED, LEADS, zk.Unknown()),
        (REFUSED, LEADS, zk.Refused(zk.Reason.NO_NODE)),
    ],
    ids=("write", "unsent", "reads", "leader", "ISR", "gone"),
)
def test_an_outcome_that_is_not_read_stays_unknown(
    answers: tuple[zk.Answer, ...], leader: Leader
) -> None:
    leader.answer(*answers)
    assert leader.outcome() is None


def test_an_answer_that_the_next_leader_epoch_overtakes_changes_nothing(leader: Leader) -> None:
    leader.knows(isr((2,), (31,), epoch=4), 70, version=10)
    leader.answer(zk.Done((zk.Checked(), zk.DataSet(stat()))))
    assert leader.outcome() == FENCED
    assert leader.known.isrs[KEY].content.epoch == 4


def test_an_answer_after_the_topic_has_gone_changes_nothing(leader: Leader) -> None:
    leader.known.forget_topic("orders", 70)
    leader.answer(zk.Done((zk.Checked(), zk.DataSet(stat()))))
    assert leader.outcome() == FENCED


def test_a_leader_asks_only_while_it_is_connected_and_registered(leader: Leader) -> None:
    assert leader.writes.can_ask()
    assert leader.writes.broker_epoch == 20
    leader.lifecycle.registered = False
    assert not leader.writes.can_ask()
    leader.lifecycle.registered = True
    leader.session.changed(zk.Suspended(), Instant(0, 0))
    assert not leader.writes.can_ask()
