"""The voters and their addresses, as a node is configured with them and as it learns them.

Every answer to a fetch of the metadata log names the voters and their addresses (Kafka's
NodeEndpoints, version 16). A broker needs one good address of controller.connect to begin with
(QC-05); from then on it uses the learned voters instead of the configured addresses (QC-29).

The voters change one at a time, by a ConfigRecord of the whole cluster. A controller uses the
newest such record in its log, committed or not, as Raft requires. The next change may be requested
once that record is committed.

See docs/decisions/47-voters.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeGuard

from fencepost_clusters.reference.core.node.effects import Address
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.quorum.raft.metadata_log import MetadataLog
from fencepost_clusters.reference.core.quorum.raft.policies import RaftPolicies
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_kafka import QuorumLearned

Voters = Mapping[int, Address]
WHOLE_CLUSTER: Final = 4
"""Kafka's resource type of a broker; without a name, of all of them."""
VOTERS_SETTING = "controller.quorum.voters"


def known(voters: Voters) -> tuple[int, ...]:
    """The known ids, in order; placeholders for addresses without an id are left out."""
    return tuple(sorted(node for node in voters if node >= 0))


def any_known(voters: Voters) -> bool:
    """Whether the id of any of them is known."""
    return any(node >= 0 for node in voters)


def is_voters(record: r.Record) -> TypeGuard[r.ConfigRecord]:
    """Whether a record names the voters."""
    return (
        isinstance(record, r.ConfigRecord)
        and record.resource_type == WHOLE_CLUSTER
        and record.name == VOTERS_SETTING
    )


def voters_record(voters: Voters) -> r.ConfigRecord:
    """The record that makes these the voters, in the notation of controller.connect."""
    text = ",".join(f"{node}@{_text(voters[node])}" for node in known(voters))
    return r.ConfigRecord(
        resource_type=WHOLE_CLUSTER, resource_name="", name=VOTERS_SETTING, value=text
    )


def parse(text: str) -> dict[int, Address]:
    """The voters that such a record names."""
    voters: dict[int, Address] = {}
    for entry in text.split(","):
        node, _, address = entry.partition("@")
        host, _, port = address.rpartition(":")
        voters[int(node)] = (host, int(port))
    return voters


class Electorate:
    """The voters as one node knows them: `voters` is always the same mapping, kept up to date."""

    def __init__(
        self,
        configured: Voters,
        bootstrap: tuple[Address, ...],
        policies: RaftPolicies,
        out: Outbox,
    ) -> None:
        """A controller is configured with voters, a broker with `bootstrap` addresses without ids.
        Until it learns the ids, placeholders that no node has as its id stand for them."""
        self.voters = dict(configured)
        # The voters by the log, each with the offset of its record. The first entry is the
        # configuration, which is never removed: a truncation may take every record away.
        self._history: list[tuple[int, Voters]] = [(-1, dict(configured))]
        # Controllers that another controller's answer named. They give addresses only: who votes is
        # decided by this controller's own log.
        self._others: dict[int, Address] = {}
        self._endpoints: tuple[m.NodeEndpoint, ...] | None = None
        """What `endpoints` has found last; None if that has to be found again."""
        self._learned: tuple[m.NodeEndpoint, ...] = ()
        """The controllers that the last answer named."""
        self._bootstrap = bootstrap
        self._policies = policies
        self._out = out
        if bootstrap:
            # From -2 on: -1 stands for no controller.
            self.voters = {-2 - number: address for number, address in enumerate(bootstrap)}
        else:
            self._note_voters()

    @property
    def changed_at(self) -> int:
        """The offset of the record that names the voters; -1 if they are the configured ones."""
        return self._history[-1][0]

    def address(self, node: int | None) -> Address | None:
        """The address of a controller, from the voters or from another controller's answer."""
        return None if node is None else self.voters.get(node) or self._others.get(node)

    def is_known(self, node: int) -> bool:
        """Whether a controller is a voter in this log or in another controller's answer."""
        return node in self.voters or node in self._others

    def take(self, records: Iterable[r.Record], base: int) -> None:
        """Applies records that were appended from `base` on."""
        for offset, record in enumerate(records, base):
            if is_voters(record):
                self._history.append((offset, parse(record.value)))
        self._by_history()

    def follow(self, log: MetadataLog) -> None:
        """Applies a whole log, snapshot first, in place of earlier records."""
        # A truncation may drop the record of the voters in force, and the one before it counts
        # again. So the history is made anew rather than cut.
        del self._history[1:]
        if log.snapshot is not None:
            for _, data in record_batch.split(log.snapshot.data):
                for value in record_batch.values(data):
                    record = r.decode(value)
                    if is_voters(record):
                        # A snapshot keeps no offsets of its records. Everything in it is committed,
                        # so any offset below the log serves for `changed_at`.
                        self._history.append((log.start - 1, parse(record.value)))
        for batch in log.batches(log.start, log.end):
            for offset, record in enumerate(batch.records, batch.base):
                if is_voters(record):
                    self._history.append((offset, parse(record.value)))
        self._by_history()

    def _by_history(self) -> None:
        newest = self._history[-1][1]
        # A broker takes the voters from answers, which reach it also while its log is behind.
        if not self._bootstrap and newest != self.voters:
            self._replace(newest)

    def endpoints(self) -> tuple[m.NodeEndpoint, ...]:
        """The voters as an answer names them."""
        if self._endpoints is None:
            found = ((node, *self.voters[node]) for node in known(self.voters))
            self._endpoints = tuple(
                m.NodeEndpoint(node_id=n, host=host, port=port) for n, host, port in found
            )
        return self._endpoints

    def learn(self, endpoints: tuple[m.NodeEndpoint, ...]) -> None:
        """Learns the controllers that an answer names; a controller uses its own log instead."""
        if endpoints == self._learned:
            return
        self._learned = endpoints
        found = {one.node_id: (one.host, one.port) for one in endpoints}
        if not self._bootstrap:
            self._others.update(found)
            return
        followed = self._policies.voters_to_follow(found, self._bootstrap)
        if followed and followed != self.voters:
            self._replace(followed)

    def _replace(self, found: Voters) -> None:
        # The mapping itself stays, since Raft and its serving side hold it.
        self.voters.clear()
        self.voters.update(found)
        self._endpoints = None
        self._note_voters()

    def _note_voters(self) -> None:
        ids = known(self.voters)
        endpoints = tuple(_text(self.voters[node]) for node in ids)
        given = tuple(_text(address) for address in self._bootstrap)
        self._out.note(QuorumLearned(voters=ids, endpoints=endpoints, bootstrap=given))


def _text(address: Address) -> str:
    return "{}:{}".format(*address)
