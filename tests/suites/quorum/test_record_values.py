"""The codec by which the tests of QC-10 read the metadata records in the answer to a fetch."""

from __future__ import annotations

import struct

import pytest

from fencepost_suites.quorum.wire_format import record_values

ANSWER = b"\7" * 40
"""What comes before the batches in the answer; the codec does not read it."""


def record(value: bytes, key: int) -> bytes:
    """A record with a null key (-1) or an empty one (0); all its numbers are below 64."""
    fields = b"\0\0\0" + bytes([1 if key < 0 else 0, 2 * len(value)]) + value + b"\0"
    return bytes([2 * len(fields)]) + fields


def batch(base: int, *records: bytes, control: bool = False, magic: int = 2) -> bytes:
    head = struct.pack(">ibIhiqqqhii", 1, magic, 0, 0x20 if control else 0, 0, 0, 0, -1, -1, -1, 0)
    body = head[:-4] + struct.pack(">i", len(records)) + b"".join(records)
    return struct.pack(">qi", base, len(body)) + body


def test_the_records_of_every_batch_are_read() -> None:
    frame = ANSWER + batch(0, record(b"aa", -1), record(b"b", 0)) + batch(2, record(b"c", -1))
    assert record_values(frame) == [(True, b"aa"), (False, b"b"), (True, b"c")]


def test_a_control_batch_holds_no_metadata() -> None:
    frame = ANSWER + batch(0, record(b"aa", -1), control=True) + batch(1, record(b"b", -1))
    assert record_values(frame) == [(True, b"b")]


@pytest.mark.parametrize("cut", [1, 5, 20, 70])
def test_a_batch_that_is_cut_short_is_not_read(cut: int) -> None:
    frame = ANSWER + batch(0, record(b"aa", -1)) + batch(1, record(b"bbbbbb", -1))
    assert record_values(frame[:-cut]) == [(True, b"aa")]


def test_what_comes_after_the_batches_is_not_read() -> None:
    frame = ANSWER + batch(0, record(b"aa", -1)) + batch(1, record(b"b", -1), magic=0)
    assert record_values(frame) == [(True, b"aa")]


def test_an_answer_without_a_batch_has_no_records() -> None:
    assert record_values(ANSWER * 3) == []


@pytest.mark.parametrize("before", [b"", b"\7" * 40, b"\7" * 20 + b"\2" * 20, b"\0" * 40])
def test_the_first_batch_is_found_whatever_comes_before_it(before: bytes) -> None:
    assert record_values(before + batch(0, record(b"aa", -1))) == [(True, b"aa")]


def test_an_empty_batch_comes_before_the_others() -> None:
    frame = ANSWER + batch(0) + batch(1, record(b"aa", -1))
    assert record_values(frame) == [(True, b"aa")]


def test_a_key_comes_before_the_value() -> None:
    fields = b"\0\0\0" + b"\4kk" + b"\2v" + b"\0"
    keyed = bytes([2 * len(fields)]) + fields
    frame = ANSWER + batch(0, keyed, record(b"b", -1))
    assert record_values(frame) == [(False, b"v"), (True, b"b")]
