"""ControlledShutdown: the controller moves leaderships off a broker that stops (BE-04)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Cause
from fencepost_clusters.reference.core.node.effects import Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.legacy.core.controller.store import Steps
from fencepost_clusters.reference.legacy.core.controller.term import Term
from fencepost_clusters.reference.legacy.core.policies import LegacyControllerPolicies
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ControlledShutdownAnswered


def job(
    term: Term,
    received: Received,
    asked: w.ControlledShutdownRequest,
    *,
    policies: LegacyControllerPolicies,
    out: Outbox,
    cause: Cause | None,
) -> Steps:
    """Judges the request, moves leaderships off the broker, and answers. This is a job, since a
    broker change before it may find a new process. `cause` is that of the answer's event."""
    known = term.brokers.get(asked.broker_id)
    led: list[tuple[str, int]] = []
    if known is None:
        error = Error.BROKER_ID_NOT_REGISTERED
    elif asked.broker_epoch != w.NO_EPOCH and policies.is_stale_shutdown(
        asked.broker_epoch, known.cached
    ):
        error = Error.STALE_BROKER_EPOCH
    else:
        error = Error.NONE
        yield from term.hand_over(asked.broker_id)
        image = term.store.image
        led = [
            (image.names[p.topic_id], p.index)
            for p in image.all_partitions()
            if p.leader == asked.broker_id
        ]
    with out.caused_by(cause):
        answer(out, received, asked, error, term=term, led=led)


def answer(
    out: Outbox,
    received: Received,
    asked: w.ControlledShutdownRequest,
    error: Error,
    *,
    term: Term | None = None,
    led: Sequence[tuple[str, int]] = (),
) -> None:
    """Answers with the error, and the partitions that the broker still leads. `term` is None at a
    broker that is not the controller."""
    known = term.brokers.get(asked.broker_id) if term is not None else None
    out.note(
        ControlledShutdownAnswered(
            client=received.client,
            broker_id=asked.broker_id,
            request_epoch=asked.broker_epoch,
            known_epoch=-1 if known is None else known.cached,
            error=error.name,
            remaining=tuple(f"{topic}-{index}" for topic, index in led),
            controller_epoch=-1 if term is None else term.epoch,
        )
    )
    remaining = tuple(
        w.RemainingPartition(topic_name=topic, partition_index=index) for topic, index in led
    )
    response = w.ControlledShutdownResponse(error_code=error, remaining_partitions=remaining)
    out.add(Reply(received.request_id, response))
