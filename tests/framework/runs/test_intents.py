"""A fault is in the history and in the schedule before its first effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, FaultInjected, FaultIntended, Injected, Runtime, UsageError
from fencepost.events.words import fault_in_words
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs import schedule
from fencepost.runs.run import Run, RunSpec


@dataclass(frozen=True)
class Fatal:
    """A fault of which the run dies, such as a second process that ends while it is started."""

    error: Exception
    name: str = "duplicate_id"

    def inject(self, runtime: Runtime) -> Injected:
        raise self.error

    def arguments(self) -> Mapping[str, object]:
        return {"node": "broker-1", "disk": "copy"}


def test_a_run_that_dies_of_a_fault_shows_it_and_replays_it(tmp_path: Path) -> None:
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated")
    with Run.start(spec, plugins, folder) as run:
        run.faults.pause("broker-2").heal()
        with pytest.raises(EnvironmentFailed, match="it ended"):
            run.faults.inject(Fatal(EnvironmentFailed("it ended")))
        intended = [e.body for e in run.runtime.events() if isinstance(e.body, FaultIntended)]
        assert [one.fault_id for one in intended] == ["pause-1", "duplicate_id-2"]
        assert (
            intended[1].sentence()
            == "duplicate_id (disk copy, node broker-1) begins (duplicate_id-2)"
        )
        last = schedule.read(folder.schedule).injections[-1]
        assert (last.fault, last.receipt, last.for_ms) == ("duplicate_id", False, None)
        assert last.arguments == {"node": "broker-1", "disk": "copy"}
        again = run.faults.kill("broker-3")
        assert again.fault_id == "kill-3"
        again.heal()
        healed = schedule.read(folder.schedule).injections[-1]
        assert (healed.fault_id, healed.receipt) == ("kill-3", True)
        assert healed.for_ms is not None


def test_an_intent_comes_before_the_first_effect(tmp_path: Path) -> None:
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated")
    with Run.start(spec, plugins, folder) as run:
        run.faults.kill("broker-3").heal()
        kinds = [type(event.body).__name__ for event in run.runtime.events()]
        begun = kinds.index("FaultIntended")
        assert begun < kinds.index("ProcessExited") < kinds.index(FaultInjected.__name__)


def test_a_fault_without_its_target_is_in_no_schedule(tmp_path: Path) -> None:
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated")
    with Run.start(spec, plugins, folder) as run:
        with pytest.raises(UsageError):
            run.faults.kill("broker-9")
        assert schedule.read(folder.schedule).injections == ()


@pytest.mark.parametrize(
    ("fault", "arguments", "targets", "words"),
    [
        ("isolate", '{"node":"r-3"}', ("r-1", "r-3"), "isolate r-3"),
        ("cut", '{"sources":"b-1","targets":["b-2","b-3"]}', ("b-1",), "cut b-1 -> b-2, b-3"),
        ("partition", '{"left":["a","b"],"right":"c"}', ("a", "b", "c"), "partition a, b | c"),
        ("kill", '{"node":"b-1"}', ("b-1#2",), "kill b-1"),
        (
            "slow_link",
            '{"jitter_ms":0,"latency_ms":900,"rate_kb":0,"sources":["a"],"targets":["b"]}',
            ("a", "b"),
            "slow_link a -> b (latency_ms 900)",
        ),
        ("isolate", "", ("a", "b"), "isolate a, b"),
        ("storm", '{"loudness":3,"shape":{"a":1}}', ("a",), "storm (loudness 3, shape {'a': 1})"),
    ],
)
def test_a_fault_in_words(fault: str, arguments: str, targets: tuple[str, ...], words: str) -> None:
    assert fault_in_words(fault, arguments, targets) == words
