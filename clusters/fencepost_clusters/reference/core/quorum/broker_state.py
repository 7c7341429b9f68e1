"""The states of a broker: KIP-631's, and the registration draft's names for them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from fencepost_kafka import BrokerStateName, GlobalState


class BrokerState(IntEnum):
    """KIP-631's enum. A number that this software does not know is read as UNKNOWN (QC-27)."""

    UNKNOWN = 0
    INITIAL = 1
    FENCED = 2
    ACTIVE = 3
    SHUTDOWN = 4

    @classmethod
    def read(cls, number: int) -> BrokerState:
        """The state of a number on the wire."""
        return _BY_NUMBER.get(number) or cls.UNKNOWN

    @property
    def label(self) -> BrokerStateName:
        """Its name, as events have it."""
        return _NAMES[self]


_BY_NUMBER: Mapping[int, BrokerState] = {int(one): one for one in BrokerState}
_NAMES: Mapping[BrokerState, BrokerStateName] = {
    BrokerState.UNKNOWN: "UNKNOWN",
    BrokerState.INITIAL: "INITIAL",
    BrokerState.FENCED: "FENCED",
    BrokerState.ACTIVE: "ACTIVE",
    BrokerState.SHUTDOWN: "SHUTDOWN",
}


def global_state(state: BrokerState, stopping: bool) -> GlobalState:
    """The draft's name of a KIP-631 state; `stopping`: the broker targets SHUTDOWN (REG-01).

    A broker leaves INITIAL when its Register is answered: until then it is Offline.
    """
    match state:
        case BrokerState.ACTIVE:
            return "Stopping" if stopping else "Online"
        case BrokerState.FENCED:
            return "Fenced"
        case _:
            return "Offline"
