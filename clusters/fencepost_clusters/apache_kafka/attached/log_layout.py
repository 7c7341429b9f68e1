"""Kafka's own log layout, `[2026-11-30 09:05:13,422] INFO message (logger)`, as the log parser's.

`fencepost_clusters.apache_kafka.log_parser` reads lines of a layout that Fencepost gives its own
nodes, with nanoseconds of the run's clock. A node of somebody else's logs in local time or in UTC,
by milliseconds, and an exception follows its line over many lines. Each line is put into the other
layout, and its events get times of the wall clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import final

from fencepost import ParsedEvent, Slot
from fencepost_clusters.apache_kafka.log_lines import LogPattern
from fencepost_clusters.apache_kafka.log_memory import Configured
from fencepost_clusters.apache_kafka.log_parser import TABLE, KafkaLogParser

LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3})\] ([A-Z]+) (.*) \(([\w.$]+)\)\s*")
SHOWN = frozenset(
    {
        "BrokerLifecycleManager",
        "KafkaRaftClient",
        "LeaderState",
        "LogManager",
        "LoggingFaultHandler",
        "LoggingSignalHandler",
        "ProcessTerminatingFaultHandler",
        "QuorumController",
        "QuorumState",
    }
)
"""The loggers whose lines a node prints at INFO from its start on. Of the others a node of somebody
else's prints a part, or nothing, and half a story would deceive the rules."""
ROWS: Sequence[LogPattern] = tuple(one for one in TABLE if one.logger in SHOWN)


@final
class OwnLayoutParser:
    """The log parser of one process of an attached node; see the module."""

    def __init__(self, slot: Slot, configured: Configured, *, utc: bool) -> None:
        """`utc`: the node stamps its lines in UTC, and not in this machine's local time."""
        self._parser = KafkaLogParser(slot, configured, table=ROWS)
        self._utc = utc

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """See `LogParser.parse`."""
        said = LINE.fullmatch(line)
        if said is None:
            return ()
        stamp, level, message, logger = said.groups()
        at_ns = self._wall_ns(stamp.replace(",", "."))
        found = self._parser.parse(f"@{at_ns} {level} {logger} {message}")
        return [replace(one, wall=True) for one in found]

    def _wall_ns(self, stamp: str) -> int:
        told = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f")
        # Without a zone, a time is taken for this machine's local one.
        at = told.replace(tzinfo=UTC) if self._utc else told.astimezone()
        return round(at.timestamp() * 1_000) * 1_000_000
