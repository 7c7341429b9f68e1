"""The steps of a client's script, and what scripts have in common."""

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

    `past_links`: to the member's own address, as no part of the traffic that faults affect.
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
    """Let time pass. A client that is to stop ends here."""

    ms: float


Step = Send | Record | Wait
Script = Generator[Step, Response | None, None]


def ask(send: Send) -> Generator[Step, Response | None, Response]:
    """Sends a request and returns the answer; for `yield from`."""
    answer = yield send
    return NoReply("no answer was sent to the script") if answer is None else answer


def draw(process: str, number: int, sides: int) -> int:
    """A number below `sides`, the same one in every run: chance derives from names."""
    return int.from_bytes(sha256(f"{process}:{number}".encode()).digest()[:8], "big") % sides


def lease_id(run: str, process: str, number: int) -> int:
    """An id for a lease, positive and of 63 bits, as etcd takes them; never 0."""
    digest = sha256(f"{run}/{process}/{number}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 1) | 1


@final
class Members:
    """Which member a client asks: the same one, until an operation did not end well."""

    def __init__(self, slots: Sequence[str]) -> None:
        self._slots = tuple(slots)
        self._at = 0

    @property
    def now(self) -> str:
        """The slot of the member to ask."""
        return self._slots[self._at % len(self._slots)]

    def move_on(self) -> None:
        """Asks the next member from now on; the same one where there is only one."""
        self._at += 1
