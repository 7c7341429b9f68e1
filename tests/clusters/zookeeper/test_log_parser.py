"""The log parser, pinned by lines that ZooKeeper 3.9.5 printed and the events that they make.

A sample, `samples/VERSION-NAME.log`, holds lines of one process's log; beside it, `.events` holds
what the parser makes of them, one event a line, read by a person when it was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from fencepost import ParsedEvent
from fencepost_clusters.zookeeper import log_parser
from fencepost_clusters.zookeeper.events import KINDS
from fencepost_clusters.zookeeper.log_parser import ServerLogParser, wall_clock_ns

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.log"))


def parsed(sample: Path) -> Sequence[ParsedEvent]:
    """The events of the log of a process of the server with the id 202."""
    parser = ServerLogParser(202)
    return [event for line in sample.read_text().splitlines() for event in parser.parse(line)]


def shown(event: ParsedEvent) -> str:
    return f"{event.at_ns} {msgspec.json.encode(event.body).decode()}"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_recorded_log_makes_these_events(sample: Path) -> None:
    made = [shown(one) for one in parsed(sample)]
    assert made == sample.with_suffix(".events").read_text().splitlines()


def test_every_row_has_a_sample() -> None:
    lines = [line for sample in SAMPLES for line in sample.read_text().splitlines()]
    read = [found for line in lines if (found := log_parser._LINE.match(line))]
    for row in log_parser._ROWS:
        assert any(
            one["logger"].endswith(row.logger) and row.message.match(one["message"].rstrip())
            for one in read
        ), row


def test_every_kind_of_event_is_made_by_a_sample() -> None:
    made = {type(one.body) for sample in SAMPLES for one in parsed(sample)}
    assert made >= {*KINDS}


@pytest.mark.parametrize("line", ["", "\tat java.base/java.lang.Thread.run", "2026", "7 8 9 10"])
def test_a_line_that_is_no_event_makes_none(line: str) -> None:
    assert ServerLogParser(202).parse(line) == ()


def test_a_stamp_has_its_time_zone() -> None:
    assert wall_clock_ns("1970-01-01T00:00:01.001Z") == 1_001_000_000
    assert wall_clock_ns("1970-01-01T02:00:01.001+02:00") == 1_001_000_000
