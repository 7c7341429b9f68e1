"""The codec by which the tests of KIP-631's messages write and read bytes, against bytes by
hand."""

from __future__ import annotations

import pytest

from fencepost_suites.quorum.wire_format import (
    CLIENT,
    HeartbeatAnswer,
    controller_heartbeat,
    header,
    read_controller_answer,
    read_heartbeat_answer,
    text,
    unsigned,
    varint,
)


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\1"),
        (300, b"\xac\2"),
        (16_384, b"\x80\x80\1"),
    ],
)
def test_a_varint_has_seven_bits_a_byte_and_the_lowest_first(number: int, data: bytes) -> None:
    assert unsigned(number) == data
    assert varint(b"!" + data + b"!", 1) == (number, 1 + len(data))


def test_a_compact_string_has_its_length_and_one_first() -> None:
    assert text("ab") == b"\3ab"


def test_only_a_flexible_header_ends_with_its_tagged_fields() -> None:
    head = b"\0\x32\0\0\0\0\0\7\0" + bytes([len(CLIENT)]) + CLIENT
    assert header(50, 0) == head + b"\0"
    assert header(50, 0, flexible=False) == head


def test_a_controller_heartbeat_has_an_id_and_an_offset() -> None:
    assert controller_heartbeat(2, 5) == header(51, 0) + b"\0\0\0\2\0\0\0\0\0\0\0\5\0"


TAGS = b"\2\1\1a\5\2bc"
"""Two tagged fields: number 1 of one byte, and number 5 of two bytes."""


@pytest.mark.parametrize("tags", [b"\0", TAGS])
@pytest.mark.parametrize("rest", [b"", b"?"])
def test_an_answer_may_have_tagged_fields(tags: bytes, rest: bytes) -> None:
    to_controller = b"\0\0\0\7\0\0\0\0\0\0\x29\1" + tags + rest
    assert read_controller_answer(to_controller) == (41, True, len(rest))
    to_broker = (
        b"\0\0\0\7" b"\0" b"\0\0\0\0" b"\0\0" b"\0\0\0\x65" b"\3"
        b"\0\0\0\0\0\0\0\4" b"\0\0\0\0\0\0\0\x09"
    ) + tags + rest  # fmt: skip
    assert read_heartbeat_answer(to_broker) == HeartbeatAnswer(
        error=0,
        active_controller=101,
        next_state=3,
        broker_epoch=4,
        lease_end_ms=9,
        left=len(rest),
    )
