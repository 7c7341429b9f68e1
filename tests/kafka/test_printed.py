"""The published form of what a program of the user's did, as events of Kafka's clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost import EvidenceMissed, UsageError
from fencepost.runtimes.process.app_output import AppOutput
from fencepost_kafka.clients.messages import Message, messages_of
from fencepost_kafka.clients.printed import parse
from fencepost_kafka.events import MessagesRead, Polled, ProduceCompleted, ProduceInvoked

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "billing" / "operations.ndjson"
BILL = {"op": "b-7", "topic": "bills", "partition": 0}


def test_the_lines_of_the_documentation_are_events_at_their_times() -> None:
    output = AppOutput("billing-1#1", "", parse, now_ns=lambda: 7)
    found = [one for line in EXAMPLE.read_text().splitlines() for one in output.parse(line)]
    assert [one.body for one in found] == [
        ProduceInvoked(operation="b-7", topic="bills", partition=0, acks=-1),
        ProduceCompleted(
            operation="b-7",
            topic="bills",
            partition=0,
            acks=-1,
            outcome="ok",
            offset=41,
            error="",
        ),
        Polled(topic="orders", partition=2, offsets=(5, 6), operations=("o-5", "o-6"), final=False),
    ]
    assert all(one.wall for one in found)
    assert [one.at_ns // 10**7 for one in found] == [176722560025, 176722560031, 176722560027]


@pytest.mark.parametrize(
    "wrong",
    [
        {"fencepost": "consumed", **BILL},
        {"fencepost": "produce", "op": "b-7", "topic": "bills"},
        {"fencepost": "produce", **BILL, "partition": -1},
        {"fencepost": "produce", **BILL, "acks": 2},
        {"fencepost": "produce", **BILL, "more": 1},
        {"fencepost": "produced", **BILL, "outcome": "good"},
        {"fencepost": "produced", **BILL, "outcome": "ok"},
        {"fencepost": "produced", **BILL, "partition": -1, "outcome": "ok", "offset": 1},
        {"fencepost": "polled", "topic": "o", "partition": 0, "offsets": [1, 2], "ops": ["a"]},
    ],
)
def test_another_form_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        parse(wrong)


def test_a_message_that_failed_before_it_had_a_partition_has_none() -> None:
    said = {"fencepost": "produced", **BILL, "partition": -1, "outcome": "failed"}
    (completed,) = parse(said)
    assert isinstance(completed, ProduceCompleted)
    assert (completed.partition, completed.outcome) == (-1, "failed")


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"fencepost": "produce", **BILL}),
        json.dumps({"fencepost": "produce", **BILL, "at": "now"}),
        json.dumps({"fencepost": "produce", **BILL, "at": 1767225600250}),
        json.dumps({"fencepost": "what", "at": 1767225600.5}),
        '{"fencepost": "produce", ',
        '{"fencepost": ' + "[" * 100_000,
        json.dumps({"fencepost": "produce", "more": "x" * 1_000_000}),
    ],
)
def test_what_is_not_understood_is_said_once_and_in_no_later_line(line: str) -> None:
    output = AppOutput("billing-1#1", "", parse, now_ns=lambda: 7)
    (missed,) = [one.body for one in output.parse(line)]
    assert isinstance(missed, EvidenceMissed)
    assert not output.parse(line)


@pytest.mark.parametrize("line", ["", "{", "[]", '{"other": "json"}', 'a "fencepost" in words'])
def test_any_other_line_is_the_program_s_own(line: str) -> None:
    assert not AppOutput("billing-1#1", "", parse, now_ns=lambda: 7).parse(line)


def test_messages_have_no_key_or_value_where_there_was_none() -> None:
    read = MessagesRead(
        topic="bills",
        partition=1,
        offsets=(4, 3),
        keys=("a", ""),
        values=("", "x"),
        keyless=(3,),
        tombstones=(4,),
    )
    assert messages_of([read]) == (
        Message("bills", 1, 3, None, "x"),
        Message("bills", 1, 4, "a", None),
    )
