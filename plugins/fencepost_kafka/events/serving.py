"""Kinds of events about a broker's answers to clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fencepost import Authority, Change
from fencepost_kafka.events.values import BrokerStateName
from fencepost_kafka.events.words import at, offsets, partition_scope, scopes

FENCING_REASONS = frozenset(
    {
        "fenced",
        "stale_broker_epoch",
        "stale_leader_epoch",
        "taken_over",
        "not_leader",
        "not_controller",
    }
)
"""The reasons for which a fence or an epoch makes a node refuse a request."""


class ProduceAnswered(Struct, frozen=True, gc=False, kw_only=True, tag="broker.produce_answered"):
    """A broker is about to answer one partition of a Produce.

    The batch was stored at `base_offset` to `log_end` (exclusive; -1 on error); `ends` the log ends
    the leader knows of the members of `isr`, in its order; `duplicate`: the batch was stored
    before. Where the event comes after the answer, `received_at_ns` is when the request came in;
    such a node does not say where the batch ends (`log_end` is -1), and names no ISR.
    """

    topic: str
    partition: int
    client: str
    acks: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    base_offset: int
    log_end: int
    leader_epoch: int
    high_watermark: int
    isr: tuple[int, ...]
    ends: tuple[int, ...]
    duplicate: bool
    received_at_ns: int = 0

    def sentence(self) -> str:
        if self.error != "NONE":
            return f"answered a produce of {self.client} to {at(self)} with {self.error}"
        acks = "all" if self.acks == -1 else self.acks
        end = max(self.log_end, self.base_offset + 1)
        return (
            f"acknowledged acks={acks} of {self.client} to {at(self)} at "
            f"{offsets(self.base_offset, end)}, high watermark {self.high_watermark}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class FetchServed(Struct, frozen=True, gc=False, kw_only=True, tag="broker.fetch_served"):
    """A broker is about to answer a client's fetch of one partition with records.

    `to_offset` is exclusive; `state` is the broker's KIP-631 state then, `log_end` the end of its
    log.
    """

    topic: str
    partition: int
    client: str
    from_offset: int
    to_offset: int
    high_watermark: int
    leader_epoch: int
    state: BrokerStateName
    log_end: int = -1

    def sentence(self) -> str:
        return (
            f"served {self.client} {offsets(self.from_offset, self.to_offset)} of {at(self)} "
            f"while {self.state}, "
            f"high watermark {self.high_watermark}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class OperationRefused(Struct, frozen=True, gc=False, kw_only=True, tag="kafka.operation_refused"):
    """A node's authorizer refused an operation to somebody who has no right to it.

    A request may name several resources, each of which is judged alone: the rest of it may have
    had its effect.
    """

    principal: str
    """Who asked, with its type: `User:stranger`."""
    operation: str
    """What was to be done, in Kafka's word: WRITE; an open set."""
    resource: str
    """What it was to be done to, with its type: `Topic:orders`, `Cluster:kafka-cluster`."""
    api: str
    """The request that asked for it: `Produce`."""
    host: str
    """The address that it came from."""

    def sentence(self) -> str:
        return (
            f"refused {self.operation} on {self.resource} to {self.principal}, who asked for it by "
            f"{self.api} from {self.host}"
        )


class RequestRefused(Struct, frozen=True, gc=False, kw_only=True, tag="broker.request_refused"):
    """A node refused a request, or one partition of it, without effect.

    `topic` is empty where no partition is concerned. `reason` is one word: fenced, not_leader,
    stale_broker_epoch, stale_leader_epoch, taken_over, not_controller, not_enough_replicas, ...
    `requester` is the broker id the request claims (-1: a client).
    """

    api: str
    topic: str
    partition: int
    client: str
    requester: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    reason: str
    """Why, in one word of the node; an open set: for Apache Kafka it is the name of the error."""
    state: Literal[BrokerStateName, ""]

    def sentence(self) -> str:
        where = f" for {at(self)}" if self.topic else ""
        sender = f"broker {self.requester}, {self.client}," if self.requester >= 0 else self.client
        return (
            f"refused a {self.api} of {sender}{where} with {self.error} ({self.reason}), while "
            f"{self.state}"
        )

    def authority(self) -> Sequence[Authority]:
        """A refusal because of a fence or an epoch."""
        if self.reason not in FENCING_REASONS or not self.topic or self.partition < 0:
            return ()
        scope = partition_scope(self.topic, self.partition)
        matter = f"{self.api} {self.reason}"
        return (Authority(scope, Change.REFUSED, holder=self.client, matter=matter),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)
