"""Random schedules of faults and administration: recorded, repeated and followed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fencepost import Codec, Condition, Event, ProcessSpawned, View
from fencepost.events import Administered, FaultInjected
from fencepost.history import merge
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import Plugins, load
from fencepost.runs import coverage, schedule
from fencepost.runs.random_schedule import Conducted, Preference, follow_one, run_one
from fencepost.runs.run import Run, RunSpec
from fencepost_kafka import AdminCompleted, PartitionCommitted, TopicCommitted
from fencepost_kafka.testing import KafkaClients

pytestmark = pytest.mark.slow

SPAN_MS = 20_000


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def spec(plugins: Plugins, system: str = "reference/quorum", seed: int = 12) -> RunSpec:
    return RunSpec(plugins.system(system), runtime="simulated", seed=seed, lossy=True)


def conducted(
    plugins: Plugins, folder: Path, preference: Preference | None = None, **of: object
) -> Conducted:
    return run_one(
        spec(plugins, **of),  # type: ignore[arg-type]
        plugins,
        RunFolder.create(folder),
        SPAN_MS,
        plugins.faults,
        preference=preference or Preference(),
    )


def history(plugins: Plugins, folder: RunFolder) -> list[Event]:
    return list(merge.read(folder, Codec(plugins.promises.kinds)))


@pytest.mark.parametrize("system", ["reference/quorum", "reference/legacy", "reference/classic"])
def test_a_schedule_asks_for_administration_and_its_record_is_followed(
    plugins: Plugins, tmp_path: Path, system: str
) -> None:
    first = conducted(plugins, tmp_path / "first", system=system)
    recorded = schedule.read(first.folder.schedule)
    assert recorded.administration
    answered = [
        e.body for e in history(plugins, first.folder) if isinstance(e.body, AdminCompleted)
    ]
    assert any(one.outcome == "ok" for one in answered)
    again = follow_one(
        spec(plugins, system), plugins, RunFolder.create(tmp_path / "again"), recorded
    )
    followed = schedule.read(again.folder.schedule)
    assert [(one.operation, one.arguments) for one in followed.administration] == [
        (one.operation, one.arguments) for one in recorded.administration
    ]
    assert [(one.fault, one.arguments) for one in followed.injections] == [
        (one.fault, one.arguments) for one in recorded.injections
    ]
    assert again.result is not None
    assert not again.result.judgement.of(Outcome.VIOLATED)


def test_a_schedule_that_is_followed_finds_the_spare_that_it_adds(
    plugins: Plugins, tmp_path: Path
) -> None:
    added = schedule.Asked(at_ms=2_000, operation="add_broker", arguments={"broker": 4})
    planned = schedule.Schedule(administration=(added,))
    ran = follow_one(spec(plugins), plugins, RunFolder.create(tmp_path / "run"), planned)
    assert not ran.trouble
    started = [e.body for e in history(plugins, ran.folder) if isinstance(e.body, ProcessSpawned)]
    assert "broker-4#1" in {one.started for one in started}


def test_the_coverage_of_a_run_is_a_function_of_its_history(
    plugins: Plugins, tmp_path: Path
) -> None:
    one = conducted(plugins, tmp_path / "one")
    assert one.met
    assert one.met == coverage.counts(coverage.met(history(plugins, one.folder)))


def operations(plugins: Plugins, folder: RunFolder) -> list[tuple[str, str]]:
    return [
        (
            body.fault if isinstance(body, FaultInjected) else body.operation,
            body.arguments,
        )
        for e in history(plugins, folder)
        if isinstance(body := e.body, FaultInjected | Administered)
    ]


def test_a_seed_and_what_earlier_runs_met_decide_the_schedule(
    plugins: Plugins, tmp_path: Path
) -> None:
    runs = [conducted(plugins, tmp_path / name) for name in "ab"]
    known = Preference(runs[0].met)
    runs += [conducted(plugins, tmp_path / name, known) for name in "cd"]
    drawn = [operations(plugins, run.folder) for run in runs]
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]
    assert schedule.read(runs[2].folder.schedule).met == known.met


def test_an_operation_with_the_weight_0_is_never_drawn(plugins: Plugins, tmp_path: Path) -> None:
    names: Counter[str] = Counter()
    weights = {"kill": 0.0, "reassign": 0.0, "pause": 1_000.0}
    for seed in (1, 2):
        run = conducted(plugins, tmp_path / str(seed), Preference(weights=weights), seed=seed)
        names.update(name for name, _ in operations(plugins, run.folder))
    assert names["pause"]
    assert not names.keys() & {"kill", "reassign"}


def deleted(view: View) -> bool:
    """Whether the newest record of a topic that some node has replayed is a deletion."""
    records = (one.body for one in view.latest.values())
    return any(isinstance(one, TopicCommitted) and one.deleted for one in records)


@pytest.mark.parametrize("system", ["reference/quorum", "reference/legacy", "reference/classic"])
def test_the_record_of_a_deletion_comes_after_those_of_the_topics_partitions(
    plugins: Plugins, tmp_path: Path, system: str
) -> None:
    """By their positions, by which rules order records that nodes replay at different times."""
    folder = RunFolder.create(tmp_path / "run")
    with Run.start(spec(plugins, system), plugins, folder) as run:
        assert isinstance(run.clients, KafkaClients)
        run.clients.create_topic("orders")
        run.clients.delete_topic("orders")
        run.base.eventually(Condition("the topic to be deleted", deleted))
        run.finish()
    bodies = [event.body for event in history(plugins, folder)]
    last = max(one.offset for one in bodies if isinstance(one, PartitionCommitted))
    gone = {one.offset for one in bodies if isinstance(one, TopicCommitted) and one.deleted}
    assert len(gone) == 1
    assert min(gone) > last
