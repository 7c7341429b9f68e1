"""What a release does not print is not taken for what did not happen.

Another release may print a kind of line in other words, or no more. So all events of one kind are
taken out of the history of a real run, of each kind that nodes owe: no promise is broken for it.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec import Struct

from fencepost import NodeStarted, Owed
from fencepost.events import Codec, Event
from fencepost.history import merge
from fencepost.history.run_end import RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import Promises
from fencepost.judging.judge import judge
from fencepost.judging.verdicts import Judgement, Outcome
from fencepost.plugins.manager import load
from fencepost_kafka import (
    ControllerElected,
    FollowingStarted,
    HeartbeatAnswered,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LogAppended,
    MetadataApplied,
)
from fencepost_kafka.judging.owed import EVERY

KEPT = files("fencepost_clusters.apache_kafka") / "findings/refused-duplicate-follows"
UNKNOWN: Mapping[type[Struct], frozenset[str]] = {
    LogAppended: frozenset({"RP-27"}),
    HighWatermarkAdvanced: frozenset({"RP-31", "RP-09", "RP-27"}),
    LeadershipStarted: frozenset({"RP-31", "KR-34"}),
    FollowingStarted: frozenset({"KR-34"}),
    MetadataApplied: frozenset({"REG-04"}),
    HeartbeatAnswered: frozenset({"QC-16"}),
    ControllerElected: frozenset({"KR-08", "QC-22"}),
    NodeStarted: frozenset({"KR-09", "QC-08", "QC-07"}),
}
"""A kind -> the clauses that read its absence. Of the kinds that are not here a clause only reads
that they are there: without them it is not exercised."""


class Real:
    """The history of a run of Kafka, and its judgement without some of its events."""

    def __init__(self, path: Path) -> None:
        self.promises: Promises = load().promises
        path.mkdir()
        for name in ("run.json", "damage.json"):
            (path / name).write_bytes((Path(str(KEPT)) / name).read_bytes())
        packed = (Path(str(KEPT)) / "history.ndjson.gz").read_bytes()
        (path / "history.ndjson").write_bytes(gzip.decompress(packed))
        reading = merge.read(RunFolder(path), Codec(self.promises.kinds))
        self.events: list[Event] = list(reading)
        self.end: RunEnd = reading.end

    def without(self, kind: type[Struct] | None) -> Judgement:
        kept = [event for event in self.events if type(event.body) is not kind]
        assert kind is None or len(kept) < len(self.events)
        rules, clauses = self.promises.rules, self.promises.clauses
        return judge(kept, rules, clauses, self.end, "kraft", release="apache/kraft 9.9.9")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    return Real(tmp_path_factory.mktemp("kept") / "run")


@pytest.fixture(scope="module")
def whole(real: Real) -> Judgement:
    return real.without(None)


@pytest.mark.parametrize("owed", EVERY, ids=lambda one: one.kind.__name__)
def test_a_kind_that_a_release_does_not_print_breaks_no_promise(
    owed: Owed, real: Real, whole: Judgement
) -> None:
    found = real.without(owed.kind)
    broken = set(found.of(Outcome.VIOLATED)) - set(whole.of(Outcome.VIOLATED))
    assert broken == set()
    because = (
        f"apache/kraft 9.9.9 printed no {owed.kind.__struct_config__.tag}, though {owed.since}"
    )
    named = {
        clause
        for clause, verdict in found.verdicts.items()
        if verdict.verdict is Outcome.UNKNOWN and because in verdict.reason
    }
    assert named == UNKNOWN.get(owed.kind, frozenset())
