"""Who is in the quorum, and where: what a node is configured with, and what it learns.

Every answer to a fetch of the metadata log names the voters and their addresses (Kafka's
NodeEndpoints, version 16). A broker needs one good address of controller.connect to begin with
(QC-05); from then on it follows what it learned, whatever it was configured with (QC-29).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost import QuorumLearned
from fencepost_clusters.reference.core.effects import Address, Outbox, Protections
from fencepost_clusters.reference.wire import messages as m

Voters = Mapping[int, Address]


def known(voters: Voters) -> tuple[int, ...]:
    """The ids that are real, in order."""
    return tuple(sorted(node for node in voters if node >= 0))


class Electorate:
    """The voters as one node knows them: `voters` is always the same mapping, kept up to date."""

    def __init__(
        self,
        configured: Voters,
        bootstrap: tuple[Address, ...],
        protections: Protections,
        out: Outbox,
    ) -> None:
        """A controller is configured with voters; a broker with `bootstrap` addresses, whose ids it
        does not know: until it has learnt them they stand under ids that no node has."""
        self.voters = dict(configured)
        self._bootstrap = bootstrap
        self._protections = protections
        self._out = out
        if bootstrap:
            self.voters = {-2 - number: address for number, address in enumerate(bootstrap)}
        else:
            self._tell()

    def endpoints(self) -> tuple[m.NodeEndpoint, ...]:
        """The voters as an answer names them."""
        return tuple(m.NodeEndpoint(node, *self.voters[node]) for node in known(self.voters))

    def learn(self, told: Iterable[m.NodeEndpoint]) -> None:
        """A broker takes in whom an answer names; a controller is told by its own log."""
        if not self._bootstrap:
            return
        found = {one.node_id: (one.host, one.port) for one in told}
        if not self._protections.holds("follow-learned-voters"):
            found = {node: a for node, a in found.items() if a in self._bootstrap}
        if found and found != self.voters:
            self._replace(found)

    def _replace(self, found: Voters) -> None:
        self.voters.clear()
        self.voters.update(found)
        self._tell()

    def _tell(self) -> None:
        ids = known(self.voters)
        endpoints = tuple(_text(self.voters[node]) for node in ids)
        given = tuple(_text(address) for address in self._bootstrap)
        self._out.note(QuorumLearned(ids, endpoints, given))


def _text(address: Address) -> str:
    return "{}:{}".format(*address)
