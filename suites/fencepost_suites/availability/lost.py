"""The partitions that clients need not be able to write to or read, since their messages were lost
with the disks.

These forfeits are fewer than those of the rules about messages. A second process that took an id,
and has named the incarnation that was registered, has another disk: what the first one had may be
missed. But a partition that it leads can be written to and read, and to be forfeited excuses a
partition until its topic is deleted. So whoever names an incarnation is believed to be the broker.
Nor does a leader's word count that a member has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from msgspec import Struct

from fencepost import Event, Reason
from fencepost_kafka import FollowerFetched
from fencepost_kafka.committed import TopicPartition
from fencepost_kafka.judging.forfeits import Forfeits


@final
class LostToClients:
    """Those partitions, each with the reason."""

    kinds: ClassVar[frozenset[type[Struct]]] = Forfeits.kinds - {FollowerFetched}

    def __init__(self) -> None:
        self._forfeits = Forfeits()
        self.gone: Mapping[TopicPartition, Reason] = self._forfeits.gone

    def take(self, event: Event, body: Any) -> None:
        """Applies an event."""
        self._forfeits.apply(body)
