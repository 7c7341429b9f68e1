"""A consumer without a group: it reads its partitions from an offset on and commits nothing.

See docs/decisions/49-log-truncation.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from fencepost import ClientFailed
from fencepost_kafka.clients.commands import BEGINNING, ConsumerOptions, Seek
from fencepost_kafka.confluent.session import SLICE_S, Session, named
from fencepost_kafka.events import ConsumerPositioned, MessagesRead, Polled

BATCH = 500
OPERATION_HEADER = "fencepost-op"
"""The header by which a program of a user's names the operation of a message."""


def make_consumer(
    session: Session, settings: Iterable[tuple[str, str]], user: str = ""
) -> Consumer:
    """A consumer for assignments; librdkafka requires a group's name nevertheless."""
    own: dict[str, object] = {
        "group.id": session.config.process,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # An offset out of range must be an error, not be replaced silently.
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 200,
        "fetch.error.backoff.ms": 100,
        "isolation.level": "read_uncommitted",
    }
    return Consumer(session.settings(own, settings, user))


def record_contents(session: Session, messages: Sequence[Message]) -> None:
    """One event for each partition of a batch, with keys and values."""
    for (topic, partition), several in by_partition(messages).items():
        session.recorder.record(
            MessagesRead(
                topic=topic,
                partition=partition,
                offsets=tuple(map(offset_of, several)),
                keys=tuple(text_of(message.key()) for message in several),
                values=tuple(text_of(message.value()) for message in several),
                keyless=tuple(offset_of(m) for m in several if m.key() is None),
                tombstones=tuple(offset_of(m) for m in several if m.value() is None),
            )
        )


def text_of(data: bytes | str | None) -> str:
    """Bytes as text; one that is no UTF-8 is shown as an escape."""
    if data is None:
        return ""
    return data if isinstance(data, str) else data.decode(errors="backslashreplace")


def by_partition(messages: Sequence[Message]) -> Mapping[tuple[str, int], list[Message]]:
    """The messages of a batch by their partitions, in their order."""
    found: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        found.setdefault(partition_of(message), []).append(message)
    return found


def record_polled(session: Session, messages: Sequence[Message], final_reading: bool) -> None:
    """One event for each partition of a batch, in the order its messages came."""
    for (topic, partition), several in by_partition(messages).items():
        offsets = tuple(offset_of(message) for message in several)
        operations = tuple(map(operation_of, several))
        session.recorder.record(
            Polled(
                topic=topic,
                partition=partition,
                offsets=offsets,
                operations=operations,
                final=final_reading,
            )
        )


def partition_of(message: Message) -> tuple[str, int]:
    """The partition that a message came from; every polled message has one."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def offset_of(message: Message) -> int:
    """The offset of a polled message."""
    offset = message.offset()
    assert offset is not None
    return offset


def operation_of(message: Message) -> str:
    """The operation that a message is: its header `fencepost-op`, or else the head of its
    payload."""
    named = dict(message.headers() or ()).get(OPERATION_HEADER)
    return operation_in(message.value()) if named is None else text_of(named)


def operation_in(value: bytes | str | None) -> str:
    """The operation id at the head of a payload; a payload of another client is shown as it is."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else value.decode(errors="replace")
    return text.split(" ", 1)[0]


def broker_in(said: str) -> int:
    """The id of the broker that librdkafka names at the end of an error (-1: it names none)."""
    found = re.search(r"\(broker (\d+)\)$", said)
    return int(found[1]) if found else -1


def truncation_in(said: str) -> bool:
    """Whether librdkafka itself reports that the log was truncated, by comparing its position with
    the end of an epoch that a broker named (KIP-320). No broker has refused the position then, and
    the report may be wrong: an answer may have been compared with a position that is newer than
    its question."""
    return said.startswith("Partition log truncation detected at")


@final
class ConsumerWork:
    """One consumer's work, until it is asked to stop."""

    def __init__(self, session: Session, options: ConsumerOptions) -> None:
        self._session = session
        self._options = options
        self._consumer = make_consumer(session, options.settings.items(), options.user)
        self._last_error = ""
        self._next: dict[tuple[str, int], int] = {}
        """The offset at which each partition is read on."""

    def run(self) -> None:
        """Polls, and carries out `Seek` commands, until it is asked to stop."""
        start = [TopicPartition(t, p, self._options.offset) for t, p in self._options.partitions]
        for place in start:
            self._record_position(place.topic, place.partition, place.offset)
        self._consumer.assign(start)
        while not self._session.stopping.is_set():
            for command in self._session.pending():
                if isinstance(command, Seek):
                    self._seek(command.topic, command.partition, command.offset)
            messages = self._consumer.consume(BATCH, SLICE_S)
            came = [message for message in messages if message.error() is None]
            record_polled(self._session, came, False)
            for message in came:
                self._next[partition_of(message)] = offset_of(message) + 1
            for message in messages:
                error = message.error()
                if error is not None:
                    self._failed(message, error)
        self._consumer.close()

    def _record_position(self, topic: str, partition: int, offset: int) -> None:
        self._next[topic, partition] = offset
        place = ConsumerPositioned(topic=topic, partition=partition, offset=offset)
        self._session.recorder.record(place)

    def _begin_anew(self, topic: str, partition: int, error: KafkaError) -> None:
        """After a broker refused the consumer's offset as out of range."""
        self._next[topic, partition] = BEGINNING
        self._session.recorder.record(
            ConsumerPositioned(
                topic=topic,
                partition=partition,
                offset=BEGINNING,
                out_of_range=True,
                refused_by=broker_in(error.str()),
            )
        )
        self._move(topic, partition, BEGINNING)

    def _seek(self, topic: str, partition: int, offset: int) -> None:
        self._record_position(topic, partition, offset)
        self._move(topic, partition, offset)

    def _move(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.incremental_unassign([TopicPartition(topic, partition)])
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])

    def _failed(self, message: Message, error: KafkaError) -> None:
        said = named(error)
        if said != self._last_error:
            self._session.recorder.record(ClientFailed(error=said, fatal=False))
            self._last_error = said
        if error.code() != KafkaError._AUTO_OFFSET_RESET:
            return
        place = partition_of(message)
        if truncation_in(error.str()):
            self._move(*place, self._next[place])  # if it is gone, the broker refuses it
        else:
            self._begin_anew(*place, error)
