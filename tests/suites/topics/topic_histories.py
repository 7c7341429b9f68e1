"""Histories of a controller's metadata log, for the rules of topics."""

from __future__ import annotations

from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import BrokerCommitted, BrokerDeleted, PartitionCommitted, TopicCommitted
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
C1, B2 = "controller-1#1", "broker-2#1"
ALL3 = (1, 2, 3)


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


class Log:
    """A metadata log that one controller replays, record by record."""

    def __init__(self, live: tuple[int, ...] = ALL3, fenced: tuple[int, ...] = ()) -> None:
        self.h = HistoryBuilder()
        self.offset = 0
        for broker in live:
            self.broker(broker)
        for broker in fenced:
            self.broker(broker, fenced=True)

    def broker(self, broker: int, fenced: bool = False, offset: int | None = None) -> None:
        """A broker's record: the next one of the log, unless another offset is given."""
        self.offset += offset is None
        self.h.add(
            C1,
            BrokerCommitted(
                offset=self.offset if offset is None else offset,
                broker_id=broker,
                broker_epoch=self.offset,
                fenced=fenced,
                incarnation=f"u{broker}",
            ),
        )

    def partition(
        self,
        partition: int,
        replicas: tuple[int, ...],
        leader: int | None = None,
        epoch: int = 0,
        isr: tuple[int, ...] | None = None,
        adding: tuple[int, ...] = (),
        removing: tuple[int, ...] = (),
    ) -> None:
        self.offset += 1
        first = replicas[0] if leader is None else leader
        members = replicas if isr is None else isr
        self.h.add(
            C1,
            PartitionCommitted(
                offset=self.offset,
                topic="orders",
                partition=partition,
                leader=first,
                leader_epoch=epoch,
                isr=members,
                replicas=replicas,
                adding=adding,
                removing=removing,
            ),
        )

    def replicas(self, partition: int) -> tuple[int, ...]:
        """The replicas in the newest record of a partition."""
        bodies = [event.body for event in self.h.events()]
        records = [one for one in bodies if isinstance(one, PartitionCommitted)]
        return next(one.replicas for one in reversed(records) if one.partition == partition)

    def deleted_broker(self, broker: int) -> None:
        self.offset += 1
        self.h.add(C1, BrokerDeleted(offset=self.offset, broker_id=broker))

    def topic(self, deleted: bool, process: str = C1) -> None:
        self.offset += 1
        self.h.add(
            process,
            TopicCommitted(offset=self.offset, topic="orders", topic_id="t", deleted=deleted),
        )
