"""What follows from messages that are lost: their leaders', followers', disks' and clients' sides.

A finding that lets a leader lack what was acknowledged begins it. The others truncate to its log,
so each of them affects as much as it drops.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost import Facts, Follows, Numbers, Wake
from fencepost_kafka import LogTruncated


def number(name: str) -> Callable[[Facts], Numbers]:
    """The one number of a fact."""
    return span(name, name)


def span(low: str, high: str) -> Callable[[Facts], Numbers]:
    """The numbers from one fact to another; to the first one if there is no other."""

    def numbers(facts: Facts) -> Numbers:
        first = facts.get(low)
        last = facts.get(high, first)
        return (first, last) if isinstance(first, int) and isinstance(last, int) else None

    return numbers


def lacked(facts: Facts) -> Numbers:
    """The offsets that a leader, or a member of the ISR, lacks: from the end of its log on."""
    ends, last = facts.get("ends"), facts.get("offset", facts.get("high_watermark"))
    if isinstance(ends, tuple) and ends and isinstance(ends[0], int) and isinstance(last, int):
        return ends[0], last
    return span("log_end", "committed" if "committed" in facts else "acknowledged")(facts)


def _dropped(body: LogTruncated) -> Numbers:
    return body.to_offset, body.from_log_end - 1


def _refused(facts: Facts) -> bool:
    """A broker refused a consumer's offset as out of range."""
    return "broker" in facts or "former" in facts


def one_disk(facts: Facts) -> bool:
    """A disk lacks what was committed; no two of them differ."""
    return "other" not in facts


LOST_MESSAGES = Wake(
    scope="partition",
    numbers=lacked,
    spreads={LogTruncated: _dropped},
    follows=(
        Follows("RP-06", lacked),
        Follows("RP-13", lacked),
        Follows("RP-15", span("offset", "high_watermark")),
        Follows("RP-05", number("committed"), of=one_disk),
        Follows("RP-27", span("high_watermark", "reported")),
        Follows("RP-07", lacked),
        Follows("JEPSEN-inconsistent-offsets", span("offset", "last_offset")),
        Follows("JEPSEN-lost-write", span("offset", "last_offset")),
        Follows("JEPSEN-unseen", span("offset", "last_offset")),
        Follows("JEPSEN-nonmonotonic-poll", number("other_offset"), of=_refused),
        Follows("JEPSEN-nonmonotonic-send", span("offset", "other_offset")),
        Follows("JEPSEN-G1c-realtime", span("offset", "other_offset")),
    ),
)
