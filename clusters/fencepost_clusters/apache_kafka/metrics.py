"""What the metrics page of a Kafka node says, made into our events: a table, one row a metric.

The page is written by Prometheus's agent in the node's JVM, which is told here what to show and
names a sample after the metric's object name and attribute. Pure: text in, event bodies out.
`metrics_reader` reads the pages; some of each role, as versions showed them, pin the rows in tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

AGAIN_NS = 2_000_000_000
"""How long a page that says nothing new goes untold: so rules see what ought to have changed."""
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (-?\d+(?:\.\d+)?(?:E-?\d+)?)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class MetricsTold(Struct, frozen=True, tag="apache_kafka.metrics"):
    """What the page of the node in `slot` said when a client of the run last read it.

    Told when a figure has changed, and again every two seconds while none does. It has said just
    this since the page that was asked for at `since_ns` (CLOCK_MONOTONIC), on every page between,
    none of which failed to come; what was different for less than half a second may be missed. The
    figures are Kafka's own by their names in the table; -1 for one that the page does not have,
    such as another role's.
    """

    slot: str
    since_ns: int
    epoch: int = -1
    active_controllers: int = -1
    active_brokers: int = -1
    fenced_brokers: int = -1
    offline_partitions: int = -1
    timed_out_heartbeats: int = -1
    broker_state: int = -1
    led_partitions: int = -1
    under_replicated: int = -1


Figures = Mapping[str, int]
"""Fields of `MetricsTold` that a page has, and what it says."""
Sample = tuple[str, frozenset[tuple[str, str]]]
"""A sample's name on a page, and its labels."""


@dataclass(frozen=True, slots=True)
class MetricSource:
    """One metric: its field, its object name in JMX, and which attribute of that it is."""

    field: str
    metric: str
    attribute: str = "Value"

    @property
    def sample(self) -> Sample:
        """Where the agent shows it: the first property is in the name, all others are labels."""
        domain, _, properties = self.metric.partition(":")
        (_, first), *others = (one.split("=") for one in properties.split(","))
        name = re.sub(r"\W", "_", f"{domain}_{first}_{self.attribute}")
        return name, frozenset((key, value) for key, value in others)


_CONTROLLER = "kafka.controller:type=KafkaController,name="
_BROKER = "kafka.server:type=ReplicaManager,name="

TABLE: Sequence[MetricSource] = (
    MetricSource("epoch", "kafka.server:type=raft-metrics", "current-epoch"),
    MetricSource("active_controllers", f"{_CONTROLLER}ActiveControllerCount"),
    MetricSource("active_brokers", f"{_CONTROLLER}ActiveBrokerCount"),
    MetricSource("fenced_brokers", f"{_CONTROLLER}FencedBrokerCount"),
    MetricSource("offline_partitions", f"{_CONTROLLER}OfflinePartitionsCount"),
    MetricSource("timed_out_heartbeats", f"{_CONTROLLER}TimedOutBrokerHeartbeatCount"),
    MetricSource("broker_state", "kafka.server:type=KafkaServer,name=BrokerState"),
    MetricSource("led_partitions", f"{_BROKER}LeaderCount"),
    MetricSource("under_replicated", f"{_BROKER}UnderReplicatedPartitions"),
)
"""Every metric that is told. How far a node has applied the metadata is told by what it logs."""

ZOOKEEPER = "kafka.server:type=SessionExpireListener,*"
"""ZooKeeperExpiresPerSec and its like: shown where they exist, told nowhere."""
_FIELDS: Mapping[Sample, str] = {row.sample: row.field for row in TABLE}


def exporter_config() -> str:
    """The agent's configuration; JSON is YAML. A page costs what it shows, so it shows little."""
    shown = list(dict.fromkeys(row.metric for row in TABLE))
    return json.dumps({"includeObjectNames": [*shown, ZOOKEEPER]}, indent=1)


def query() -> str:
    """What to ask a page for, after its `?`: these samples, and none about the JVM."""
    return "&".join(f"name[]={name}" for name in dict.fromkeys(name for name, _ in _FIELDS))


def figures(page: str) -> Figures:
    """What a page says of the table's metrics; samples of others, and lines that are none, tell
    nothing."""
    told: dict[str, int] = {}
    for line in page.splitlines():
        read = _SAMPLE.fullmatch(line)
        if read is not None:
            known = _FIELDS.get((read[1], frozenset(_LABEL.findall(read[2] or ""))))
            if known is not None:
                told[known] = int(float(read[3]))
    return told


@final
@dataclass(slots=True)
class Following:
    """What one node's pages have said since it was last unheard of."""

    slot: str
    _said: Figures = field(default_factory=dict)
    _since_ns: int = -1
    _told_ns: int = -1

    def take(self, said: Figures, asked_ns: int, came_ns: int) -> MetricsTold | None:
        """Takes in what a page says, or nothing where none came; what to tell of it, if anything.

        The page was asked for at `asked_ns` and had come at `came_ns`.
        """
        if said != self._said:
            self._said, self._since_ns = said, asked_ns
        elif came_ns - self._told_ns < AGAIN_NS:
            return None
        if not said:
            return None
        self._told_ns = came_ns
        return MetricsTold(self.slot, self._since_ns, **said)
