"""A quorum of one controller: the work of an earlier controller that it finishes, and requests of
strangers that it refuses."""

from __future__ import annotations

import uuid
from random import Random  # noqa: TID251 - the node's own seeded stream

import pytest

from fencepost_clusters.reference.core.assembly import DiskContents, assemble
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node import settings as s
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.policies import Policies
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.core.quorum.raft.messages import fetch
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

SECOND = 1_000_000_000
GHOST = 109


class LoneController:
    """A quorum of one active controller, started on a stored metadata log."""

    def __init__(self, *metadata: bytes) -> None:
        self.now_ns = SECOND
        self.requests = 0
        settings = s.read(
            {
                "process.roles": "controller",
                "controller.id": "101",
                "controller.listeners": "CONTROLLER",
                "controller.connect": "101@controller-1:9093",
            }
        )
        site = Site("controller-1", "controller-1", {"CONTROLLER": 9093}, "controller-1#1")
        now = e.Instant(self.now_ns, 0)
        core = assemble(
            settings,
            site,
            stored=DiskContents(metadata=metadata),
            chance=Random(1).randint,
            policies=Policies(),
            now=now,
        )
        assert isinstance(core, ControllerNode)
        self.core = core
        while not core.active:
            self.passes(0.1)
        self.passes(0.1)

    def step(self, what: e.Input) -> list[m.Response]:
        """The answers that leave in one step."""
        done = self.core.handle(what, e.Instant(self.now_ns, 0))
        return [one.message for one in done if isinstance(one, e.Reply)]

    def passes(self, seconds: float) -> list[m.Response]:
        self.now_ns += int(seconds * SECOND)
        return self.step(e.Tick())

    def ask(self, message: m.Request, client: str = "stranger") -> list[m.Response]:
        self.requests += 1
        return self.step(
            e.Received(
                request_id=self.requests,
                listener="CONTROLLER",
                client=client,
                correlation=1,
                message=message,
            )
        )


@pytest.fixture
def controller() -> LoneController:
    return LoneController()


def test_a_deletion_that_was_only_marked_is_finished_by_the_next_controller() -> None:
    """QC-26: the controller that marked the topic may fail before it deletes it."""
    topic = uuid.UUID(int=7)
    records = [
        r.TopicRecord(name="orders", topic_id=topic),
        r.TopicRecord(name="kept", topic_id=uuid.UUID(int=8)),
        r.TopicRecord(name="orders", topic_id=topic, deleting=True),
    ]
    controller = LoneController(record_batch.build([r.encode(one, 1) for one in records], 0, 1, 1))
    assert list(controller.core.committed.image.topics) == ["kept"]


def test_a_controller_that_never_fetched_gets_no_vote(controller: LoneController) -> None:
    """Otherwise the quorum would wait for a voter that may not exist."""
    listener = a.RaftVoterListener(name="CONTROLLER", host="nowhere", port=9093)
    (answer,) = controller.ask(
        a.AddRaftVoterRequest(cluster_id=None, timeout=1_000, voter_id=GHOST, listeners=(listener,))
    )
    assert isinstance(answer, a.AddRaftVoterResponse)
    assert answer.error_code == Error.REQUEST_TIMED_OUT
    assert controller.core.active


def test_a_fetch_that_asks_to_wait_for_weeks_is_answered_within_half_a_minute(
    controller: LoneController,
) -> None:
    end, epoch = controller.core.log.end, controller.core.raft.epoch
    asked = fetch(end, epoch, epoch, 2**31 - 1, m.ReplicaState(replica_id=GHOST))
    controller.ask(asked)  # answered at once: it did not know the committed offset
    assert not controller.ask(asked), "it waits: there is nothing new"
    assert not controller.passes(29)
    (answer,) = controller.passes(2)
    assert isinstance(answer, m.FetchResponse)
