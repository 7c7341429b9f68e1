"""The table from a node's metrics page to events, compared with pages that nodes showed."""

from __future__ import annotations

import json

import msgspec
import pytest
from kafka_samples import VERSIONS, page

from fencepost.events import Codec, Event
from fencepost_clusters.apache_kafka.metrics import (
    AGAIN_NS,
    TABLE,
    MetricsObserved,
    PageHistory,
    exporter_config,
    figures,
    query,
)
from fencepost_kafka import KINDS

SAID = {
    "controller": {
        "epoch": 3,
        "active_controllers": 1,
        "active_brokers": 3,
        "fenced_brokers": 0,
        "offline_partitions": 0,
        "timed_out_heartbeats": 1,
    },
    "broker": {"epoch": 3, "broker_state": 3, "led_partitions": 1, "under_replicated": 0},
}
"""The figures of the recorded pages of 4.3.1: of an active controller, and of a broker that
serves."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", SAID)
def test_a_page_says_the_same_in_every_version(role: str, version: str) -> None:
    assert set(figures(page(version, role))) == set(SAID[role])


@pytest.mark.parametrize("role", SAID)
def test_the_event_of_a_nodes_page(role: str) -> None:
    assert figures(page("4.3.1", role)) == SAID[role]
    event = Event(
        "run", "clients/metrics#1", 0, 9, MetricsObserved(slot="broker-1", since_ns=7, **SAID[role])
    )
    codec = Codec((MetricsObserved, *KINDS))
    assert codec.decode(codec.encode(event).rstrip()) == event


def test_every_row_has_a_sample_and_a_field_of_its_own() -> None:
    fields = {field.name for field in msgspec.structs.fields(MetricsObserved)} - {
        "slot",
        "since_ns",
    }
    assert fields == {one.field for one in TABLE}
    assert len({one.sample for one in TABLE}) == len(TABLE)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# HELP kafka_server_KafkaServer_Value kafka",
        'kafka_server_KafkaServer_Value{name="BrokerState"} NaN',
        'kafka_server_KafkaServer_Value{name="BrokerState"}',
        'kafka_server_KafkaServer_Value{name="BrokerState",of="3"} 3.0',
        "kafka_server_KafkaServer_Value 3.0",
    ],
)
def test_a_line_that_is_no_sample_of_the_table_has_no_figure(line: str) -> None:
    assert figures(line) == {}


def test_a_large_number_is_read_as_java_writes_it() -> None:
    assert figures("kafka_server_raft_metrics_current_epoch 1.2E7") == {"epoch": 12_000_000}


def test_the_agent_shows_the_metrics_of_the_table_and_those_of_zookeeper() -> None:
    shown = json.loads(exporter_config())["includeObjectNames"]
    assert shown[:-1] == list(dict.fromkeys(row.metric for row in TABLE))
    assert shown[-1] == "kafka.server:type=SessionExpireListener,*"
    assert query().split("&")[0] == "name[]=kafka_server_raft_metrics_current_epoch"
    assert len(set(query().split("&"))) == 4


# ---------------------------------------------------------------------- what is recorded, and when


def test_a_change_is_recorded_at_once_and_the_same_page_again_after_two_seconds() -> None:
    pages = PageHistory("broker-1")
    assert pages.take({"epoch": 1}, 10, 20) == MetricsObserved(
        slot="broker-1", since_ns=10, epoch=1
    )
    assert pages.take({"epoch": 1}, 30, 40) is None
    late = 20 + AGAIN_NS
    assert pages.take({"epoch": 1}, late - 5, late) == MetricsObserved(
        slot="broker-1", since_ns=10, epoch=1
    )
    changed = MetricsObserved(slot="broker-1", since_ns=late + 1, epoch=2)
    assert pages.take({"epoch": 2}, late + 1, late + 2) == changed


def test_a_page_that_did_not_come_interrupts_the_stable_period() -> None:
    pages = PageHistory("broker-1")
    pages.take({"epoch": 1}, 10, 20)
    assert pages.take({}, 30, 40) is None
    assert pages.take({}, 30 + AGAIN_NS, 40 + AGAIN_NS) is None
    assert pages.take({"epoch": 1}, 50, 60) == MetricsObserved(
        slot="broker-1", since_ns=50, epoch=1
    )
