"""The keys of events: plain functions, so that rules can share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Event, Finding

Keys = tuple[tuple[str | int, ...], ...]
RUN: Keys = ((),)
NOTHING: Sequence[Finding] = ()


def whole_run(event: Event) -> Keys:
    """One key for all."""
    return RUN


def by_term(event: Event) -> Keys:
    """The term of an election."""
    body: Any = event.body
    return ((body.term,),)


def by_register(event: Event) -> Keys:
    """The key that an operation is on."""
    body: Any = event.body
    return ((body.key,),)


def by_lock(event: Event) -> Keys:
    """The lock."""
    body: Any = event.body
    return ((body.lock,),)


def by_store(event: Event) -> Keys:
    """The store."""
    body: Any = event.body
    return ((body.store,),)
