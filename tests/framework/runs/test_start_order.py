"""The order in which the nodes of a run start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, Layout, NodeStarted, Shape, Slot, System, View, kind_name
from fencepost.events import ProcessSpawned
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import Plugins, load
from fencepost.runs import run as runs
from fencepost.runs.run import Run, RunSpec
from fencepost_kafka import ControllerElected, KafkaView, Role


def _spec(plugins: Plugins, may_start: Callable[..., bool]) -> RunSpec:
    """A run of a system that has the capability. It is a class of its own: what a class can do is
    kept for good once it was asked for."""
    known = type(plugins.system("reference/quorum"))
    system: System = type("InOrder", (known,), {"may_start": may_start})()
    return RunSpec(system, Shape(), runtime="simulated", seed=3)


def _brokers_last(system: System, slot: Slot, view: View, layout: Layout) -> bool:
    return slot.role is Role.CONTROLLER or view.of(KafkaView).active_controller is not None


def _controllers_only(system: System, slot: Slot, view: View, layout: Layout) -> bool:
    return slot.role is Role.CONTROLLER


def test_a_node_starts_only_once_its_system_says_that_it_may(tmp_path: Path) -> None:
    plugins = load()
    spec = _spec(plugins, _brokers_last)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        events = list(run.runtime.events())
    elected = next(n for n, one in enumerate(events) if isinstance(one.body, ControllerElected))
    brokers = [
        n
        for n, one in enumerate(events)
        if isinstance(one.body, NodeStarted) and one.body.role == "broker"
    ]
    assert len(brokers) == 3
    assert min(brokers) > elected


def test_a_run_whose_nodes_may_not_start_ends_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = load()
    monkeypatch.setattr(runs, "START_LIMIT_MS", 5_000)
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(EnvironmentFailed):
        Run.start(_spec(plugins, _controllers_only), plugins, folder)
    written = (folder.path / "events" / "harness.ndjson").read_text().splitlines()
    bodies = [json.loads(line)["body"] for line in written]
    started = [one["slot"] for one in bodies if one["type"] == kind_name(ProcessSpawned)]
    assert started == ["controller-1", "controller-2", "controller-3"]
