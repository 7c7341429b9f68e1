"""What an administrator asks for in random schedules: topics come and go, partitions move, leaders
are elected, settings change, brokers are added, drained, removed and deleted, voters leave and
return.

A broker is removed for good in steps, each drawn from the view: `drain_broker` moves its partitions
to others; `remove_broker`, once it has none, has it stop and deletes it. `add_broker` may start it
again, with its old disk.

Each is drawn from a seeded stream and the view. Whether the cluster can do it then is for the
cluster to say: a refusal is an answer like any other. `concerned` are the slots that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import TypeVar

from fencepost import Administration, Layout, View, no_such
from fencepost_kafka.recovery import voters
from fencepost_kafka.view import KafkaView
from fencepost_kafka.vocabulary import Role

TOPIC_PREFIX = "storm-"
"""How the names of topics begin that a schedule makes, writes to and deletes."""
MOST_TOPICS = 3
LEAST_BROKERS = 3
"""How many brokers always stay: as many as a partition has replicas."""
NAMES = 4
"""How many names these topics have: a name is used again once its topic is deleted."""
WRITES = (50, 400)
"""How many messages one operation has a producer write, and how many a second."""
RATE = 20.0
SETTINGS: Sequence[tuple[str, Sequence[str]]] = (
    ("min.insync.replicas", ("1", "2")),
    ("max.message.bytes", ("500000", "1000000")),
)
"""The settings of topics that are altered, with the values that they get. None lets the cluster
delete a message."""

Asked = tuple[str, Mapping[str, object]]
"""An operation with its arguments."""
Move = tuple[str, int, Sequence[int]]
"""A partition, and the replicas that it is to have."""
Make = Callable[[Random, View, Layout], Asked | None]


T = TypeVar("T")


def _one(random: Random, several: Sequence[T]) -> T | None:
    return several[random.randrange(len(several))] if several else None


def _made(view: View) -> Sequence[str]:
    return sorted(t for t in view.of(KafkaView).topics if t.startswith(TOPIC_PREFIX))


def _brokers(layout: Layout) -> Sequence[int]:
    return [slot.node_id for slot in layout.of(Role.BROKER)]


def _create_topic(random: Random, view: View, layout: Layout) -> Asked | None:
    made = _made(view)
    free = [name for n in range(1, NAMES + 1) if (name := f"{TOPIC_PREFIX}{n}") not in made]
    topic = _one(random, free)
    if topic is None or len(made) >= MOST_TOPICS:
        return None
    most = min(3, len(_brokers(layout)))
    replication = random.randint(min(2, most), most)
    arguments = {"topic": topic, "partitions": random.randint(1, 3), "replication": replication}
    return "create_topic", arguments


def _write_topic(random: Random, view: View, layout: Layout) -> Asked | None:
    topic = _one(random, _made(view))
    if topic is None:
        return None
    partitions = sum(t == topic for t, _ in view.of(KafkaView).partitions)
    arguments = {"topic": topic, "partitions": partitions, "count": random.randint(*WRITES)}
    return ("write_topic", arguments) if partitions else None


def _delete_topic(random: Random, view: View, layout: Layout) -> Asked | None:
    topic = _one(random, _made(view))
    return None if topic is None else ("delete_topic", {"topic": topic})


def _reassign(random: Random, view: View, layout: Layout) -> Asked | None:
    places = sorted(view.of(KafkaView).partitions)
    brokers = _brokers(layout)
    if not places or len(brokers) < 2:
        return None
    topic, partition = places[random.randrange(len(places))]
    replicas = random.sample(brokers, random.randint(2, min(3, len(brokers))))
    return "reassign", {"topic": topic, "partition": partition, "replicas": replicas}


def _cancel(random: Random, view: View, layout: Layout) -> Asked | None:
    known = view.of(KafkaView).partitions
    moving = sorted(place for place, one in known.items() if one.adding or one.removing)
    if not moving:
        return None
    topic, partition = moving[random.randrange(len(moving))]
    return "reassign", {"topic": topic, "partition": partition, "replicas": []}


def _elect(random: Random, view: View, layout: Layout) -> Asked | None:
    topic = _one(random, sorted({topic for topic, _ in view.of(KafkaView).partitions}))
    if topic is None:
        return None
    partitions = sorted(n for t, n in view.of(KafkaView).partitions if t == topic)
    return "elect_preferred", {"topic": topic, "partitions": partitions}


def _alter(random: Random, view: View, layout: Layout) -> Asked | None:
    topic = _one(random, sorted(view.of(KafkaView).topics))
    if topic is None:
        return None
    setting, values = SETTINGS[random.randrange(len(SETTINGS))]
    value = values[random.randrange(len(values))]
    return "alter_settings", {"topic": topic, "config": {setting: value}}


def _delete_broker(random: Random, view: View, layout: Layout) -> Asked | None:
    brokers = _brokers(layout)
    return "delete_broker", {"broker": brokers[random.randrange(len(brokers))]}


def _add_broker(random: Random, view: View, layout: Layout) -> Asked | None:
    """Starts a broker that was never started, or one that was removed and deleted."""
    kafka = view.of(KafkaView)
    absent = (slot.node_id for slot in layout.of(Role.BROKER, spares=True) if slot.spare)
    spares = [broker for broker in absent if not kafka.registered(broker)]
    return ("add_broker", {"broker": spares[random.randrange(len(spares))]}) if spares else None


def _drain_broker(random: Random, view: View, layout: Layout) -> Asked | None:
    """Moves every partition of a broker to others, with as many replicas as before. Every other
    time it is the broker with the fewest, which an earlier drain may have left with some."""
    kafka, brokers = view.of(KafkaView), _brokers(layout)
    leaving = [broker for broker in _removable(layout) if kafka.replicas_of(broker)]
    if not leaving:
        return None
    broker = min(leaving, key=lambda one: len(kafka.replicas_of(one)))
    if random.random() < 0.5:
        broker = leaving[random.randrange(len(leaving))]
    moves: list[Move] = []
    for topic, partition in kafka.replicas_of(broker):
        one = kafka.partitions[topic, partition]
        kept = [other for other in one.replicas if other not in (broker, *one.removing)]
        free = [other for other in brokers if other not in (broker, *kept)]
        wanted = min(len(one.replicas) - len(one.removing), len(kept) + len(free))
        moves.append((topic, partition, [*kept, *random.sample(free, wanted - len(kept))]))
    return "drain_broker", {"broker": broker, "moves": moves}


def _remove_broker(random: Random, view: View, layout: Layout) -> Asked | None:
    """Has a broker without partitions stop, and deletes it; or deletes one that has stopped, and is
    registered still."""
    kafka = view.of(KafkaView)
    absent = (slot.node_id for slot in layout.of(Role.BROKER, spares=True) if slot.spare)
    leaving = [broker for broker in absent if kafka.registered(broker)]
    leaving += [broker for broker in _removable(layout) if not kafka.replicas_of(broker)]
    return ("remove_broker", {"broker": _one(random, leaving)}) if leaving else None


def _removable(layout: Layout) -> Sequence[int]:
    """The brokers that may leave: any while enough others stay, but none that shares its process
    with a controller."""
    slots = layout.of(Role.BROKER)
    if len(slots) <= LEAST_BROKERS:
        return ()
    return [slot.node_id for slot in slots if slot.id_as(Role.CONTROLLER) is None]


def _change_voters(random: Random, view: View, layout: Layout) -> Asked | None:
    """Removes a voter while all controllers are voters; otherwise adds the one that is not."""
    controllers = [slot.id_as(Role.CONTROLLER) for slot in layout.of(Role.CONTROLLER)]
    quorum = voters(view)
    out = [node for node in controllers if node not in quorum]
    if not quorum or len(controllers) < 3:
        return None
    if out:
        return "add_voter", {"controller": out[0]}
    return "remove_voter", {"controller": controllers[random.randrange(len(controllers))]}


MENU: Sequence[tuple[int, Sequence[str], Make]] = (
    (2, ("create_topic",), _create_topic),
    (2, ("write_topic",), _write_topic),
    (1, ("delete_topic",), _delete_topic),
    (3, ("reassign",), _reassign),
    (1, ("reassign",), _cancel),
    (1, ("elect_preferred",), _elect),
    (1, ("alter_settings",), _alter),
    (1, ("delete_broker",), _delete_broker),
    (3, ("add_broker",), _add_broker),
    (3, ("drain_broker",), _drain_broker),
    (8, ("remove_broker",), _remove_broker),
    (1, ("add_voter", "remove_voter"), _change_voters),
)
"""How often an operation is drawn, what it is, and how its arguments are drawn. A broker can seldom
be removed."""
OPERATIONS = tuple(dict.fromkeys(name for _, names, _ in MENU for name in names))
"""Every operation by name."""
OTHER_BROKERS = frozenset({"add_broker", "drain_broker", "remove_broker"})
"""What a cluster can be asked for whose brokers may come and go."""
OTHER_VOTERS = frozenset({"add_voter", "remove_voter"})
"""What a cluster can be asked for whose voters may change."""
EVERYWHERE = frozenset(OPERATIONS) - OTHER_BROKERS - OTHER_VOTERS - {"delete_broker"}
"""What every cluster of Kafka's kind can be asked for."""


