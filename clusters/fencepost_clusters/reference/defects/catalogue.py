"""Every defect of the reference cluster, and the policies of a cluster that has some of them."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import UsageError
from fencepost_clusters.reference.classic import defects as classic
from fencepost_clusters.reference.defects import (
    brokers,
    clients,
    elections,
    leases,
    metadata,
    placement,
    quorum,
    registration,
    replication,
)
from fencepost_clusters.reference.legacy import defects as legacy
from fencepost_clusters.reference.policies import Policies

POLICY_DEFECTS = (
    *quorum.DEFECTS,
    *metadata.DEFECTS,
    *leases.DEFECTS,
    *registration.DEFECTS,
    *brokers.DEFECTS,
    *elections.DEFECTS,
    *placement.DEFECTS,
    *replication.DEFECTS,
    *clients.DEFECTS,
)
DATA_PLANE = tuple(
    one for one in POLICY_DEFECTS if any(clause.startswith("RP-") for clause in one.defect.breaks)
)
"""The defects of what all planes share: they break clauses of the replication design."""
LEGACY = (*legacy.DEFECTS, *DATA_PLANE)
CLASSIC = (
    *classic.DEFECTS,
    *(one for one in DATA_PLANE if one not in elections.DEFECTS),
)
DEFECTS = tuple(one.defect for one in POLICY_DEFECTS)
"""The quorum plane's defects as the framework describes them."""
LEGACY_DEFECTS = tuple(one.defect for one in LEGACY)
"""The defects of the plane over ZooKeeper."""
CLASSIC_DEFECTS = tuple(one.defect for one in CLASSIC)
"""The defects of the plane without a controller."""


def policies_with(defects: Sequence[str]) -> Policies:
    """The policies of a cluster with these defects; raises UsageError for an unknown one."""
    by_name = {one.defect.name: one for one in (*POLICY_DEFECTS, *legacy.DEFECTS, *classic.DEFECTS)}
    policies = Policies()
    for name in defects:
        if name not in by_name:
            raise UsageError(f"no defect named {name!r}")
        policies = by_name[name].replace(policies)
    return policies
