"""The log lines of brokers in ZooKeeper mode, pinned by samples of both versions.

A sample, `samples/VERSION-PROCESS.log`, holds lines of one process's log; beside it, `.events`
holds what the parser makes of them, one event a line, read by a person when it was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from fencepost import ParsedEvent, Slot
from fencepost_clusters.apache_kafka.log_lines import LogPattern
from fencepost_clusters.apache_kafka.log_memory import Configured
from fencepost_clusters.apache_kafka.log_parser import LINE, KafkaLogParser
from fencepost_clusters.apache_kafka.zookeeper_mode.cluster import VERSIONS
from fencepost_clusters.apache_kafka.zookeeper_mode.log_parser import EARLY_ROWS, OWN_ROWS, table
from fencepost_kafka import Role

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.log"))
SINCE_KIP_380 = {row.message.pattern for row in OWN_ROWS if row.logger == "KafkaApis"}
"""Lines about broker epochs, which older versions do not know."""


def parsed(sample: Path) -> Sequence[ParsedEvent]:
    """The events of a broker's log; the version and the broker's id are in the name of the
    sample."""
    version, _, broker = sample.stem.split("-")[:3]
    slot = Slot(f"broker-{broker}", Role.BROKER, int(broker), 1)
    parser = KafkaLogParser(slot, Configured(3000), table=table(version))
    return [event for line in sample.read_text().splitlines() for event in parser.parse(line)]


def shown(event: ParsedEvent) -> str:
    return f"{event.at_ns} {msgspec.json.encode(event.body).decode()}"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_recorded_log_makes_these_events(sample: Path) -> None:
    made = [shown(one) for one in parsed(sample)]
    assert made == sample.with_suffix(".events").read_text().splitlines()


def unpinned(version: str, rows: Sequence[LogPattern]) -> set[str]:
    """The rows of which no sample of a version has a line."""
    texts = [one.read_text() for one in SAMPLES if one.name.startswith(version)]
    found = [LINE.match(line) for text in texts for line in text.splitlines()]
    printed = [(one[2].rpartition(".")[2], one[3]) for one in found if one is not None]
    return {
        row.message.pattern
        for row in rows
        if not any(logger == row.logger and row.message.search(said) for logger, said in printed)
    }


def test_every_row_is_pinned_by_a_sample_of_each_version_that_prints_it() -> None:
    assert unpinned("3.9.2", OWN_ROWS) == set()
    assert unpinned("2.1.1", [*OWN_ROWS, *EARLY_ROWS]) == SINCE_KIP_380
    assert VERSIONS == ("2.1.1", "3.9.2")
