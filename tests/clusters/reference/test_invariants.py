"""What holds after every single step of the cores, whatever strikes them; no event is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fencepost import Shape, SimulatedProcess, random_schedule
from fencepost.plugin_manager import Plugins, load
from fencepost.run import Run, RunSpec
from fencepost.run_folder import RunFolder
from fencepost.simulated_network import STORM
from fencepost.simulated_runtime import SimulatedRuntime
from fencepost_clusters.reference.core.broker import BrokerNode
from fencepost_clusters.reference.core.controller import ControllerNode
from fencepost_clusters.reference.simulation.shell import Shell

SPAN_MS = 15_000


@dataclass
class Invariants:
    """Remembers what was seen of the cluster, and asserts that what is seen now agrees with it."""

    steps: int = 0
    active: dict[int, str] = field(default_factory=dict)
    """controller epoch -> the one process that led it."""
    epochs: dict[str, int] = field(default_factory=dict)
    committed: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """offset of a committed batch of metadata -> its end and its bytes, for all nodes for ever."""
    seen: dict[str, int] = field(default_factory=dict)
    leaders: dict[tuple[object, int, int], int] = field(default_factory=dict)
    """(topic id, partition, leader epoch) -> the one broker id that led it."""

    def look(self, processes: Mapping[str, SimulatedProcess]) -> None:
        """After every step."""
        self.steps += 1
        for name, program in processes.items():
            assert isinstance(program, Shell)
            core = program.core
            assert isinstance(core, ControllerNode | BrokerNode)
            self._quorum(name, core)
            if isinstance(core, BrokerNode):
                self._replicas(name, core)

    def _quorum(self, name: str, core: ControllerNode | BrokerNode) -> None:
        raft = core.raft
        if raft.leading:
            assert self.active.setdefault(raft.epoch, name) == name, f"two led {raft.epoch}"
        assert raft.epoch >= self.epochs.get(name, 0), f"{name} went back to epoch {raft.epoch}"
        self.epochs[name] = raft.epoch
        assert raft.high_watermark <= core.log.end, name
        before = self.seen.get(name, 0)
        if raft.high_watermark > before:
            self.seen[name] = raft.high_watermark
            for batch in core.log.batches(before, raft.high_watermark):
                known = self.committed.setdefault(batch.base, (batch.end, batch.data))
                assert known == (batch.end, batch.data), f"{name} differs at {batch.base}"
        for broker in core.committed.image.brokers.values():
            assert broker.incarnation not in broker.superseded, name

    def _replicas(self, name: str, core: BrokerNode) -> None:
        for (topic, index), one in core.replicas.by_key.items():
            assert 0 <= one.high_watermark <= one.log.end, f"{name}: {one.name}"
            if one.leading:
                key = (topic, index, one.epoch)
                led = self.leaders.setdefault(key, core.settings.node_id)
                assert led == core.settings.node_id, f"two lead {one.name} in epoch {one.epoch}"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def conduct(seed: int, plugins: Plugins, folder: Path, *defects: str) -> Invariants:
    """A random schedule in a storm, watched; then everything heals, and must recover."""
    invariants = Invariants()
    system = plugins.system("reference/quorum")
    made = RunFolder.create(folder)
    shape = Shape(defects=defects)
    runtime = SimulatedRuntime(system, shape, made, seed=seed, weather=STORM, watch=invariants.look)
    spec = RunSpec(system, shape, "simulated", seed)
    with Run(runtime, spec, plugins, made) as run:
        run._start_nodes()
        random_schedule.load(run)
        random_schedule.conduct(run, seed, SPAN_MS, plugins.faults)
        result = run.finish()
    assert result.recovered is not None
    assert result.recovered.recovered, result.recovered.missing
    return invariants


@pytest.mark.parametrize("seed", [501, 502, 503])
def test_the_invariants_hold_after_every_step(seed: int, plugins: Plugins, tmp_path: Path) -> None:
    invariants = conduct(seed, plugins, tmp_path / "run")
    assert invariants.steps > 5_000
    assert len(invariants.committed) > 20
    assert len(invariants.leaders) >= 6


def test_the_invariants_can_be_broken(plugins: Plugins, tmp_path: Path) -> None:
    """Or they would prove nothing: a voter that votes twice makes two leaders of one epoch."""

    def until_broken() -> None:
        for seed in range(1, 30):
            conduct(seed, plugins, tmp_path / f"run-{seed}", "votes-twice", "elects-shorter-log")

    with pytest.raises(AssertionError, match=r"two led|differs at|two lead"):
        until_broken()
