"""A broker's states in KIP-343, as the broker itself and as the controller has them."""

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
"""The states that a controller keeps, as events have them."""
LIVE = (BrokerState.ACTIVE, BrokerState.STOPPING)
"""The states in which a broker is in the cluster (HB-03, HB-04)."""


class OwnState(IntEnum):
    """What a broker takes itself to be."""

    STARTING = 0
    """Not registered, or the controller has not answered yet."""
    FENCED = 1
    ACTIVE = 2
    STOPPING = 3
    ENDED = 4

    @property
    def label(self) -> BrokerStateName:
        """Its name, as events of every plane have it."""
        return _LABELS[self]

    @property
    def global_state(self) -> GlobalState:
        """The name of the state that says what the cluster may expect of the broker."""
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
