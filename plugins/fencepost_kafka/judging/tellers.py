"""Whose word that a topic is deleted counts.

Where controllers keep the metadata, a record that a broker tells counts once a controller, an
observer or another slot tells it, too: else a leader that has lost all could say that the topic is
gone. The answer to whoever asked for a deletion is a client's to tell, and no node's.
"""

from __future__ import annotations

from typing import final

from fencepost import ProcessSpawned, slot_of
from fencepost_kafka.events import TopicCommitted
from fencepost_kafka.vocabulary import Role


@final
class Tellers:
    """Who has told which deletion."""

    def __init__(self) -> None:
        self._roles: dict[str, str] = {}
        """slot -> the role of its processes."""
        self._told_by: dict[tuple[str, int], set[str]] = {}
        """topic, and the offset of a deletion -> the slots of the brokers that told it."""

    def spawned(self, body: ProcessSpawned) -> None:
        """The harness has started a process."""
        self._roles[body.slot] = body.role

    def is_node(self, process: str) -> bool:
        """Whether a process is a broker or a controller."""
        return self._roles.get(slot_of(process), "") in (Role.BROKER, Role.CONTROLLER)

    def counts(self, process: str, body: TopicCommitted) -> bool:
        """Whether a record that a process tells counts from now on."""
        slot = slot_of(process)
        by_broker = self._roles.get(slot, "") == Role.BROKER
        if not body.deleted or not by_broker or Role.CONTROLLER not in self._roles.values():
            return True
        tellers = self._told_by.setdefault((body.topic, body.offset), set())
        tellers.add(slot)
        return len(tellers) > 1
