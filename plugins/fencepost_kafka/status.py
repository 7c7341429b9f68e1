"""What `fencepost status` shows of a Kafka cluster: the controller, the brokers, the partitions and
the clients, by the events so far.

An epoch, a high watermark or a state that no node has told is not known, and shown as such: over
ZooKeeper brokers have no epochs of their own, and Apache Kafka's nodes report no watermarks.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Layout, StatusTable, View
from fencepost_kafka.facade.node import serving
from fencepost_kafka.view import KafkaView, PartitionView, is_internal
from fencepost_kafka.vocabulary import Role

CONTROLLER = ("active", "epoch", "process", "committed offset")
BROKERS = ("broker", "state", "fenced", "broker epoch")
PARTITIONS = (
    "partition",
    "leader",
    "epoch",
    "serves",
    "ISR",
    "replicas",
    "end",
    "committed",
    "lag",
)
"""`serves`: the leader has begun to serve in that epoch. `lag`: how many messages of the leader's
log are above its high watermark."""
CLIENTS = ("client", "writes", "acknowledged", "failed", "unknown", "messages read")
_WATERMARK = "replica.high_watermark"


def status(view: View, layout: Layout) -> Sequence[StatusTable]:
    """See `ShowsStatus`. Partitions of Kafka's own topics are counted only."""
    kafka = view.of(KafkaView)
    own = sum(is_internal(topic) for topic, _ in kafka.partitions)
    title = f"partitions, without {own} of Kafka's own topics" if own else "partitions"
    tables = (
        _controller(kafka),
        _brokers(view, layout),
        StatusTable(
            title,
            PARTITIONS,
            tuple(
                _partition(view, topic, number, one)
                for (topic, number), one in sorted(kafka.partitions.items())
                if not is_internal(topic)
            ),
        ),
        _clients(kafka),
    )
    return [one for one in tables if one.rows]


def _controller(kafka: KafkaView) -> StatusTable:
    if kafka.controller_epoch < 0:
        return StatusTable("controller", CONTROLLER, ())
    active = kafka.active_controller
    committed = kafka.committed if kafka.committed >= 0 else None
    process = "" if active is None else kafka.controller_process
    return StatusTable(
        "controller", CONTROLLER, ((active, kafka.controller_epoch, process, committed),)
    )


def _brokers(view: View, layout: Layout) -> StatusTable:
    kafka = view.of(KafkaView)
    rows = []
    for slot in layout.of(Role.BROKER, spares=True):
        process, broker = view.newest.get(slot.name, ""), slot.id_as(Role.BROKER)
        if process and broker is not None:
            state = kafka.state.get(process) if process in view.alive else "ended"
            epoch = kafka.broker_epoch.get(broker)
            rows.append((slot.name, state, kafka.fenced.get(broker), epoch))
    return StatusTable("brokers", BROKERS, tuple(rows))


def _partition(
    view: View, topic: str, number: int, one: PartitionView
) -> tuple[str | int | bool | tuple[int, ...] | None, ...]:
    told = view.kinds[_WATERMARK] > 0
    lag = max(0, one.log_end - one.high_watermark)
    return (
        f"{topic}-{number}",
        one.leader if one.leader >= 0 else None,
        one.leader_epoch,
        serving(view, topic, number) is not None,
        one.isr,
        one.replicas,
        one.log_end if told else None,
        one.high_watermark if told else None,
        lag if told else None,
    )


def _clients(kafka: KafkaView) -> StatusTable:
    names = sorted({*kafka.invoked, *kafka.polled})
    outcomes = ("ok", "failed", "unknown")
    return StatusTable(
        "clients",
        CLIENTS,
        tuple(
            (
                name,
                kafka.invoked[name],
                *(kafka.completed[name, outcome] for outcome in outcomes),
                kafka.polled[name],
            )
            for name in names
        ),
    )
