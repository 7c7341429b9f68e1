"""Makes the core of a node from its settings and the contents of its disk.

The program, the simulated runtime and the tests' world all start nodes here, so a node is the same
in each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol, runtime_checkable
from uuid import UUID

from msgspec import Struct

from fencepost import UsageError
from fencepost_clusters.reference.classic.core import settings as classic_settings
from fencepost_clusters.reference.classic.core.broker import ClassicNode
from fencepost_clusters.reference.core.node import settings as quorum_settings
from fencepost_clusters.reference.core.node.effects import Chance, Effect, Input, Instant
from fencepost_clusters.reference.core.node.process import Process
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.core.quorum.broker.broker import BrokerNode
from fencepost_clusters.reference.core.quorum.combined import CombinedNode
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.core.quorum.raft.metadata_log import MetadataLog, Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.legacy.core import settings as legacy_settings
from fencepost_clusters.reference.legacy.core.broker.broker import LegacyNode
from fencepost_clusters.reference.policies import Policies
from fencepost_kafka import MetricsReported


class Core(Protocol):
    """A node's decisions."""

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]: ...
    def deadline_ns(self) -> int | None: ...


@runtime_checkable
class Measured(Protocol):
    """A core with KIP-631's metrics, which are those of the quorum plane."""

    def metrics_now(self) -> tuple[MetricsReported, ...]: ...


class DiskContents(Struct, frozen=True):
    """The contents of a disk when a process starts on it; the defaults are those of an empty disk.

    `metadata` are the batches of the metadata log after its `snapshot`. All other logs are
    recovered when the core asks for that.
    """

    metadata: tuple[bytes, ...] = ()
    vote: Vote = Vote()
    snapshot: Snapshot | None = None


def read_settings(properties: Mapping[str, str]) -> Settings:
    """A node's settings; raises UsageError. Without `process.roles` it is one over ZooKeeper
    (QC-01), with a controller unless `control.plane` says otherwise."""
    if classic_settings.PLANE in properties:
        return classic_settings.read(properties)
    if "process.roles" in properties or "zookeeper.connect" not in properties:
        return quorum_settings.read(properties)
    return legacy_settings.read(properties)


def check_site(settings: Settings, site: Site) -> None:
    """Raises UsageError unless the site's listeners are those of the settings' roles."""
    if site.ports.keys() != settings.listeners:
        raise UsageError(
            f"process.roles={','.join(sorted(settings.roles))} listens on "
            f"{' and '.join(sorted(settings.listeners))}, and ports names "
            f"{', '.join(sorted(site.ports)) or 'none'}"
        )


def assemble(
    settings: Settings,
    site: Site,
    *,
    stored: DiskContents,
    chance: Chance,
    policies: Policies,
    now: Instant,
) -> Core:
    """The core of a process that starts now; it draws its incarnation from `chance`.

    The site must have passed `check_site`. Raises CorruptBatch or UnknownRecord for metadata that
    cannot be read.
    """
    incarnation = UUID(int=chance(0, (1 << 128) - 1), version=4)
    process = Process(incarnation, now, chance, site, itertools.count(1))
    if settings.plane == classic_settings.CLASSIC:
        return ClassicNode(settings, process, policies.of_classic())
    if settings.zookeeper:
        return LegacyNode(settings, process, policies.of_legacy())
    of_quorum = policies.of_quorum()

    def controller() -> ControllerNode:
        return ControllerNode(
            settings.for_role("controller"),
            MetadataLog(stored.metadata, stored.snapshot),
            stored.vote,
            process,
            of_quorum,
        )

    def broker(log: MetadataLog) -> BrokerNode:
        return BrokerNode(settings.for_role("broker"), log, process, of_quorum)

    if "broker" not in settings.roles:
        return controller()
    if "controller" not in settings.roles:
        return broker(MetadataLog(stored.metadata, stored.snapshot))
    return CombinedNode(site, controller(), broker(MetadataLog()))
