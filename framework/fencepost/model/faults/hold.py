"""Holds of single messages in a link: which messages are chosen, what happens to them, and the
counts.

A message is what a link's source sends behind a length of four bytes, big-endian (`Layout.framed`).
The framework knows only its bytes; the fault that chooses messages knows what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fencepost.model.errors import UsageError
from fencepost.model.system.topology import Link

HoldAction = Literal["hold", "delay", "drop"]
"""What is done with a chosen message: it is kept until the release, delayed, or lost."""

INSPECTED_BYTES = 64 * 1024
"""How many bytes of a message are searched for `containing`."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Which messages of a link are chosen, and what happens to them.

    A message matches if it begins with one of `prefixes` and, unless `containing` is empty, one of
    these byte strings is in its first 64 KiB. Of those that match, over all connections of the
    link, the `first` (0: all) after `skip` are chosen. Each is held until it is released, delayed
    by `delay_ms`, or dropped. Later messages of its connection wait too, unless `overtake` is true.
    If its connection ends, a held message is kept, and delivered over a new connection on release.
    If `outlives` is false, it is dropped instead.
    """

    prefixes: tuple[bytes, ...]
    containing: tuple[bytes, ...] = ()
    skip: int = 0
    first: int = 1
    action: HoldAction = "hold"
    delay_ms: int = 0
    overtake: bool = False
    outlives: bool = True

    def matches(self, message: bytes) -> bool:
        """Whether a message, without its length, is one of those that are counted."""
        # As much as the toxic keeps of a message that it has to decide on, so both choose alike.
        inspected = message[:INSPECTED_BYTES]
        return message.startswith(self.prefixes) and (
            not self.containing or any(part in inspected for part in self.containing)
        )

    def chooses(self, number: int) -> bool:
        """Whether the `number`th message that matched, counted from 1, is chosen."""
        # With `skip` 1 and `first` 1, the second message is chosen, and none after it.
        return number > self.skip and (not self.first or number <= self.skip + self.first)


@dataclass(frozen=True, slots=True)
class HoldCounts:
    """Counts of a link's messages since its hold began: the evidence for the hold.

    `taken` are the chosen messages. Each is now `held` in an open connection, an orphan that
    outlived its connection, released over its own connection, redelivered over a new one, dropped,
    or lost because it could not be redelivered. `answered` of the redelivered had an answer.
    """

    seen: int = 0
    matched: int = 0
    taken: int = 0
    held: int = 0
    orphans: int = 0
    released: int = 0
    redelivered: int = 0
    answered: int = 0
    dropped: int = 0
    lost: int = 0
    unframed: int = 0
    """Connections whose bytes are not messages; they passed."""
    last_error: str = ""

    def __add__(self, other: HoldCounts) -> HoldCounts:
        return HoldCounts(
            seen=self.seen + other.seen,
            matched=self.matched + other.matched,
            taken=self.taken + other.taken,
            held=self.held + other.held,
            orphans=self.orphans + other.orphans,
            released=self.released + other.released,
            redelivered=self.redelivered + other.redelivered,
            answered=self.answered + other.answered,
            dropped=self.dropped + other.dropped,
            lost=self.lost + other.lost,
            unframed=self.unframed + other.unframed,
            last_error=self.last_error or other.last_error,
        )

    @property
    def waiting(self) -> int:
        """How many messages wait for a release."""
        return self.held + self.orphans

    def __str__(self) -> str:
        """`7 messages seen, 2 matched, 1 taken: 1 held`."""
        fates = {
            "held": self.held,
            "kept after their connection had ended": self.orphans,
            "released": self.released,
            "redelivered over a new connection": self.redelivered,
            "dropped": self.dropped,
            "lost": self.lost,
        }
        counted = ", ".join(f"{number} {fate}" for fate, number in fates.items() if number)
        several = "" if self.seen == 1 else "s"
        return (
            f"{self.seen} message{several} seen, {self.matched} matched, {self.taken} taken"
            + (f": {counted}" if counted else "")
            + (f"; {self.unframed} connections without messages" if self.unframed else "")
            + (f"; {self.last_error}" if self.last_error else "")
        )


def check_hold(link: Link, framed: bool, active: bool) -> None:
    """Raises UsageError for a link that carries no framed messages, or that holds already."""
    if not framed:
        raise UsageError(f"{link} holds nothing: the system's links carry no framed messages")
    if active:
        raise UsageError(f"{link} holds messages already")
