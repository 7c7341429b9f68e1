"""A broker's decisions that a defect can replace, as pure functions; see `quorum.policies`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.replication.cluster_state import Broker

StopReason = Literal["shutdown_requested", "shutdown_timeout"]
"""Why a broker ends although no controller has granted the shutdown."""
StateReason = Literal[
    "registered",
    "unfenced",
    "lease_expired",
    "refused",
    "taken_over",
    "shutdown_granted",
    StopReason,
]
"""Why a broker's state changed."""


def may_register(recovered: bool) -> bool:
    """Whether a broker may register: its logs are recovered (REG-02)."""
    return recovered


def serves_clients(holds_lease: bool, was_active: bool) -> bool:
    """Whether client requests are processed: only under a lease (QC-14, QC-17, REG-05)."""
    return holds_lease


def session_ends_ns(lease_ends_ns: int) -> int:
    """When a broker stops being active by itself: at the end of its lease (REG-06)."""
    return lease_ends_ns


def stops_without_grant(asked_ns: int, limit_ns: int) -> tuple[int, StopReason]:
    """When a broker that was asked to stop ends without a grant, and for which reason: once the
    configured time is over (REG-08, REG-09)."""
    return asked_ns + limit_ns, "shutdown_timeout"


def has_lost_id(registered: Broker | None, incarnation: UUID) -> bool:
    """Whether the committed metadata names another process for this broker's id (QC-19)."""
    return registered is not None and registered.incarnation != incarnation


@dataclass(frozen=True, slots=True)
class BrokerPolicies:
    """See the module."""

    may_register: Callable[[bool], bool] = may_register
    serves_clients: Callable[[bool, bool], bool] = serves_clients
    session_ends_ns: Callable[[int], int] = session_ends_ns
    registered_state: BrokerState = BrokerState.FENCED
    """The state of a broker that is registered: only the controller unfences it (QC-16)."""
    stops_without_grant: Callable[[int, int], tuple[int, StopReason]] = stops_without_grant
    has_lost_id: Callable[[Broker | None, UUID], bool] = has_lost_id
