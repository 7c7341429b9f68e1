"""The settings of a node of the plane without a controller.

`control.plane` is classic. `replica.lag.time.max.ms` is the design's KeepInSyncTime,
`leader.election.wait.time.ms` its LeaderElectionWaitTime, and `preferred.replica.time.ms` its
PreferredReplicaTime.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost import UsageError
from fencepost_clusters.reference.core.node.settings import COMMON, Settings, read_numbers
from fencepost_clusters.reference.over_zookeeper.core.connect import settings_of

PLANE = "control.plane"
"""The property that selects this plane."""
CLASSIC = "classic"
SESSION = "zookeeper.session.timeout.ms"
ELECTION_WAIT = "leader.election.wait.time.ms"
PREFERRED = "preferred.replica.time.ms"
DEFAULTS: Mapping[str, int] = {
    **COMMON,
    SESSION: 18000,
    ELECTION_WAIT: 5000,
    PREFERRED: 1000,
}


def names() -> tuple[str, ...]:
    """The names of this plane's integer settings."""
    return tuple(DEFAULTS)


def read(properties: Mapping[str, str]) -> Settings:
    """Settings from properties as in a server's configuration file; raises UsageError."""
    if "process.roles" in properties:
        raise UsageError(
            f"process.roles is set, which selects the quorum plane, and {PLANE} is set, which "
            "selects a plane over ZooKeeper: set one of them"
        )
    if properties.get(PLANE) != CLASSIC:
        raise UsageError(f"{PLANE} must be {CLASSIC}, not {properties.get(PLANE)!r}")
    numbers = read_numbers(properties, DEFAULTS)
    return settings_of(properties, numbers, CLASSIC)
