"""ControlledShutdown: the controller moves leaderships off a broker that stops (BE-04)."""

from __future__ import annotations

from fencepost import Cause
from fencepost_clusters.reference.core.legacy.controller.store import Steps
from fencepost_clusters.reference.core.legacy.controller.term import Term
from fencepost_clusters.reference.core.legacy.policies import LegacyControllerPolicies
from fencepost_clusters.reference.core.node.effects import Outbox, Received, Reply
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
    if known is None:
        error = Error.BROKER_ID_NOT_REGISTERED
    elif asked.broker_epoch != w.NO_EPOCH and policies.is_stale_shutdown(
        asked.broker_epoch, known.cached
    ):
        error = Error.STALE_BROKER_EPOCH
    else:
        error = Error.NONE
        yield from term.hand_over(asked.broker_id)
    with out.caused_by(cause):
        answer(out, received, asked, term, error)


def answer(
    out: Outbox,
    received: Received,
    asked: w.ControlledShutdownRequest,
    term: Term | None,
    error: Error,
) -> None:
    """Answers with the error; without one, with the partitions that the broker still leads."""
    image = term.store.image if term is not None else None
    left = [
        (image.names[p.topic_id], p.index)
        for p in (image.all_partitions() if image is not None else ())
        if image is not None and error is Error.NONE and p.leader == asked.broker_id
    ]
    known = term.brokers.get(asked.broker_id) if term is not None else None
    out.note(
        ControlledShutdownAnswered(
            client=received.client,
            broker_id=asked.broker_id,
            request_epoch=asked.broker_epoch,
            known_epoch=-1 if known is None else known.cached,
            error=error.name,
            remaining=tuple(f"{topic}-{index}" for topic, index in left),
            controller_epoch=-1 if term is None else term.epoch,
        )
    )
    remaining = tuple(
        w.RemainingPartition(topic_name=topic, partition_index=index) for topic, index in left
    )
    response = w.ControlledShutdownResponse(error_code=error, remaining_partitions=remaining)
    out.add(Reply(received.request_id, response))
