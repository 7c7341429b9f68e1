"""The values of event fields that have a fixed set of them, as they are recorded."""

from __future__ import annotations

from typing import Literal

BrokerStateName = Literal["UNKNOWN", "INITIAL", "FENCED", "ACTIVE", "SHUTDOWN"]
"""KIP-631's names of a broker's states."""
GlobalState = Literal["Offline", "Fenced", "Online", "Stopping"]
"""The registration draft's names of a broker's states."""
NodeRole = Literal["broker", "controller"]
"""The roles that a node of a Kafka cluster may have."""
CallOutcome = Literal["ok", "failed", "unknown"]
"""Certainly done, certainly not done, or unknown."""
ProbeOutcome = Literal["answered", "refused", "closed", "timeout"]
"""How a probe's request ended; `refused`: the answer holds an error."""
StateReason = Literal[
    "registered",
    "unfenced",
    "lease_expired",
    "refused",
    "taken_over",
    "controller_silent",
    "session_ended",
    "stopping",
    "shutdown_requested",
    "shutdown_granted",
    "shutdown_timeout",
]
"""Why a broker changed its state."""
VoteReason = Literal[
    "granted", "rejected", "old_epoch", "has_leader", "already_voted", "log_behind"
]
"""Why a vote was granted or refused; `rejected` if the voter does not say why."""
ResignReason = Literal[
    "no_majority", "higher_epoch", "removed", "shutdown", "session_lost", "failed"
]
"""Why a controller stopped being the active one."""
LeadershipReason = Literal[
    "metadata", "fenced", "deleted", "unassigned", "taken_over", "shutdown", "stopped"
]
"""Why a broker stopped serving as leader."""
TruncationReason = Literal["leader_epoch", "high_watermark", "recovery"]
"""Why a replica dropped the end of its log."""
RemovalReason = Literal["deleted", "unassigned", "stray"]
"""Why a broker deletes a replica."""
