"""Facts that a Kafka node's later log lines leave out, and the events that say how it is set up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost_kafka import (
    BrokerStateName,
    FollowingStarted,
    LeadershipStarted,
    MetadataApplied,
    TopicPartition,
)
from fencepost_kafka.log_ends import LogEnds


class SessionConfigured(Struct, frozen=True, tag="apache_kafka.session", kw_only=True):
    """A broker's process began; the controllers keep its session for `timeout_ms`."""

    broker_id: int
    timeout_ms: int


class QuorumConfigured(Struct, frozen=True, tag="apache_kafka.quorum", kw_only=True):
    """A controller's process began; a voter becomes a candidate after `fetch_timeout_ms` without an
    answer of its leader."""

    node_id: int
    fetch_timeout_ms: int


class ControllerFailed(Struct, frozen=True, tag="apache_kafka.controller_failed", kw_only=True):
    """The active controller of `epoch` gave its leadership up, or ended its process, since `doing`
    ended with an `error` for which it has no answer."""

    epoch: int
    doing: str
    error: str

    def sentence(self) -> str:
        return f"failed in {self.doing} and gave epoch {self.epoch} up: {self.error}"

    def concerns(self) -> Sequence[str]:
        return (f"term {self.epoch}",)


class FaultReported(Struct, frozen=True, tag="apache_kafka.fault_reported", kw_only=True):
    """A node's own handler of faults was called: something failed that Kafka has no answer for.

    `what` is its name there, such as `metadata loading` or `fatal`, after which the process ends.
    An active controller that gives its leadership up for it is `ControllerFailed` instead.
    """

    what: str
    error: str

    def sentence(self) -> str:
        return f"met a {self.what} fault: {self.error}"


class IsrRequestForgotten(
    Struct, frozen=True, tag="apache_kafka.isr_request_forgotten", kw_only=True
):
    """A leader has asked for an ISR with `joining` in it. Before the answer it has read the record
    of the present ISR, of the same `partition_epoch`, and takes that for all there is. The answer
    will change nothing; only the record of the larger ISR will."""

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    joining: int

    def sentence(self) -> str:
        return (
            f"read the ISR of {self.topic}-{self.partition} in partition epoch "
            f"{self.partition_epoch}, leader epoch {self.leader_epoch}, and forgot that it had "
            f"asked for broker {self.joining} to join it"
        )

    def concerns(self) -> Sequence[str]:
        return (f"partition {self.topic}-{self.partition}", f"broker {self.joining}")


@final
@dataclass(frozen=True, slots=True)
class Configured:
    """What a node is configured with, and does not log: how long a session lasts, how long a voter
    waits for its leader's answers, how long a follower may lag, how often the active controller
    returns leaderships to preferred replicas (0: not known), and the addresses of the controllers
    to ask first."""

    session_ms: int
    fetch_timeout_ms: int = -1
    keep_in_sync_ms: int = 0
    balance_ms: int = 0
    bootstrap: tuple[str, ...] = ()


@final
@dataclass(slots=True)
class Memory:
    """Facts that later lines of a node's log do not repeat."""

    node_id: int
    configured: Configured
    registers: bool = False
    """Whether the node is a broker."""
    at_ns: int = 0
    """The time of the present line."""
    joined: bool = False
    """Whether it is registered, or, as a controller, knows the active one."""
    warned_ns: int | None = None
    """When it last printed a warning of which there is an event."""
    state: BrokerStateName = "INITIAL"
    broker_epoch: int = -1
    active_epoch: int = -1
    """The epoch in which it is the active controller (-1: it is not)."""
    elected_at: int = -1
    """Where its metadata log ended when it won the newest election."""
    majority_lost: bool = False
    stopping: bool = False
    stopped: bool = False
    seen_epoch: int = -1
    """The highest controller epoch in the control requests that it has obeyed."""
    has_roles: bool = False
    """Whether it has obeyed a LeaderAndIsr."""
    image: MetadataApplied | None = None
    """The newest metadata that it has replayed."""
    counts: bool = False
    """Whether this is a controller that has begun to count brokers and partitions."""
    led: dict[TopicPartition, LeadershipStarted] = field(default_factory=dict)
    """The partitions that the node leads, each with the event of when it began to."""
    followed: dict[TopicPartition, FollowingStarted] = field(default_factory=dict)

    joining: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The partitions for which it has asked for a larger ISR, and does not know the answer: the
    partition epoch of the present ISR, and the broker that is to join it."""

    ends: LogEnds[TopicPartition] = field(default_factory=LogEnds)
    """The end of each known replica's log."""
    marks: dict[TopicPartition, int] = field(default_factory=dict)
    """The high watermark of each known replica."""
    follower_ends: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """How far each follower of a partition that it leads has stored it, by the follower's fetch."""

    def replica_began(
        self, place: TopicPartition, body: LeadershipStarted | FollowingStarted
    ) -> None:
        """A replica begins to lead or to follow."""
        self.joining.pop(place, None)
        self.ends.names(place, body.log_end)
        self.marks[place] = body.high_watermark
        self.follower_ends = {k: v for k, v in self.follower_ends.items() if k[0] != place}

    def epoch_led(self, place: TopicPartition) -> int:
        """The epoch in which it leads a partition (-1: it does not)."""
        led = self.led.get(place)
        return -1 if led is None else led.leader_epoch
