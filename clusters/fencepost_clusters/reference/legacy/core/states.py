"""KIP-343's states of a broker at the controller."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost_clusters.reference.wire.legacy import BrokerState
from fencepost_kafka import ControllerState

CONTROLLER_NAMES: Mapping[BrokerState, ControllerState] = {
    BrokerState.INITIAL: "Initial",
    BrokerState.INACTIVE: "Inactive",
    BrokerState.ACTIVE: "Active",
    BrokerState.STOPPING: "Stopping",
}
"""The names in events of a broker's states at the controller."""
LIVE = (BrokerState.ACTIVE, BrokerState.STOPPING)
"""The states in which a broker is in the cluster (HB-03, HB-04)."""
