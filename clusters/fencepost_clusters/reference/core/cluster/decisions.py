"""The context in which a controller decides about a change, and the decision."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from msgspec import Struct

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r


class DecisionContext(Struct, frozen=True):
    """The state that a decision is made from; deciding changes nothing.

    `ready` are the brokers that may get leaderships. `topic_id` makes the id of a topic from its
    name and from the number of the decision's records before its own.
    """

    image: Image
    ready: frozenset[int]
    settings: Settings
    policies: ClusterPolicies
    topic_id: Callable[[str, int], UUID]


class ChangeDecision(Struct, frozen=True):
    """The outcome of a change: records that are stored together, and the answer once they are."""

    records: tuple[r.Record, ...]
    answer: m.Response
