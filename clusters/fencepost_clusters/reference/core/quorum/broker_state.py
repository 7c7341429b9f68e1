"""The states of a broker: KIP-631's, and the registration draft's words for them."""

from __future__ import annotations

from enum import IntEnum, StrEnum


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
        return cls(number) if 0 <= number <= 4 else cls.UNKNOWN


class GlobalState(StrEnum):
    """The state of a broker as the whole cluster sees it, in the registration draft's words."""

    OFFLINE = "Offline"
    FENCED = "Fenced"
    ONLINE = "Online"
    STOPPING = "Stopping"


def global_state(state: BrokerState, stopping: bool) -> GlobalState:
    """The draft's word for a KIP-631 state; `stopping`: the broker targets SHUTDOWN (REG-01).

    A broker leaves INITIAL when its Register is answered: until then it is Offline.
    """
    match state:
        case BrokerState.ACTIVE:
            return GlobalState.STOPPING if stopping else GlobalState.ONLINE
        case BrokerState.FENCED:
            return GlobalState.FENCED
        case _:
            return GlobalState.OFFLINE
