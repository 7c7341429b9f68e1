"""What the active controller decides: the outcome of a heartbeat, and of a change."""

from __future__ import annotations

from msgspec import Struct

from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error


class HeartbeatDecision(Struct, frozen=True):
    """The outcome of a heartbeat. `renews`: the broker's lease starts again at receipt."""

    error: Error
    next_state: BrokerState
    broker_epoch: int
    records: tuple[r.Record, ...] = ()
    renews: bool = False


class ChangeDecision(Struct, frozen=True):
    """The outcome of a change: one batch of records, and the answer once it is committed."""

    records: tuple[r.Record, ...]
    answer: m.Response
