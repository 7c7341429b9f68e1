"""A broker's own state over ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from fencepost_kafka import BrokerStateName, GlobalState


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
