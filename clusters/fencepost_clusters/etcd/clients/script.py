"""The steps of a client's script, and helpers of all scripts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import final

from msgspec import Struct

from fencepost_clusters.etcd.clients.messages import NoReply, Request, Response


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to the member in a slot; the script is sent the answer.

    `past_links`: to the member's own address, without a link, so that no fault affects it.
    """

    slot: str
    request: Request
    limit_ms: int
    past_links: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Record an event, now."""

    body: Struct


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass. A client that was asked to stop ends here."""

    ms: float


Step = Send | Record | Wait
Script = Generator[Step, Response | None, None]


def ask(send: Send) -> Generator[Step, Response | None, Response]:
    """Sends a request and returns the answer; for `yield from`."""
    answer = yield send
    return NoReply("no answer was sent to the script") if answer is None else answer


def draw(process: str, number: int, sides: int) -> int:
    """A pseudo-random number below `sides`, derived from names, so that it is the same in every
    run."""
    return int.from_bytes(sha256(f"{process}:{number}".encode()).digest()[:8], "big") % sides


def lease_id(run: str, process: str, number: int) -> int:
    """An id for a lease: positive, of 63 bits, never 0."""
    digest = sha256(f"{run}/{process}/{number}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 1) | 1


@final
class Members:
    """The member that a client asks: the same one until an operation does not succeed."""

    def __init__(self, slots: Sequence[str]) -> None:
        self._slots = tuple(slots)
        self._at = 0

    @property
    def now(self) -> str:
        """The slot of the member to ask."""
        return self._slots[self._at % len(self._slots)]

    def move_on(self) -> None:
        """Asks the next member from now on."""
        self._at += 1
