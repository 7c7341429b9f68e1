"""The result of one probe, as a test sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fencepost import Event
from fencepost_kafka.events import ProbeCompleted


@final
@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The answer of one node to one probe."""

    event: Event
    body: ProbeCompleted

    @property
    def answered(self) -> bool:
        """The node did what was asked."""
        return self.body.outcome == "answered"

    @property
    def refused(self) -> bool:
        """The node answered with an error, or closed the connection."""
        return self.body.outcome in ("refused", "closed")

    @property
    def error(self) -> str:
        """Kafka's name of the error, or that of the connection's end."""
        return self.body.error

    @property
    def answer(self) -> bytes:
        """The frame that came back, if bytes were sent, or the page; empty for none."""
        return bytes.fromhex(self.body.answer)

    @property
    def records(self) -> int:
        """The messages in the answer to a fetch."""
        return self.body.records

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ids of the brokers that a Metadata answer names."""
        return self.body.brokers
