"""Makes events of the znodes of a Kafka cluster, for a client that watches them in a session of its
own.

`/brokers/ids/N` is a broker's registration, its czxid the broker epoch. `/brokers/topics/T` is the
assignment of a topic, and `/brokers/topics/T/partitions/P/state` the state of a partition. Each
event has the id of its transaction as its offset, so all of them are in one order.

A watch fires once, and a znode may change again before it is read. The version of a partition's
state counts its changes, so changes that were not read are recorded as missed. `replaced_states`
supplies them once the run is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import msgspec
from msgspec import Struct

from fencepost import EvidenceMissed, kind_name
from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Children,
    Data,
    Exists,
    Fired,
    Found,
    GetChildren,
    GetData,
    Reason,
    Refused,
    Request,
    Stat,
)
from fencepost_kafka import BrokerCommitted, PartitionCommitted, TopicCommitted

IDS, TOPICS = "/brokers/ids", "/brokers/topics"

Step = tuple[Sequence[Request], Sequence[Struct]]
"""The next requests, and the event bodies that an answer makes."""


class Assignment(Struct, frozen=True):
    """A topic's znode: the replicas of each partition, by its number as text."""

    partitions: dict[str, tuple[int, ...]]
    topic_id: str = ""
    adding_replicas: dict[str, tuple[int, ...]] = {}
    removing_replicas: dict[str, tuple[int, ...]] = {}


