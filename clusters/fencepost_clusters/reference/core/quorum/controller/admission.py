"""A controller's endpoint admits only users with cluster-action rights (QC-04)."""

from __future__ import annotations

from fencepost_clusters.reference.core.node.effects import Close, Received, Reply
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.rights import Rights
from fencepost_clusters.reference.core.quorum.controller.changes import CHANGES
from fencepost_clusters.reference.core.quorum.controller.policies import RegistrationPolicies
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import RequestRefused


def refused(
    received: Received, rights: Rights, policies: RegistrationPolicies, out: Outbox
) -> bool:
    """Refuses a request without rights, by an error or a closed connection, and records it; False
    for a request that is admitted."""
    if policies.is_admitted(rights, received.principal):
        return False
    message = received.message
    error = Error.CLUSTER_AUTHORIZATION_FAILED
    api = type(message).__name__.removesuffix("Request")
    out.note(
        RequestRefused(
            api=api,
            topic="",
            partition=-1,
            client=received.client,
            requester=-1,
            error=error.name,
            reason="unauthorized",
            state="",
        )
    )
    if CHANGES.is_change(message):
        out.add(Reply(received.request_id, CHANGES.refused(message, error)))
    else:
        out.add(Close(received.request_id, "no cluster-action rights"))
    return True
