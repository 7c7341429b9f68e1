"""Kinds of events about Kafka's clients: their requests, and the outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fencepost import Operation, OperationOutcome, because
from fencepost_kafka.events.values import CallOutcome, ProbeOutcome
from fencepost_kafka.events.words import at, scopes


class ProduceInvoked(Struct, frozen=True, gc=False, tag="client.produce_invoked", kw_only=True):
    """A client hands a message to its library; `operation`, in the payload, is unique in a run.

    An `idempotent` producer's message is stored once, however often it is sent in one producer
    epoch (KIP-98).
    """

    operation: str
    topic: str
    partition: int
    acks: int
    idempotent: bool = False

    def sentence(self) -> str:
        return f"produces {self.operation} to {at(self)}"

    def client_operations(self) -> Sequence[Operation]:
        return (Operation(self.operation, "produce", at(self)),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ProduceCompleted(Struct, frozen=True, gc=False, kw_only=True, tag="client.produce_completed"):
    """The outcome of a produce: ok (stored at `offset`), failed (certainly not stored), unknown."""

    operation: str
    topic: str
    partition: int
    acks: int
    outcome: CallOutcome
    offset: int
    error: str
    """Kafka's name of the error, or the words of the client library; empty: none. An open set."""
    reason: str = ""
    """What the broker, or the library, said about the error beyond its name; empty: nothing."""

    def sentence(self) -> str:
        if self.outcome == "ok":
            return f"{self.operation} was acknowledged at offset {self.offset} of {at(self)}"
        how = "failed" if self.outcome == "failed" else "has an unknown outcome"
        return f"{self.operation} to {at(self)} {how}{because(self.error)}{because(self.reason)}"

    def client_operations(self) -> Sequence[Operation]:
        return (
            Operation(
                self.operation, "produce", at(self), OperationOutcome(self.outcome), self.error
            ),
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ProducerEpochChanged(
    Struct, frozen=True, gc=False, tag="client.producer_epoch", kw_only=True
):
    """An idempotent producer's library began a new epoch, or got a new producer id (KIP-360).

    Messages in flight are then sent again under the new one, and no broker can know whether they
    were stored before. It happened after `since_ns` and before this event, which is recorded for
    each partition that the client writes to.
    """

    topic: str
    partition: int
    producer_id: int
    epoch: int
    since_ns: int

    def sentence(self) -> str:
        return (
            f"began producer epoch {self.epoch} of id {self.producer_id}; messages in flight to "
            f"{at(self)} are sent again"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class Polled(Struct, frozen=True, gc=False, tag="client.polled", kw_only=True):
    """A consumer got messages of one partition, in this order; `offsets` and `operations` agree.

    `final` marks the reading of every partition from start to end after the run.
    """

    topic: str
    partition: int
    offsets: tuple[int, ...]
    operations: tuple[str, ...]
    final: bool

    def sentence(self) -> str:
        why = " in the final reading" if self.final else ""
        if not self.offsets:
            return f"got nothing of {at(self)}{why}"
        return (
            f"got {len(self.offsets)} messages of {at(self)} from offset {self.offsets[0]} on{why}"
        )

    def client_operations(self) -> Sequence[Operation]:
        return (Operation("", "poll", at(self), OperationOutcome.OK),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class MessagesRead(Struct, frozen=True, gc=False, tag="client.messages_read", kw_only=True):
    """A reading of a topic for its contents got these messages of one partition, in this order.

    Keys and values are text; a byte that is no UTF-8 is shown as `\\xff`. `keyless` are the offsets
    of messages without a key, `tombstones` those without a value: their texts are empty.
    """

    topic: str
    partition: int
    offsets: tuple[int, ...]
    keys: tuple[str, ...]
    values: tuple[str, ...]
    keyless: tuple[int, ...] = ()
    tombstones: tuple[int, ...] = ()

    def sentence(self) -> str:
        return f"read {len(self.offsets)} messages of {at(self)} with their contents"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ConsumerPositioned(Struct, frozen=True, gc=False, tag="client.positioned", kw_only=True):
    """A consumer was assigned or sought to `offset` (-2 the beginning, -1 the end).

    `out_of_range`: no command sent it there. A broker refused the offset at which it was, so it
    begins anew by itself. The messages that it had got up to there may be gone, or that broker
    leads no more and lacks them. `refused_by` is its id (-1: not known).
    """

    topic: str
    partition: int
    offset: int
    out_of_range: bool = False
    refused_by: int = -1

    def sentence(self) -> str:
        where = {-2: "the beginning", -1: "the end"}.get(self.offset, f"offset {self.offset}")
        why = ", since its offset was out of range" if self.out_of_range else ""
        why += f" at broker {self.refused_by}" if self.refused_by >= 0 else ""
        return f"continues in {at(self)} from {where}{why}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ReadCompleted(Struct, frozen=True, gc=False, kw_only=True, tag="client.read_completed"):
    """A final reading of one partition ended: ok if all of [start, end) was seen, else unknown.

    Its end was asked for at `asked_ns` (CLOCK_MONOTONIC; 0: not known).
    """

    topic: str
    partition: int
    start: int
    end: int
    outcome: CallOutcome
    error: str
    """Kafka's name of the error, or the words of the client library; empty: none. An open set."""
    asked_ns: int = 0

    def sentence(self) -> str:
        return (
            f"read {at(self)} from {self.start} to {self.end}: "
            f"{self.outcome}{because(self.error, ', ')}"
        )

    def client_operations(self) -> Sequence[Operation]:
        return (
            Operation("", "final reading", at(self), OperationOutcome(self.outcome), self.error),
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ProbeCompleted(Struct, frozen=True, gc=False, kw_only=True, tag="client.probe_completed"):
    """One raw request was sent to one broker, leader or not; this is its result.

    `outcome` is answered, refused (an error code), closed, or timeout; `error` is the Kafka error
    name; `records` the number of messages in a fetch answer; `base_offset` the offset of an
    accepted produce (-1: none); `sent_at_ns` when the request left; `brokers` the broker ids that
    a Metadata answer names; `answer`, where bytes were sent, the frame that came back, without its
    length, or the metrics page, in hexadecimal. `acks` is a Produce's (-1: all, or not known).
    `voter` is the controller that a change of voters names (-1: none, or not known).
    """

    operation: str
    api: str
    broker: int
    slot: str
    topic: str
    partition: int
    outcome: ProbeOutcome
    error: str
    """Kafka's name of the error, or the words of the client library; empty: none. An open set."""
    records: int
    base_offset: int
    sent_at_ns: int
    brokers: tuple[int, ...] = ()
    answer: str = ""
    acks: int = -1
    voter: int = -1

    def sentence(self) -> str:
        where = f" for {at(self)}" if self.topic and self.partition >= 0 else ""
        end = {"answered": "was answered", "refused": f"was refused with {self.error}"}
        return (
            f"a {self.api} sent to {self.slot}{where} "
            f"{end.get(self.outcome, f'ended: {self.outcome}')}"
        )

    def client_operations(self) -> Sequence[Operation]:
        """A refusal counts as an answer, since it is the result that a probe asks for. Without an
        answer the outcome is unknown."""
        open_ = self.outcome in ("closed", "timeout")
        outcome = OperationOutcome.UNKNOWN if open_ else OperationOutcome.OK
        return (Operation(self.operation, self.api, self.slot, outcome, self.error),)

    def answered_by(self) -> tuple[str, int] | None:
        """The node, unless it closed the connection or said nothing."""
        return (self.slot, self.sent_at_ns) if self.outcome in ("answered", "refused") else None

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class AdminCompleted(Struct, frozen=True, gc=False, tag="client.admin_completed", kw_only=True):
    """An administrative call ended: ok, failed or unknown. `subject` is the topic it was about.

    `api` is the command: create_topic, delete_topic, list_topics, describe_cluster, reassign,
    list_reassignments, elect_preferred, alter_settings, delete_broker, add_brokers or rebalance.
    The subject of those about brokers are their ids; `details` is what a listing found.
    """

    operation: str
    api: str
    subject: str
    outcome: CallOutcome
    error: str
    """Kafka's name of the error, or the words of the client library; empty: none. An open set."""
    details: tuple[str, ...] = ()
    reason: str = ""
    """What the broker, or the library, said about the error beyond its name; empty: nothing."""

    def sentence(self) -> str:
        why = f"{because(self.error, ', ')}{because(self.reason)}"
        return f"{self.api} {self.subject}: {self.outcome}{why}"

    def client_operations(self) -> Sequence[Operation]:
        return (
            Operation(
                self.operation, self.api, self.subject, OperationOutcome(self.outcome), self.error
            ),
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)
