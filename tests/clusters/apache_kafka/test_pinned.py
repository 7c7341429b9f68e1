"""Every row of every table from Kafka to events is pinned by a sample of each version we name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kafka_samples import VERSIONS, recorded, rows_of, unpinned

from fencepost_clusters.apache_kafka import log_parser, metrics
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_clusters.apache_kafka.metadata import records as metadata_log

INELIGIBLE = {
    row.message.pattern for row in log_parser.TABLE if "ineligible" in row.message.pattern
}
FAILED = {
    row.message.pattern for row in log_parser.TABLE if "controller fault" in row.message.pattern
}
FATAL = {row.message.pattern for row in log_parser.TABLE if "fatal fault" in row.message.pattern}
NOT_SEEN: Mapping[str, Mapping[str, set[str]]] = {
    "3.9.2": {"log": INELIGIBLE | FAILED, "metadata log": {"ClearElrRecord"}},
    "4.1.0": {"log": INELIGIBLE},
    "4.3.1": {"log": FATAL},
}
"""Messages that these versions have not printed in any run yet, and a record that Kafka 4 brought:
other versions pin them."""
ROWS = {
    "log": [row.message.pattern for row in log_parser.TABLE],
    "metadata log": list(metadata_log.TABLE),
    "metrics": [row.field for row in metrics.TABLE],
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_is_pinned_by_a_sample_of_each_version(version: str) -> None:
    lacks = {table: rows for table, rows in unpinned(*recorded(version)).items() if rows}
    assert lacks == NOT_SEEN.get(version, {})


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