def present(view: View, layout: Layout) -> Layout:
    """The layout in which a spare that was ever started is a node like any other, and a broker that
    was removed is a spare."""
    kafka = view.of(KafkaView)
    slots = (
        replace(s, spare=(s.spare and s.name not in view.newest) or kafka.has_left(s.name, view))
        for s in layout.slots
    )
    return replace(layout, slots=tuple(slots))


def concerned(
    operation: str, arguments: Mapping[str, object], view: View, layout: Layout
) -> Sequence[str]:
    """The slots that an operation concerns: the brokers of the partitions, of the topic or of the
    move; the broker or the controller itself; the active controller for a topic that is made.

    Raises UsageError for an operation that does not exist.
    """
    if operation not in OPERATIONS:
        raise no_such("operation", operation, OPERATIONS)
    kafka = view.of(KafkaView)
    brokers = {slot.node_id: slot.name for slot in layout.of(Role.BROKER, spares=True)}
    controllers = {slot.id_as(Role.CONTROLLER): slot.name for slot in layout.of(Role.CONTROLLER)}
    if operation in ("add_voter", "remove_voter"):
        asked = arguments.get("controller")
        return [name for node, name in controllers.items() if node == asked]
    if operation == "create_topic":
        return [name for node, name in controllers.items() if node == kafka.active_controller]
    if operation in OTHER_BROKERS | {"delete_broker"}:
        return [name for node, name in brokers.items() if node == arguments.get("broker")]
    topic, partition = arguments.get("topic"), arguments.get("partition")
    held = [
        one
        for (t, n), one in kafka.partitions.items()
        if t == topic and (partition is None or n == partition)
    ]
    of_partitions = {node for one in held for node in one.replicas}
    to = arguments.get("replicas")
    concerns = of_partitions | ({*to} if isinstance(to, list | tuple) else set())
    return [name for node, name in brokers.items() if node in concerns]


def asks(
    operation: str, arguments: Mapping[str, object], view: View, layout: Layout
) -> Administration:
    """The operation with its victims."""
    victims = frozenset(concerned(operation, arguments, view, layout))
    return Administration(operation, arguments, victims)
