"""The histories by which Jepsen tests its analyses of Kafka, judged by our rules.

They are those of `jepsen/test/jepsen/tests/kafka_test.clj` that need no transaction: each message
is a write of its own. What rests on transactions that commit as a whole is left out: atomic lost
writes, G0, G1c, precommitted reads, and inconsistent offsets that a read of another key shows.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from tests.suites.clients.small_histories import finally_read, steps, violated


class Row(NamedTuple):
    """A history, and the anomaly that Jepsen asserts; `no` before it: that it is not there. Then
    what our rules find: in the history as it is, and once all that polls showed is read again."""

    name: str
    words: str
    jepsen: str
    as_written: str
    finally_read: str
    differs: str = ""
    """Why Jepsen says something else."""


_SKIPS = (
    "0 polls a@1 b@2; 1 polls c@3; {first}0 polls d@4; {second}2 sends f; 2 acks f@6; 0 polls g@7; "
    "3 sends a b c d g; 3 loses a b c d g"
)
_TURNED = "0 sends a b c d; 0 acks a b c d; 0 polls a@1 b@2 c@3; {between}0 polls b@2 c@3 d@4"
_SENT = "0 sends c d; 0 acks c@3 d@4; 0 sends a b; 0 acks a@1 b@2"
_SIX = "0 sends a b c d e f; 0 acks a@0 b@1 c@2 d@3 e@4 f@5; 1 polls a@0; 1 polls b@1 c@2"
ROWS = (
    Row(
        "two acknowledged at one offset",
        "0 sends a; 0 acks a@537; 1 sends b; 1 acks b@537",
        "inconsistent-offsets",
        "inconsistent-offsets nonmonotonic-send",
        "inconsistent-offsets nonmonotonic-send unseen",
    ),
    Row(
        "an unknown send conflicts with nothing",
        "0 sends a; 0 loses a; 1 sends b; 1 acks b@0",
        "no inconsistent-offsets",
        "",
        "unseen",
    ),
    Row(
        "a failed send is read",
        "0 sends a; 0 fails a; 1 polls a@0",
        "aborted-read",
        "aborted-read",
        "aborted-read",
    ),
    Row(
        "acknowledged below what was read",
        "0 sends a; 0 acks a@0; 0 sends b d; 0 acks b@1 d@3; 1 sends c; 1 loses c; 0 polls c@2",
        "lost-write",
        "nonmonotonic-send",
        "lost-write nonmonotonic-send unseen",
    ),
    Row(
        "overwritten",
        "0 sends a; 0 acks a@0; 0 sends b c; 0 acks b@0 c@2; 0 polls b@0 c@2",
        "lost-write",
        "inconsistent-offsets nonmonotonic-send",
        "inconsistent-offsets lost-write nonmonotonic-send",
    ),
    Row(
        "skipped",
        _SKIPS.format(first="", second=""),
        "poll-skip",
        "G1c-realtime",
        "G1c-realtime lost-write nonmonotonic-send poll-skip",
    ),
    Row(
        "skipped after it was given up",
        _SKIPS.format(first="0 goes to@-1; ", second="0 goes to@-1; "),
        "no poll-skip",
        "G1c-realtime",
        "G1c-realtime lost-write nonmonotonic-send",
    ),
    Row(
        "read again after a rewind",
        "0 sends a b c; 0 acks a@0 b@1 c@2; 1 polls a@0; 1 polls b@1 c@2; 1 goes to@1; "
        "1 polls b@1 c@2",
        "no poll-skip",
        "",
        "",
    ),
    Row(
        "not rewound after an abort",
        _SIX + "; 1 goes to@1; 1 polls d@3 e@4; 1 goes to@1; 1 polls f@5",
        "poll-skip",
        "",
        "poll-skip",
    ),
    Row(
        "read twice",
        _TURNED.format(between=""),
        "nonmonotonic-poll",
        "nonmonotonic-poll",
        "nonmonotonic-poll",
    ),
    Row(
        "read twice since it was given up",
        _TURNED.format(between="0 goes to@-1; "),
        "no nonmonotonic-poll",
        "",
        "",
    ),
    Row(
        "a later send lies before",
        _SENT,
        "nonmonotonic-send",
        "nonmonotonic-send",
        "nonmonotonic-send unseen",
    ),
    Row(
        "a later send lies before, after another subscription",
        _SENT.replace("; 0 sends a", "; 0 goes to@-1; 0 sends a"),
        "no nonmonotonic-send",
        "nonmonotonic-send",
        "nonmonotonic-send unseen",
        differs="Jepsen forgets what a process has sent once it subscribes to something else",
    ),
    Row(
        "skipped within a poll",
        "1 sends a b d; 1 loses a b d; 0 polls a@1 d@4; 2 polls b@2",
        "poll-skip",
        "poll-skip",
        "poll-skip",
    ),
    Row(
        "skipped between polls",
        "1 sends a b d; 1 loses a b d; 0 polls a@1; 0 polls d@4; 2 polls b@2",
        "poll-skip",
        "poll-skip",
        "poll-skip",
    ),
    Row(
        "back within a poll",
        "0 sends a b c; 0 loses a b c; 0 polls c@3 a@1",
        "nonmonotonic-poll",
        "nonmonotonic-poll",
        "nonmonotonic-poll",
    ),
    Row(
        "the same again",
        "0 sends a b c; 0 loses a b c; 0 polls b@2 c@3; 0 polls c@3",
        "nonmonotonic-poll",
        "nonmonotonic-poll",
        "nonmonotonic-poll",
    ),
    Row(
        "pipelined sends out of order",
        "0 sends c a; 0 acks c@3 a@1",
        "nonmonotonic-send",
        "nonmonotonic-send",
        "nonmonotonic-send unseen",
    ),
    Row(
        "unknown sends out of order, as a poll shows",
        "0 sends d b; 0 loses d b; 1 sends c; 1 loses c; 2 polls b@2 c@3 d@4",
        "nonmonotonic-send",
        "nonmonotonic-send",
        "nonmonotonic-send",
    ),
    Row(
        "at two offsets",
        "0 sends a; 0 acks a@1; 1 sends b; 1 loses b; 2 polls b@2 a@3",
        "duplicate",
        "duplicate",
        "duplicate lost-write",
    ),
    Row(
        "all at the same two offsets",
        "; ".join(f"0 sends {one}; 0 acks {one}@0; 1 polls {one}@1" for one in "abcd"),
        "duplicate",
        "G1c-realtime duplicate inconsistent-offsets nonmonotonic-poll nonmonotonic-send",
        "G1c-realtime duplicate inconsistent-offsets lost-write nonmonotonic-poll "
        "nonmonotonic-send",
    ),
    Row(
        "at two offsets, beside a failed send",
        "0 sends a; 0 acks a@1; 0 sends b; 0 fails b; 1 polls a@11 b@12",
        "duplicate",
        "aborted-read duplicate",
        "aborted-read duplicate lost-write",
    ),
    Row(
        "nothing happens",
        "0 goes to@-1",
        "no anomaly",
        "",
        "",
    ),
    Row(
        "two never read",
        "0 sends a b; 0 acks a@0 b@1",
        "unseen",
        "",
        "unseen",
    ),
    Row(
        "one never read",
        "0 sends a b; 0 acks a@0 b@1; 0 polls a@0",
        "unseen",
        "",
        "unseen",
    ),
    Row(
        "all read",
        "0 sends a b; 0 acks a@0 b@1; 0 polls a@0; 0 polls b@1",
        "no anomaly",
        "",
        "",
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_our_rules_find_these_anomalies_in_jepsens_histories(row: Row) -> None:
    history = steps(row.words)
    assert violated(history) == set(row.as_written.split())
    assert violated(finally_read(history)) == set(row.finally_read.split())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_our_rules_and_jepsen_differ_only_for_a_reason(row: Row) -> None:
    anomaly = row.jepsen.removeprefix("no ")
    found = anomaly in {*row.as_written.split(), *row.finally_read.split()}
    assert (found is row.jepsen.startswith("no ")) is bool(row.differs)
