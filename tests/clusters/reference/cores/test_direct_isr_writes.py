"""Leaders below the protocol that brings IsrChange, which write their ISR to ZooKeeper (HB-22)."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost_clusters.reference.core.node.effects import ToZooKeeper
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome
from fencepost_clusters.reference.legacy.core import settings, znodes
from fencepost_clusters.reference.legacy.core.broker.isr_requests import (
    IsrChanges,
    KnownZnodes,
    ZnodeWrites,
)
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.over_zookeeper.core.session import Session
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk

TOPIC = uuid.UUID(int=9)
PATH = znodes.state("orders", 0)
CALL, EPOCH = 77, 4
STAT = zk.Stat(
    czxid=5,
    mzxid=8,
    pzxid=5,
    ctime_ms=0,
    mtime_ms=0,
    version=3,
    cversion=0,
    owner=0,
    length=0,
    children=0,
)
PROPERTIES = {
    "broker.id": "1",
    "zookeeper.connect": "zookeeper-1:2181",
    "inter.broker.protocol": "2",
}


class Leader:
    """Broker 1 leads orders-0 in epoch 4, and knows version 2 of its znode."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.session = Session((("zookeeper-1", 2181),), "", 3000, self.out)
        self.written: list[tuple[int, IsrOutcome | None, int]] = []
        lifecycle: Any = SimpleNamespace(epoch=20, is_registered=True, lost=False)
        self.changes = IsrChanges(
            settings.read(PROPERTIES),
            lifecycle,
            ZnodeWrites(
                self.session,
                KnownZnodes({(TOPIC, 0): 2}, 1),
                lambda *what: self.written.append(what),
                self.out,
            ),
            controller=lambda: None,
            policies=LegacyBrokerPolicies(),
            out=self.out,
        )
        partition = SimpleNamespace(topic_id=TOPIC, replicas=(1, 2, 3))
        replica: Any = SimpleNamespace(
            me=1, topic="orders", index=0, epoch=EPOCH, partition=partition
        )
        state: Any = None
        self.changes.ask(CALL, replica, (1, 2), (), state)

    def asked(self) -> ToZooKeeper:
        """The newest request to ZooKeeper."""
        return [one for one in self.out.drain() if isinstance(one, ToZooKeeper)][-1]

    def answer(self, answer: zk.Answer) -> None:
        self.session.answered(self.asked().request_id, answer)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def state(leader: int, epoch: int, isr: tuple[int, ...]) -> zk.Data:
    content = znodes.PartitionState(leader, epoch, isr, 1)
    return zk.Data(encode(content), STAT)


def test_a_leader_writes_with_the_version_that_it_knows(leader: Leader) -> None:
    request = leader.asked()
    assert isinstance(request.request, zk.SetData)
    assert (request.request.path, request.request.version) == (PATH, 2)
    leader.session.answered(request.request_id, zk.DataSet(STAT))
    assert leader.written == [(CALL, IsrOutcome(Error.NONE, (1, 2), EPOCH), 3)]


def test_an_earlier_write_without_an_answer_is_read_when_the_next_write_is_refused(
    leader: Leader,
) -> None:
    leader.answer(zk.Refused(zk.Reason.BAD_VERSION))
    leader.answer(state(1, EPOCH, (1, 3)))
    assert leader.written == [(CALL, IsrOutcome(Error.NONE, (1, 3), EPOCH), 3)]


@pytest.mark.parametrize(
    "found", [state(2, EPOCH + 1, (2,)), state(1, EPOCH + 1, (1,)), zk.Data(b"no JSON", STAT)]
)
def test_a_leader_of_a_former_epoch_stores_nothing(leader: Leader, found: zk.Data) -> None:
    leader.answer(zk.Refused(zk.Reason.BAD_VERSION))
    leader.answer(found)
    assert leader.written == [(CALL, IsrOutcome(Error.FENCED_LEADER_EPOCH), -1)]


def test_a_leader_whose_topic_is_gone_stores_nothing(leader: Leader) -> None:
    leader.answer(zk.Refused(zk.Reason.NO_NODE))
    assert leader.written == [(CALL, IsrOutcome(Error.FENCED_LEADER_EPOCH), -1)]


@pytest.mark.parametrize("refused", [True, False])
def test_a_lost_connection_leaves_the_outcome_unknown(refused: bool, leader: Leader) -> None:
    if refused:
        leader.answer(zk.Refused(zk.Reason.BAD_VERSION))
    leader.answer(zk.Unknown())
    assert leader.written == [(CALL, None, -1)]
