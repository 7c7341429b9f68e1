"""Partition leaders as a client knows them."""

from __future__ import annotations

from uuid import UUID

import pytest

from fencepost_clusters.reference.client.routes import Routes
from fencepost_clusters.reference.core.node.effects import Call, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.wire import messages as m

PLACE = ("orders", 0)


def answer(routes: Routes, out: Outbox, ms: int, leader: int, epoch: int, topic: int) -> None:
    """The routes ask, and get this leader."""
    now = Instant(ms * 1_000_000, ms)
    routes.stale(now)
    routes.tick(now)
    (call,) = (one for one in out.drain() if isinstance(one, Call))
    part = m.MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=(1, 2),
        isr_nodes=(1, 2),
    )
    brokers = tuple(
        m.MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092) for n in (1, 2)
    )
    made = m.MetadataResponse(
        brokers=brokers,
        cluster_id="c",
        controller_id=1,
        topics=(
            m.MetadataResponseTopic(
                error_code=0, name="orders", partitions=(part,), topic_id=UUID(int=topic)
            ),
        ),
    )
    assert routes.answered(call.call_id, made, now)


@pytest.mark.parametrize(("topic", "leader", "epoch"), [(7, 1, 5), (8, 2, 0)])
def test_an_older_epoch_counts_only_for_a_topic_that_was_made_again(
    topic: int, leader: int, epoch: int
) -> None:
    out = Outbox()
    routes = Routes((("broker-1", 9092),), ("orders",), out)
    answer(routes, out, 1_000, leader=1, epoch=5, topic=7)
    answer(routes, out, 2_000, leader=2, epoch=0, topic=topic)
    assert routes.leader(PLACE) == (f"broker-{leader}", 9092)
    assert routes.epoch(PLACE) == epoch
