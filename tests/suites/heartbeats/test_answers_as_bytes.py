"""The codec by which the tests of KIP-343's messages read answers, against bytes by hand."""

from __future__ import annotations

from fencepost_suites.heartbeats.wire_format import (
    HeartbeatAnswer,
    IsrChangeAnswer,
    read_heartbeat_answer,
    read_isr_change_answer,
)


def test_a_heartbeat_answer_has_an_error_a_nullable_string_and_a_state() -> None:
    head = b"\0\0\0\1"  # correlation
    assert read_heartbeat_answer(head + b"\0\0\xff\xff\2") == HeartbeatAnswer(0, None, 2, 0)
    assert read_heartbeat_answer(head + b"\0\x2a\0\0\1") == HeartbeatAnswer(42, "", 1, 0)
    assert read_heartbeat_answer(head + b"\0\x2a\0\2no\1!") == HeartbeatAnswer(42, "no", 1, 1)


def test_an_isr_change_answer_has_one_error_and_string_a_partition() -> None:
    frame = (
        b"\0\0\0\1"  # correlation
        b"\0\0\0\2ok"  # top-level error code and message
        b"\0\0\0\3"  # three results
        b"\0\0\xff\xff"  # NONE, no message
        b"\0\6\0\0"  # NOT_LEADER_OR_FOLLOWER, an empty message
        b"\0\x2a\0\3bad"  # INVALID_REQUEST
    )
    assert read_isr_change_answer(frame) == IsrChangeAnswer(0, (0, 6, 42), 0)
    assert read_isr_change_answer(frame + b"!") == IsrChangeAnswer(0, (0, 6, 42), 1)
