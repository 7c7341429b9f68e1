"""Two observers read the metadata log, each as quickly as it can. What the slower one repeats
changes no verdict of Kafka's own rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random  # noqa: TID251 - each case has a seed

import pytest
from msgspec import Struct

from fencepost import NodeStarted
from fencepost.plugins.manager import load
from fencepost.testing import HistoryBuilder, Outcome, judge
from fencepost_clusters.apache_kafka.rules.promises import RULES
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    MetadataCommitted,
    PartitionCommitted,
    TopicCommitted,
)

ONE, TWO = "clients/observer#1", "clients/observer-2#1"
BROKERS = (1, 2, 3)
Log = list[tuple[Struct, ...]]
"""The events about each record, in the order of the log."""


def drawn(random: Random, length: int = 80) -> Log:
    """Brokers are fenced, unfenced and unregistered, two names of topics are used again and again,
    and partitions change their leaders; now and then against a promise."""
    log: Log = []
    alive: dict[str, str] = {}
    """topic -> its id."""
    begun: set[str] = set()
    """The ids of topics that have a record of their partition: the first one is of epoch 0."""

    def add(body: Struct, kind: str) -> None:
        offset = len(log)
        log.append((MetadataCommitted(offset=offset, epoch=1, kind=kind, digest=""), body))

    def moved(topic: str, leader: int, isr: tuple[int, ...]) -> None:
        epoch = len(log) if alive[topic] in begun else 0
        begun.add(alive[topic])
        body = PartitionCommitted(
            offset=len(log), topic=topic, partition=0, leader=leader, leader_epoch=epoch,
            isr=isr, replicas=BROKERS,
        )  # fmt: skip
        add(body, "PartitionRecord")

    for _ in range(length):
        broker = random.choice(BROKERS)
        if random.randrange(4) == 0 and "orders" in alive:
            # Its leaderships are moved, as a controller does before it fences a broker.
            moved("orders", broker, BROKERS)
            moved("orders", random.choice(BROKERS), BROKERS)
        offset = len(log)
        topic = random.choice(("orders", "audit"))
        match random.randrange(6):
            case 0:
                add(BrokerDeleted(offset=offset, broker_id=broker), "UnregisterBrokerRecord")
            case 1 | 2:
                fenced = bool(random.randrange(2))
                body = BrokerCommitted(
                    offset=offset, broker_id=broker, broker_epoch=broker, fenced=fenced,
                    incarnation="x",
                )  # fmt: skip
                add(body, "BrokerRegistrationChangeRecord")
            case 3 if topic in alive:
                topic_id = alive.pop(topic)
                gone = TopicCommitted(offset=offset, topic=topic, topic_id=topic_id, deleted=True)
                add(gone, "RemoveTopicRecord")
            case 3:
                alive[topic] = f"id-{offset}"
                add(
                    TopicCommitted(
                        offset=offset, topic=topic, topic_id=f"id-{offset}", deleted=False
                    ),
                    "TopicRecord",
                )
            case _ if topic in alive:
                leader = random.choice((-1, *BROKERS))
                isr = tuple(sorted(random.sample(BROKERS, random.randint(1, 3))))
                moved(topic, leader, isr)
    return log


def spoken(log: Log, order: Sequence[str]) -> HistoryBuilder:
    """Each observer tells the log from its beginning, its next record at each turn of it."""
    h = HistoryBuilder()
    for number in BROKERS:
        h.add(f"broker-{number}#1", NodeStarted(role="broker", node_id=number, incarnation="x"))
    read = {ONE: 0, TWO: 0}
    for process in order:
        for body in log[read[process]]:
            h.add(process, body)
        read[process] += 1
    return h


def verdicts(h: HistoryBuilder) -> Mapping[str, tuple[Outcome, int, int]]:
    clauses = load().clauses
    found = judge(h.after(60_000).events(), RULES, clauses, h.end(), "kraft").verdicts
    return {name: (one.verdict, one.violated, one.exercised) for name, one in found.items()}


@pytest.mark.parametrize("seed", range(40))
def test_what_a_second_observer_repeats_changes_no_verdict(seed: int) -> None:
    random = Random(seed)
    log = drawn(random)
    both = [ONE] * len(log) + [TWO] * len(log)
    random.shuffle(both)
    alone = verdicts(spoken(log, [ONE] * len(log)))
    assert verdicts(spoken(log, both)) == alone
    assert verdicts(spoken(log, [ONE] * len(log) + [TWO] * len(log))) == alone


def test_the_drawn_logs_keep_and_break_promises() -> None:
    seen: set[tuple[str, Outcome]] = set()
    for seed in range(40):
        log = drawn(Random(seed))
        alone = verdicts(spoken(log, [ONE] * len(log)))
        seen |= {(name, outcome) for name, (outcome, _, _) in alone.items()}
    assert {("KR-22", Outcome.VIOLATED), ("KR-29", Outcome.VIOLATED)} <= seen
    assert {("KR-33", Outcome.VIOLATED), ("KR-33", Outcome.HOLDS)} <= seen
