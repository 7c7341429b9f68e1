"""Phrases that sentences about events share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fencepost.events.names import slot_of

_BETWEEN = (("sources", "targets", " -> "), ("left", "right", " | "))
"""The arguments of a fault that stand on two sides of something, and what is between them."""


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


def fault_in_words(fault: str, arguments: str, targets: Sequence[str]) -> str:
    """What a fault does: `isolate redis-3`, `cut broker-1 -> broker-2`, `partition a, b | c`,
    `slow_link a -> b (latency_ms 900)`. `arguments` are its own, as a JSON object; where they are
    not known, its targets stand for them."""
    given = _object(arguments)
    struck: list[str] = []
    for one, other, between in _BETWEEN:
        if one in given and other in given:
            struck.append(f"{_listed(given.pop(one))}{between}{_listed(given.pop(other))}")
    slots = {slot_of(target) for target in targets}
    named = [key for key, value in given.items() if slots.issuperset(_texts(value))]
    struck += [_listed(given.pop(key)) for key in named]
    how = ", ".join(f"{key} {_listed(value)}" for key, value in given.items() if value)
    what = " ".join(struck) or ("" if given else ", ".join(targets))
    return f"{fault}{because(what, ' ')}{because(f'({how})' if how else '', ' ')}"


def fault_began(words: str, fault_id: str, receipt: bool, evidence: str) -> str:
    """That a fault that does this began; with its receipt, or why it has none."""
    proof = evidence if receipt else f"without a receipt ({evidence})"
    return f"{words} began ({fault_id}): {proof}"


def _object(text: str) -> dict[str, Any]:
    """A JSON object; empty if the text is none, as in a history that was damaged."""
    try:
        found: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> Sequence[object]:
    """The parts of an argument that may be names; None stands for what is none."""
    if isinstance(value, list):
        return value or [None]
    return [None] if isinstance(value, Mapping) else [value]


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
