"""The bounds of integers: a column of a table has 64 bits."""

from __future__ import annotations

import msgspec

LEAST, MOST = -(1 << 63), (1 << 63) - 1
_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
_WIDE = b"0" * 19
"""What the text of an integer of more than 64 bits contains, once every digit is a 0. The search
of a regular expression would take longer than the rest of decoding."""


def check_width(text: bytes) -> None:
    """Raises msgspec.DecodeError for a JSON text with an integer of more than 64 bits."""
    # Nearly every line ends here. 19 digits in a row may also be part of a text or of a fraction,
    # so what has them is decoded and looked at.
    if _WIDE in text.translate(_DIGITS):
        _check(msgspec.json.decode(text))


def _check(value: object) -> None:
    if isinstance(value, int) and not LEAST <= value <= MOST:
        raise msgspec.ValidationError(f"an integer has {value.bit_length()} bits")
    if isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            _check(one)
