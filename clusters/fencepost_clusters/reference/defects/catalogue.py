"""Every defect of the reference cluster, and the policies of a cluster that has some of them."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import UsageError
from fencepost_clusters.reference.core.policies import Policies
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
DEFECTS = tuple(one.defect for one in POLICY_DEFECTS)
"""The defects as the framework describes them."""


def policies_with(defects: Sequence[str]) -> Policies:
    """The policies of a cluster with these defects; raises UsageError for an unknown one."""
    by_name = {one.defect.name: one for one in POLICY_DEFECTS}
    policies = Policies()
    for name in defects:
        if name not in by_name:
            raise UsageError(f"no defect named {name!r}")
        policies = by_name[name].replace(policies)
    return policies
