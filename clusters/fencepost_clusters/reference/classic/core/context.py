"""What the parts of a broker share in the plane without a controller."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_clusters.reference.classic.core.known import Known
from fencepost_clusters.reference.classic.core.lifecycle import Lifecycle
from fencepost_clusters.reference.classic.core.policies import PlanePolicies
from fencepost_clusters.reference.classic.core.reading import Reader
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.over_zookeeper.core.session import Clock, Session


@dataclass(frozen=True, slots=True)
class Context:
    """The broker's settings and state, its session with ZooKeeper, and what reads there."""

    settings: Settings
    known: Known
    lifecycle: Lifecycle
    session: Session
    clock: Clock
    reader: Reader
    policies: PlanePolicies
