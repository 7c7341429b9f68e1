"""The committed metadata that rules keep: the newest record of each partition and broker.

Every node replays the same records, and replays some again after a restart. The first event about a
record counts, by its offset. The offset also distinguishes a topic from an earlier one of the same
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from msgspec import Struct, field
from msgspec.structs import replace

from fencepost_kafka.events import (
    BrokerCommitted,
    BrokerDeclared,
    BrokerDeleted,
    BrokersListed,
    PartitionCommitted,
    TopicCommitted,
)

TopicPartition = tuple[str, int]


def begins(record: PartitionCommitted) -> bool:
    """Whether the first record of a partition that is known may be the one that makes it: a later
    one that names a leader is of a later epoch."""
    return record.leader_epoch == 0 and not record.skipped


def eligible_leaders(before: PartitionCommitted) -> set[int]:
    """The brokers that have everything that was committed before the next record: the ISR, and the
    replicas that are eligible beside it.

    A record may still call a broker eligible that a reassignment has taken from the replicas, as
    Kafka's do. It has deleted its log, and no controller elects it.
    """
    return {*before.isr, *{*before.eligible}.intersection(before.replicas)}


def leader_joins(before: PartitionCommitted, record: PartitionCommitted) -> bool:
    """Whether a record may store a change of the ISR that the leader asked for, and make one of the
    new members the leader.

    Kafka does so if that leader cannot go on leading, as in a controlled shutdown. The leader asked
    after it had seen the new members catch up, so the record keeps the rest of the ISR, except
    replicas that a reassignment removes. The record alone does not tell this from an unclean
    election: whether the leader was live, and has asked, is for other events to say.
    """
    # `staying` may be empty: a reassignment can remove the whole former ISR. Then a replica that it
    # adds may lead; and any of the new ones by the record that ends it, for which the leader has
    # seen them all catch up, an old replica among them.
    staying = {*before.isr} - {*before.removing}
    ends = {*record.replicas} == {*before.replicas} - {*before.removing} and not record.removing
    grown = {*record.isr}
    if not staying and not (before.removing and ends):
        grown &= {*before.adding}
    return before.leader >= 0 and staying <= grown and record.leader in grown


@final
class Partitions(Struct):
    """The partitions of live topics as their newest records have them."""

    newest: dict[TopicPartition, PartitionCommitted] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    """topic -> offset of the newest record that deleted it."""

    def take(self, body: PartitionCommitted) -> tuple[bool, PartitionCommitted | None]:
        """Applies a record. Returns whether it is newer than the known one, and the record that it
        replaced, if that is known."""
        known = self.newest.get((body.topic, body.partition))
        # Every node that replays the log reports each record, so most of them come more than once.
        if known is not None and known.offset >= body.offset:
            return False, known
        if body.offset <= self.deleted.get(body.topic, -1):
            return False, None
        self.newest[body.topic, body.partition] = body
        # After records that were skipped, the known one is not the one that was replaced.
        return True, None if body.skipped else known

    def forget(self, body: TopicCommitted) -> tuple[TopicPartition, ...]:
        """Applies a deletion; returns the partitions that it removed."""
        if not body.deleted or body.offset <= self.deleted.get(body.topic, -1):
            return ()
        self.deleted[body.topic] = body.offset
        gone = tuple(
            place
            for place, one in self.newest.items()
            if place[0] == body.topic and one.offset < body.offset
        )
        for place in gone:
            del self.newest[place]
        return gone

    def led_by(self, broker: int) -> Iterator[TopicPartition]:
        """The partitions that a broker leads."""
        return (place for place, one in self.newest.items() if one.leader == broker)


BrokerNews = BrokerCommitted | BrokerDeclared
"""The events that decide whether a broker is in the cluster: a record, or a declaration of the
controller over ZooKeeper."""
BROKER_NEWS = (BrokerCommitted, BrokerDeclared)


def is_fenced(body: BrokerNews) -> bool:
    """Whether the broker is out of the cluster from now on."""
    if isinstance(body, BrokerCommitted):
        return body.fenced
    return body.new not in ("Active", "Stopping")


class KnownBroker(Struct, frozen=True):
    """A broker by its newest record or declaration; `position` orders these."""

    position: tuple[int, int]
    fenced: bool


@final
class Brokers(Struct):
    """The brokers by their newest records and declarations."""

    newest: dict[int, KnownBroker] = field(default_factory=dict)
    deleted: dict[int, int] = field(default_factory=dict)
    """broker -> offset of the newest record that deleted it: an older one, which a node replays
    again, says nothing new."""
    declared: int = 0
    """How many declarations of controllers there were: each is newer than those before it."""
    controller_epoch: int = -1
    """The newest controller that has declared anything. It declares every broker that it finds as
    its term begins, so that one which it does not name is out."""
    records: dict[int, dict[int, bool | None]] = field(default_factory=dict)
    """broker -> offset of a record -> whether the broker is fenced from then on; None: deleted."""

    def take(self, body: BrokerNews) -> tuple[bool, KnownBroker | None]:
        """Applies a record or declaration. Returns whether it is newer than the known one, and the
        state known before."""
        known = self.newest.get(body.broker_id)
        if isinstance(body, BrokerCommitted):
            position = (body.offset, 0)
            self.records.setdefault(body.broker_id, {})[body.offset] = body.fenced
        else:
            self.declared += 1
            position = (body.controller_epoch, self.declared)
            # This comes before the comparison: what the former term declared must not outlive it.
            self._term(body.controller_epoch)
        gone = isinstance(body, BrokerCommitted) and body.offset < self.deleted.get(
            body.broker_id, -1
        )
        if gone or (known is not None and known.position >= position):
            return False, known
        self.newest[body.broker_id] = KnownBroker(position, is_fenced(body))
        return True, known

    def _term(self, controller_epoch: int) -> None:
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            for broker, known in self.newest.items():
                self.newest[broker] = replace(known, fenced=True)

    def forget(self, body: BrokerDeleted) -> bool:
        """Applies a deletion; returns whether it removed a registration."""
        known = self.newest.get(body.broker_id)
        # The record is kept even if the registration is newer: `at` asks about earlier offsets,
        # too.
        self.records.setdefault(body.broker_id, {})[body.offset] = None
        self.deleted[body.broker_id] = max(body.offset, self.deleted.get(body.broker_id, -1))
        # A registration that follows the deletion stays, though the deletion is read later.
        if known is None or known.position >= (body.offset, 0):
            return False
        del self.newest[body.broker_id]
        return True

    def listed(self, body: BrokersListed) -> None:
        """Applies a whole list of live brokers: any other known one is fenced."""
        position = (body.offset, 0)
        for broker, known in self.newest.items():
            if broker in body.live:
                continue
            self.records.setdefault(broker, {})[body.offset] = True
            if known.position < position:
                self.newest[broker] = KnownBroker(position, fenced=True)

    def at(self, offset: int) -> Mapping[int, bool]:
        """The brokers that were registered at this offset, and whether each was fenced. A process
        may read a record after one that is newer, so the order of events does not tell. A
        declaration has no offset: the newest counts."""
        found: dict[int, bool] = {}
        for broker in self.newest.keys() | self.records.keys():
            records = self.records.get(broker)
            if records is None:
                found[broker] = self.newest[broker].fenced
                continue
            newest = max((one for one in records if one <= offset), default=None)
            fenced = None if newest is None else records[newest]
            if fenced is not None:
                found[broker] = fenced
        return found

    def live(self) -> tuple[int, ...]:
        """The brokers that are not fenced, sorted."""
        return tuple(sorted(b for b, one in self.newest.items() if not one.fenced))

    def fenced(self, broker: int) -> bool:
        """Whether a broker is fenced or not registered."""
        known = self.newest.get(broker)
        return known is None or known.fenced
