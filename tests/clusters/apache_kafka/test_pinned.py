"""Every row of every table from Kafka to events is pinned by a sample of each version we name."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from kafka_samples import LOGS, VERSIONS, blocks, recorded, rows_of, unpinned

from fencepost import kind_name
from fencepost_clusters.apache_kafka import log_parser, metrics
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_clusters.apache_kafka.metadata import records as metadata_log
from fencepost_kafka import ControllerFollowed
from fencepost_kafka.judging.owed import EVERY


def having(logger: str, words: str) -> set[str]:
    """The rows of a logger with these words."""
    return {
        row.message.pattern
        for row in log_parser.TABLE
        if row.logger == logger and words in row.message.pattern
    }


INELIGIBLE = having("ReplicationControlManager", "ineligible")
FAILED = having("LoggingFaultHandler", "fault: (?P<doing>")
FAULT = having("LoggingFaultHandler", "failed).+?")
FATAL = having("ProcessTerminatingFaultHandler", "")
RENOUNCED = having("QuorumController", "unknown server")
PUBLISHED = having("BrokerMetadataPublisher", "")
DENIED = {row.message.pattern for row in log_parser.TABLE if "is Denied" in row.message.pattern}
"""No sample is of a secured cluster: test_secured_cluster has the line of a real one."""
NOT_SEEN: Mapping[str, Mapping[str, set[str]]] = {
    "3.9.2": {
        "log": RENOUNCED | FAULT | INELIGIBLE | FAILED | DENIED,
        "metadata log": {"ClearElrRecord"},
    },
    "4.1.0": {"log": RENOUNCED | PUBLISHED | FAULT | INELIGIBLE | DENIED},
    "4.3.1": {"log": RENOUNCED | PUBLISHED | FAULT | FATAL | DENIED},
    "4.4.0": {"log": RENOUNCED | PUBLISHED | FAULT | FATAL | DENIED},
}
"""Messages that these versions have not printed in any run yet, or print no more, and a record that
Kafka 4 brought: other versions pin them."""
OTHERS = ("3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "4.0.2", "4.2.2")
"""Releases of which the samples pin only what a run at peace, and one bounce, prints."""
ROWS = {
    "log": [row.message.pattern for row in log_parser.TABLE],
    "metadata log": list(metadata_log.TABLE),
    "metrics": [row.field for row in metrics.TABLE],
}


class Tagged(msgspec.Struct, frozen=True):
    """The kind of an event."""

    type: str


@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_is_pinned_by_a_sample_of_each_version(version: str) -> None:
    lacks = {table: rows for table, rows in unpinned(*recorded(version)).items() if rows}
    assert lacks == NOT_SEEN.get(version, {})


@pytest.mark.parametrize("version", [*OTHERS, *VERSIONS])
def test_each_kind_that_nodes_owe_is_pinned_by_a_sample_of_each_release(version: str) -> None:
    """A rule that reads its absence accuses a healthy cluster of a release that has other words.
    And a cluster is not ready before each controller knows the active one."""
    made = {
        msgspec.json.decode(event, type=Tagged).type
        for log in LOGS
        if log.stem.startswith(f"{version}-")
        for _, events in blocks(log)
        for event in events
    }
    needed = (*(one.kind for one in EVERY), ControllerFollowed)
    assert {kind_name(kind) for kind in needed} - made == set()


@pytest.mark.parametrize(("table", "row"), [(t, row) for t in ROWS for row in ROWS[t]])
def test_a_row_without_its_samples_is_missed(table: str, row: str) -> None:
    printed, stored, shown = recorded(DEFAULT_VERSION)
    match table:
        case "log":
            printed = [line for line in printed if row not in rows_of(line)]
        case "metadata log":
            stored = [one for one in stored if one.record.kind != row]
        case "metrics":
            shown = [without(page, row) for page in shown]
    assert row in unpinned(printed, stored, shown)[table]


def without(shown: str, row: str) -> str:
    """A page without the lines of that row."""
    return "".join(line for line in shown.splitlines(True) if row not in metrics.figures(line))
