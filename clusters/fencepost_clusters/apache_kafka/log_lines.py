"""A row of a table from a node's log lines to events, and what all rows share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from re import Match, Pattern

from msgspec import Struct

from fencepost_clusters.apache_kafka.log_memory import Memory

Bodies = Iterator[Struct]
MakeEvents = Callable[[Memory, Match[str]], Bodies]

PLACE = r"(?P<topic>\S+)-(?P<partition>\d+)"
"""A partition, as Kafka names it."""


@dataclass(frozen=True, slots=True)
class LogPattern:
    """One kind of line: the end of its logger's name, its message, and the function that makes its
    events."""

    logger: str
    message: Pattern[str]
    make_events: MakeEvents


def row(logger: str, message: str, make_events: MakeEvents) -> LogPattern:
    """A kind of line; see `LogPattern`."""
    return LogPattern(logger, re.compile(message), make_events)


def ids(text: str) -> tuple[int, ...]:
    """The numbers between commas."""
    return tuple(int(word) for word in text.replace(" ", "").split(",") if word)
