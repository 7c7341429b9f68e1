"""Phrases that sentences about events share."""

from __future__ import annotations

from collections.abc import Sequence


def numbers(values: Sequence[int]) -> str:
    """`1, 2 and 3`; `none` for none."""
    texts = [str(value) for value in values]
    if not texts:
        return "none"
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def span(ns: int) -> str:
    """A time: `12 ms`, `5.2 s`."""
    return f"{ns / 1e9:.1f} s" if ns >= 1_000_000_000 else f"{ns // 1_000_000} ms"


def because(text: str, joint: str = ": ") -> str:
    """A colon and the text; nothing for no text."""
    return f"{joint}{text}" if text else ""
