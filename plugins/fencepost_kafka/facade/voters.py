"""The voters of the quorum: they are added and removed one at a time, by asking any broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from fencepost import MS, Layout, Runtime, Violation, let_pass_until
from fencepost_kafka.clients.commands import AddVoter, RemoveVoter
from fencepost_kafka.events import ProbeCompleted
from fencepost_kafka.facade.cluster import KafkaCluster
from fencepost_kafka.facade.node import KafkaNode
from fencepost_kafka.vocabulary import Role

LIMIT_MS = 15_000
AGAIN_MS = 200
_MADE_ALREADY = ("DUPLICATE_VOTER", "VOTER_NOT_FOUND")


@final
@dataclass(frozen=True, slots=True)
class VoterChange:
    """One controller to add, at the port of its listener, or one to remove (port 0)."""

    node: KafkaNode
    port: int = 0

    def command(self, operation: str, broker: KafkaNode) -> AddVoter | RemoveVoter:
        """The command to a probe that asks a broker for it."""
        if not self.port:
            return RemoveVoter(
                operation=operation, slot=broker.name, broker=broker.id, node=self.node.id
            )
        return AddVoter(
            operation=operation,
            slot=broker.name,
            broker=broker.id,
            node=self.node.id,
            host=self.node.name,
            port=self.port,
        )


def controller_port(layout: Layout, node: KafkaNode) -> int:
    """The port of a controller's listener: the one that controllers dial."""
    controllers = {slot.name for slot in layout.of(Role.CONTROLLER)} - {node.name}
    return next(
        link.port
        for link in layout.links
        if link.target == node.name and link.source in controllers
    )


@final
class Voters:
    """The voters of the quorum. They are added and removed one at a time, by asking any broker."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: KafkaCluster,
        ask: Callable[[VoterChange, KafkaNode], ProbeCompleted],
    ) -> None:
        """`ask` sends one change to one broker, and returns its answer."""
        self._runtime = runtime
        self._cluster = cluster
        self._ask = ask

    def add(self, node: KafkaNode) -> None:
        """Makes a started controller a voter, once it has caught up.

        Raises Violation if the cluster does not accept it in time.
        """
        self._cluster.eventually(node.caught_up)
        self._make(VoterChange(node, controller_port(self._runtime.layout, node)))

    def remove(self, node: KafkaNode) -> None:
        """Removes a controller from the voters, whether it runs or not; raises as `add` does."""
        self._make(VoterChange(node))

    def _make(self, change: VoterChange) -> None:
        """Asks one broker after another; a change that was made already counts as made.

        The limit counts from the first answer, since the probe may have to be started first.
        """
        deadline_ns: int | None = None
        asked = 0
        while True:
            brokers = self._cluster.brokers
            answer = self._ask(change, brokers[asked % len(brokers)])
            if answer.outcome == "answered" or answer.error in _MADE_ALREADY:
                return
            if deadline_ns is None:
                deadline_ns = self._runtime.now_ns() + LIMIT_MS * MS
            if self._runtime.now_ns() > deadline_ns:
                raise Violation(
                    f"{answer.api} of {change.node} ended: {answer.error or answer.outcome}"
                )
            asked += 1
            again_ns = self._runtime.now_ns() + AGAIN_MS * MS
            let_pass_until(self._runtime, again_ns)
