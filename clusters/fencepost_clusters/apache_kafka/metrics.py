"""Makes events of the metrics page of a Kafka node, by a table with one row per metric.

Prometheus's agent in the node's JVM writes the page. Its configuration here lists what to show; it
names a sample after the metric's object name and attribute. Pure: text in, event bodies out.
`metrics_reader` reads the pages; pages of each role and version pin the rows in the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

AGAIN_NS = 2_000_000_000
"""An unchanged page makes an event after this time, so that rules see that it has not changed."""
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (-?\d+(?:\.\d+)?(?:E-?\d+)?)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class MetricsObserved(Struct, frozen=True, tag="apache_kafka.metrics", kw_only=True):
    """The metrics page of the node in `slot`, as a client of the run last read it.

    Recorded when a figure has changed, and every two seconds while none does. Every reading since
    the one that was requested at `since_ns` (CLOCK_MONOTONIC) has shown the same figures, and none
    has failed. A difference that lasted less than half a second may be missed. The figures are
    Kafka's own, by their names in the table; -1 if the page does not have one, such as a figure of
    another role.
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
"""Fields of `MetricsObserved` that a page has, and their figures."""
Sample = tuple[str, frozenset[tuple[str, str]]]
"""A sample's name on a page, and its labels."""


@dataclass(frozen=True, slots=True)
class MetricSource:
    """One metric: its field, its object name in JMX, and the attribute."""

    field: str
    metric: str
    attribute: str = "Value"

    @property
    def sample(self) -> Sample:
        """The sample's name as the agent shows it: the first property is in the name, all others
        are labels."""
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
"""Every metric that makes events. The metadata offset that a node has applied is not here: its log
shows it."""

ZOOKEEPER = "kafka.server:type=SessionExpireListener,*"
"""ZooKeeperExpiresPerSec and similar metrics: shown if they exist, without events."""
_FIELDS: Mapping[Sample, str] = {row.sample: row.field for row in TABLE}


def exporter_config() -> str:
    """The agent's configuration; JSON is YAML. The cost of a page grows with its metrics, so it
    shows few."""
    shown = list(dict.fromkeys(row.metric for row in TABLE))
    return json.dumps({"includeObjectNames": [*shown, ZOOKEEPER]}, indent=1)


def query() -> str:
    """The query string for a page: these samples, and none about the JVM."""
    return "&".join(f"name[]={name}" for name in dict.fromkeys(name for name, _ in _FIELDS))


def figures(page: str) -> Figures:
    """The figures of the table's metrics on a page; other samples, and lines that are not samples,
    are ignored."""
    found: dict[str, int] = {}
    for line in page.splitlines():
        read = _SAMPLE.fullmatch(line)
        if read is not None:
            known = _FIELDS.get((read[1], frozenset(_LABEL.findall(read[2] or ""))))
            if known is not None:
                found[known] = int(float(read[3]))
    return found


@final
@dataclass(slots=True)
class PageHistory:
    """The pages of one node since it last failed to answer."""

    slot: str
    _shown: Figures = field(default_factory=dict)
    _since_ns: int = -1
    _recorded_ns: int = -1

    def take(self, said: Figures, asked_ns: int, came_ns: int) -> MetricsObserved | None:
        """Takes a page's figures, or none if no page came; returns the event to record, if any.

        The page was requested at `asked_ns` and had arrived at `came_ns`.
        """
        if said != self._shown:
            self._shown, self._since_ns = said, asked_ns
        elif came_ns - self._recorded_ns < AGAIN_NS:
            return None
        if not said:
            return None
        self._recorded_ns = came_ns
        return MetricsObserved(slot=self.slot, since_ns=self._since_ns, **said)