class State(Struct, frozen=True):
    """The znode of a partition's state."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


_OF_BROKERS = (kind_name(BrokerCommitted),)
_OF_TOPICS = (kind_name(PartitionCommitted), kind_name(TopicCommitted))


@final
@dataclass(slots=True)
class Znodes:
    """See the module: answers and watch events in, requests and event bodies out."""

    _brokers: dict[int, int] = field(default_factory=dict)
    """broker -> the czxid of its registration."""
    _topics: dict[str, Assignment] = field(default_factory=dict)
    _states: dict[tuple[str, int], tuple[Stat, State]] = field(default_factory=dict)

    def begin(self) -> Sequence[Request]:
        """The requests to send once a session is connected: it has no watches then."""
        return (
            GetChildren(IDS, watch=True),
            GetChildren(TOPICS, watch=True),
            *(GetData(topic_path(topic), watch=True) for topic in self._topics),
            *(
                GetData(state_path(topic, int(number)), watch=True)
                for topic, known in self._topics.items()
                for number in known.partitions
            ),
        )

    def fired(self, fired: Fired) -> Sequence[Request]:
        """The request to send after a watch fired: it reads again and sets the watch."""
        return self._ask(fired.path)

    def answered(self, request: Request, answer: Answer) -> Step:
        """The step after an answer; a lost request is sent again in the next connection."""
        match request, answer:
            case GetChildren(path) | GetData(path), Refused(Reason.NO_NODE):
                return (Exists(path, watch=True),), ()
            case Exists(path), Found(Stat()):
                return self._ask(path), ()
            case GetChildren(path), Children(names, stat) if path == IDS:
                gone = [broker for broker in self._brokers if str(broker) not in names]
                # Known registrations are read again, since one may have been replaced.
                asked = [GetData(f"{IDS}/{name}") for name in names]
                return asked, [self._unregistered(broker, stat.pzxid) for broker in gone]
            case GetChildren(), Children(names, stat):
                gone_topics = [topic for topic in self._topics if topic not in names]
                asked = [
                    GetData(topic_path(name), watch=True)
                    for name in names
                    if name not in self._topics
                ]
                return asked, [self._deleted(topic, stat.pzxid) for topic in gone_topics]
            case GetData(path), Data(data, stat):
                try:
                    return self._read(path.split("/")[2:], data, stat)
                except (
                    ValueError,
                    msgspec.DecodeError,
                ) as bad:  # written by another process than a broker
                    what = f"{path} could not be read: {bad}"
                    kinds = _OF_BROKERS if path.startswith(IDS) else _OF_TOPICS
                    return (), (EvidenceMissed(what=what, kinds=kinds),)
            case _:
                return (), ()

    def _ask(self, path: str) -> Sequence[Request]:
        asks = GetChildren if path in (IDS, TOPICS) else GetData
        return (asks(path, watch=True),)

    def _read(self, names: Sequence[str], data: bytes, stat: Stat) -> Step:
        match names:
            case ["ids", broker]:
                return (), self._registered(int(broker), stat.czxid)
            case ["topics", topic]:
                return self._assigned(topic, data, stat)
            case ["topics", topic, "partitions", number, "state"] if topic in self._topics:
                read = msgspec.json.decode(data, type=State)
                return (), self._changed(topic, int(number), read, stat)
            case _:
                return (), ()

    def _registered(self, broker: int, czxid: int) -> Sequence[Struct]:
        if self._brokers.get(broker) == czxid:
            return ()
        self._brokers[broker] = czxid
        return (
            BrokerCommitted(
                offset=czxid,
                broker_id=broker,
                broker_epoch=czxid,
                fenced=False,
                incarnation=str(czxid),
            ),
        )

    def _unregistered(self, broker: int, zxid: int) -> Struct:
        czxid = self._brokers.pop(broker)
        return BrokerCommitted(
            offset=zxid, broker_id=broker, broker_epoch=czxid, fenced=True, incarnation=str(czxid)
        )

    def _assigned(self, topic: str, data: bytes, stat: Stat) -> Step:
        """Event bodies for partitions whose replicas changed, with their unchanged states."""
        new = msgspec.json.decode(data, type=Assignment)
        numbers = {name: int(name) for name in new.partitions}
        old = self._topics.get(topic)
        self._topics[topic] = new
        known = old.partitions if old is not None else {}
        asked = [
            GetData(state_path(topic, number), watch=True)
            for name, number in numbers.items()
            if name not in known
        ]
        if old is None:
            return asked, (
                TopicCommitted(
                    offset=stat.czxid, topic=topic, topic_id=_id(topic, new), deleted=False
                ),
            )
        moved = [
            committed(stat.mzxid, topic, number, self._states[topic, number][1], new)
            for number in numbers.values()
            if (topic, number) in self._states and new != old
        ]
        return asked, moved

    def _deleted(self, topic: str, zxid: int) -> Struct:
        gone = self._topics.pop(topic)
        for number in map(int, gone.partitions):
            self._states.pop((topic, number), None)
        return TopicCommitted(offset=zxid, topic=topic, topic_id=_id(topic, gone), deleted=True)

    def _changed(self, topic: str, number: int, state: State, stat: Stat) -> Sequence[Struct]:
        before = self._states.get((topic, number))
        self._states[topic, number] = stat, state
        if before is not None and before[0].mzxid == stat.mzxid:
            return ()
        next_version = 0
        if before is not None and before[0].czxid == stat.czxid:
            next_version = before[0].version + 1
        missed = stat.version - next_version
        news = committed(stat.mzxid, topic, number, state, self._topics[topic], skipped=missed)
        if not missed:
            return (news,)
        why = f"{missed} states of {topic}-{number} were replaced before they were read"
        return EvidenceMissed(what=why, kinds=(kind_name(PartitionCommitted),)), news


def committed(
    zxid: int, topic: str, number: int, state: State, assigned: Assignment, *, skipped: int = 0
) -> PartitionCommitted:
    """The event of a partition's state, stored by the transaction `zxid`."""
    name = str(number)
    return PartitionCommitted(
        offset=zxid,
        topic=topic,
        partition=number,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        replicas=assigned.partitions.get(name, ()),
        adding=assigned.adding_replicas.get(name, ()),
        removing=assigned.removing_replicas.get(name, ()),
        skipped=skipped,
    )


def topic_path(topic: str) -> str:
    """The znode of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def state_path(topic: str, number: int) -> str:
    """The znode of a partition's state."""
    return f"{topic_path(topic)}/partitions/{number}/state"


def _id(topic: str, known: Assignment) -> str:
    """A topic's id; versions without ids know a topic by its name."""
    return known.topic_id or topic
