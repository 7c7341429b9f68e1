"""The log parser, pinned by lines that etcd 3.6.16 printed and the events they must make.

A sample, `samples/VERSION-NAME.log`, holds lines of one process's log; beside it, `.events` holds
what the parser makes of them, one event a line, read by a person when it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from fencepost import ParsedEvent
from fencepost_clusters.etcd import log_parser
from fencepost_clusters.etcd.events import (
    LOGGED,
    BecameFollower,
    BecameLeader,
    MemberStopping,
    StoppedLeading,
)
from fencepost_clusters.etcd.log_parser import MemberLogParser, duration_ms, wall_clock_ns

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.log"))


def parsed(lines: Iterable[str]) -> Sequence[ParsedEvent]:
    """The events of the log of a process of the second member."""
    parser = MemberLogParser(2)
    return [event for line in lines for event in parser.parse(line)]


def shown(event: ParsedEvent) -> str:
    return f"{event.at_ns} {msgspec.json.encode(event.body).decode()}"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_recorded_log_makes_these_events(sample: Path) -> None:
    made = parsed(sample.read_text().splitlines())
    assert [shown(one) for one in made] == sample.with_suffix(".events").read_text().splitlines()


def test_every_row_has_a_sample() -> None:
    lines = [
        msgspec.json.decode(line, type=log_parser.Line)
        for sample in SAMPLES
        for line in sample.read_text().splitlines()
        if line.startswith("{")
    ]
    for row in (*log_parser._RAFT, *log_parser._SERVER):
        assert any(row.message.match(line.msg) for line in lines), row.message.pattern


def test_every_kind_of_event_of_a_log_is_made_by_a_sample() -> None:
    made = {
        type(one.body).__name__
        for sample in SAMPLES
        for one in parsed(sample.read_text().splitlines())
    }
    assert {kind.__name__ for kind in LOGGED} | {"NodeStarted"} == made


@pytest.mark.parametrize("line", ["", "panic: out of range", "{", '{"level":"info"}', "[]", "7"])
def test_a_line_that_zap_did_not_print_makes_no_event(line: str) -> None:
    assert MemberLogParser(2).parse(line) == ()


def test_words_of_raft_in_another_line_make_no_event() -> None:
    line = '{"ts":"2026-11-22T09:00:00Z","msg":"a1 became leader at term 7"}'
    assert MemberLogParser(2).parse(line) == ()


def raft(message: str) -> str:
    return f'{{"ts":"2026-11-22T09:00:00Z","logger":"raft","msg":"{message}"}}'


def test_a_leader_that_lost_its_quorum_stops_leading_once() -> None:
    lines = (
        raft("a1 became leader at term 2"),
        raft("a1 stepped down to follower since quorum is not active"),
        raft("a1 became follower at term 2"),
    )
    assert [one.body for one in parsed(lines)] == [
        BecameLeader(member="a1", term=2),
        StoppedLeading(member="a1", term=2, reason="quorum-lost"),
        BecameFollower(member="a1", term=2),
    ]


def test_a_transfer_is_the_reason_of_one_end_of_leading_only() -> None:
    lines = (
        raft("a1 became leader at term 2"),
        '{"ts":"2026-11-22T09:00:00Z","msg":"leadership transfer starting"}',
        raft("a1 became follower at term 3"),
        raft("a1 became leader at term 4"),
        raft("a1 became follower at term 5"),
    )
    ends = [one.body for one in parsed(lines) if isinstance(one.body, StoppedLeading)]
    assert [(end.term, end.reason) for end in ends] == [(2, "transferred"), (4, "higher-term")]


def test_a_failure_makes_one_event_and_none_after_a_signal() -> None:
    stamp = '"ts":"2026-11-22T09:00:00Z"'
    failed = f'{{"level":"fatal",{stamp},"msg":"disk","error":"full"}}'
    signal = f'{{{stamp},"msg":"received signal; shutting down","signal":"terminated"}}'
    for lines, reason in (((failed, failed), "disk: full"), ((signal, failed), "terminated")):
        assert [one.body for one in parsed(lines)] == [MemberStopping(member="", reason=reason)]


def test_stamps_and_durations_are_read_exactly() -> None:
    assert wall_clock_ns("1970-01-01T00:00:01.000002Z") == 1_000_002_000
    assert wall_clock_ns("1970-01-01T02:00:00.000001+0200") == 1_000
    assert duration_ms("1m2.5s") == 62_500
    assert duration_ms("225.191652ms") == pytest.approx(225.19, abs=0.01)
