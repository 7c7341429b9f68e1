"""Messages with their contents, as a check of a user's reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from fencepost_kafka.events import MessagesRead


class Message(NamedTuple):
    """A message of a topic; `key` and `value` are text, None where it has none."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None


def messages_of(bodies: Iterable[Struct]) -> tuple[Message, ...]:
    """The messages that these events tell of, by partitions and offsets."""
    found = [
        Message(
            one.topic,
            one.partition,
            offset,
            None if offset in one.keyless else key,
            None if offset in one.tombstones else value,
        )
        for one in bodies
        if isinstance(one, MessagesRead)
        for offset, key, value in zip(one.offsets, one.keys, one.values, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: one[:3]))
