"""The contents of znodes as JSON.

Any process may write to ZooKeeper, so invalid content raises BadZnode, whose message is one
sentence.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class BadZnode(ValueError):
    """A znode has invalid content."""


class _Versioned(Struct):
    version: int


def format_of(data: bytes) -> int | None:
    """The format that a znode's content says it has; None if it says none."""
    try:
        return msgspec.json.decode(data, type=_Versioned).version
    except msgspec.MsgspecError:
        return None


def encode(content: Struct) -> bytes:
    """Encodes a znode's content."""
    return msgspec.json.encode(content)


def decode(path: str, data: bytes, kind: type[T]) -> T:
    """Decodes a znode's content; raises BadZnode."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise BadZnode(f"{path} has no valid {kind.__name__}: {error}") from None
