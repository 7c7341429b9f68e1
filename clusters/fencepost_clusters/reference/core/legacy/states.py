"""KIP-343's states of a broker: its own state, and its state at the controller."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from fencepost_clusters.reference.wire.legacy import BrokerState
from fencepost_kafka import BrokerStateName, ControllerState, GlobalState

CONTROLLER_NAMES: Mapping[BrokerState, ControllerState] = {
    BrokerState.INITIAL: "Initial",
    BrokerState.INACTIVE: "Inactive",
    BrokerState.ACTIVE: "Active",
    BrokerState.STOPPING: "Stopping",
}
"""The names in events of a broker's states at the controller."""
LIVE = (BrokerState.ACTIVE, BrokerState.STOPPING)
"""The states in which a broker is in the cluster (HB-03, HB-04)."""


class OwnState(IntEnum):
    """A broker's own state."""

    STARTING = 0
    """Not registered, or the controller has not answered yet."""
    FENCED = 1
    ACTIVE = 2
    STOPPING = 3
    ENDED = 4

    @property
    def label(self) -> BrokerStateName:
        """The name of this state in events, the same in every plane."""
        return _LABELS[self]

    @property
    def global_state(self) -> GlobalState:
        """The name of this state as seen from the whole cluster."""
        return _GLOBAL[self]


_LABELS: Mapping[OwnState, BrokerStateName] = {
    OwnState.STARTING: "INITIAL",
    OwnState.FENCED: "FENCED",
    OwnState.ACTIVE: "ACTIVE",
    OwnState.STOPPING: "ACTIVE",
    OwnState.ENDED: "SHUTDOWN",
}
_GLOBAL: Mapping[OwnState, GlobalState] = {
    OwnState.STARTING: "Offline",
    OwnState.FENCED: "Fenced",
    OwnState.ACTIVE: "Online",
    OwnState.STOPPING: "Stopping",
    OwnState.ENDED: "Offline",
}
