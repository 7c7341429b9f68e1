"""The probe, which measures that a link answers: one question to a node, which changes nothing."""

from __future__ import annotations

from typing import Protocol


class Probe(Protocol):
    """Asks a system's node a question that changes nothing; returns whether its answer came in
    time.

    The question has at least `size` bytes (up to 32 000). A node that refuses, closes or is silent
    raises nothing.
    """

    def __call__(self, address: str, port: int, timeout_s: float, size: int = 0) -> bool:
        """Whether an answer of that node came within `timeout_s` seconds."""
        ...
