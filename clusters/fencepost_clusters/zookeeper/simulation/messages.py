"""The messages between a client and a simulated server, as values.

Besides these, a server sends `Answered` and `Fired` as a client gets them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_clusters.zookeeper.client.port import Request


@dataclass(frozen=True, slots=True)
class Open:
    """A client's first message: session 0 asks for a new session, any other number resumes that
    session."""

    session: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The answer: the session, or 0 if the one to be resumed has ended."""

    session: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in the connection's session."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True)
class Ping:
    """A sign of life; also the message of the probe."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""


@dataclass(frozen=True, slots=True)
class Close:
    """The client ends the session; the server closes the connection."""
