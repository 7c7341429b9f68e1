"""The active controller's decision about a heartbeat."""

from __future__ import annotations

from msgspec import Struct

from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error


class HeartbeatDecision(Struct, frozen=True):
    """The outcome of a heartbeat. `renews`: the broker's lease starts again at receipt."""

    error: Error
    next_state: BrokerState
    broker_epoch: int
    records: tuple[r.Record, ...] = ()
    renews: bool = False
