"""The client that watches an attached cluster: it asks the nodes, past all proxies, what they know.

Each look asks one node after the other, until one has the controllers' answer about the quorum,
and then that node for its metadata. What has changed since the last look is recorded. Only
partitions of topics of ours are recorded one by one: the user's are counted (`ClusterSeen`), so
that a run knows whether the cluster is whole, and touches none of them.

A look sees states, and not each change: two changes between two looks are one. The offset of what
it records is the high watermark of the metadata as the look began, so a later look is a later
record.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import final

from msgspec import Struct
from msgspec.structs import replace

from fencepost import OURS, SECOND, ClientStarted, Recorder, WorkerConfig, run_worker
from fencepost_clusters.apache_kafka.attached.asking import (
    Address,
    PartitionShown,
    Quorum,
    Shown,
    Unanswered,
    metadata_by,
    quorum_by,
)
from fencepost_kafka import KINDS, BrokerCommitted, ClusterSeen, PartitionCommitted, TopicCommitted
from fencepost_kafka.probe import kafka_probe

EVERY_S = 0.25
AT_LEAST_NS = SECOND
"""How often it is recorded at least that nothing has changed: a node that has just been started may
have been seen before it ended."""
ANSWER_S = 1.0
NAMED = 5
"""How many partitions of the user's are named that are not whole."""


class Options(Struct, frozen=True):
    """The worker's options: the nodes to ask, each with its id."""

    nodes: tuple[tuple[int, str, int], ...]


@final
class Looks:
    """What the looks so far have shown; pure."""

    def __init__(self, brokers: Sequence[int]) -> None:
        """`brokers` are those that the cluster should have."""
        self._brokers = tuple(brokers)
        self._offset = -1
        self._fenced: dict[int, bool] = {}
        self._topics: dict[str, str] = {}
        self._partitions: dict[tuple[str, int], PartitionShown] = {}
        self._seen: ClusterSeen | None = None

    def take(
        self, quorum: Quorum, shown: Shown, silent: Sequence[int], began_ns: int
    ) -> Iterator[Struct]:
        """The events of one look, which began then: what is not as the look before has shown it."""
        offset = max(quorum.high_watermark, self._offset + 1)
        for body in self._changes(offset, shown):
            self._offset = offset
            yield body
        short = [one for one in shown.partitions if set(one.isr) != set(one.replicas)]
        seen = ClusterSeen(
            began_ns=began_ns,
            controller=quorum.leader,
            controller_epoch=quorum.epoch,
            live=tuple(sorted(shown.brokers)),
            silent=tuple(sorted(silent)),
            leaderless=_named(one for one in shown.partitions if one.leader < 0),
            short=_named(short),
        )
        last = self._seen
        if (
            last is None
            or began_ns - last.began_ns >= AT_LEAST_NS
            or replace(last, began_ns=began_ns) != seen
        ):
            self._seen = seen
            yield seen

    def _changes(self, offset: int, shown: Shown) -> Iterator[Struct]:
        for broker in self._brokers:
            fenced = broker not in shown.brokers
            if self._fenced.get(broker) != fenced:
                self._fenced[broker] = fenced
                yield BrokerCommitted(
                    offset=offset, broker_id=broker, broker_epoch=-1, fenced=fenced, incarnation=""
                )
        topics = {name: one for name, one in shown.topics.items() if name.startswith(OURS)}
        for name, topic_id in self._topics.items():
            if topics.get(name) != topic_id:
                yield TopicCommitted(offset=offset, topic=name, topic_id=topic_id, deleted=True)
                for place in [one for one in self._partitions if one[0] == name]:
                    del self._partitions[place]
        for name, topic_id in topics.items():
            if self._topics.get(name) != topic_id:
                yield TopicCommitted(offset=offset, topic=name, topic_id=topic_id, deleted=False)
        self._topics = topics
        for one in shown.partitions:
            place = one.topic, one.partition
            known = self._partitions.get(place)
            # A node may answer from an older image than the one that was asked before it.
            older = known is not None and one.leader_epoch < known.leader_epoch
            if one.topic in topics and known != one and not older:
                self._partitions[place] = one
                yield PartitionCommitted(
                    offset=offset,
                    topic=one.topic,
                    partition=one.partition,
                    leader=one.leader,
                    leader_epoch=one.leader_epoch,
                    isr=one.isr,
                    replicas=one.replicas,
                    # What lies between two looks is not seen.
                    skipped=0 if known is None else max(0, one.leader_epoch - known.leader_epoch),
                )


def _named(partitions: Iterator[PartitionShown] | Sequence[PartitionShown]) -> tuple[str, ...]:
    names = [f"{one.topic}-{one.partition}" for one in partitions]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return (*names[:NAMED], *more)


def look(
    nodes: Sequence[tuple[int, str, int]], client: str, first: int
) -> tuple[int, Quorum, Shown] | None:
    """One look, which asks the nodes in turn from the `first` on: the place of the one that
    answered, and what it said; None if none did."""
    for step in range(len(nodes)):
        at = (first + step) % len(nodes)
        address: Address = nodes[at][1:]
        try:
            quorum = quorum_by(address, client)
            return at, quorum, metadata_by(address, client)
        except Unanswered:
            continue
    return None


def work(config: WorkerConfig, options: Options, recorder: Recorder) -> str:
    """Looks until it is asked to stop."""
    looks, at = Looks([one[0] for one in options.nodes]), 0
    with ThreadPoolExecutor(len(options.nodes)) as pool:
        while not _asked_to_stop(EVERY_S):
            began_ns = time.monotonic_ns()
            # Side by side: one that is paused would hold up the look by the whole limit.
            answers = pool.map(_answers, options.nodes)
            silent = [one[0] for one, came in zip(options.nodes, answers, strict=True) if not came]
            found = look([one for one in options.nodes if one[0] not in silent], config.process, at)
            if found is not None:
                at, quorum, shown = found
                for body in looks.take(quorum, shown, silent, began_ns):
                    recorder.record(body)
    return "stopped"


def _answers(node: tuple[int, str, int]) -> bool:
    return kafka_probe(node[1], node[2], ANSWER_S)


def _asked_to_stop(limit_s: float) -> bool:
    """Whether standard input has ended; waits for that at most this long."""
    ready, _, _ = select.select([0], [], [], limit_s)
    return bool(ready) and not os.read(0, 4096)


def main(argv: Sequence[str]) -> int:
    """See `run_worker`."""
    started = ClientStarted(kind="observer", library="kio")
    return run_worker(argv, Options, lambda _: started, work, KINDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
