"""Invariants that hold after every single step of the cores, under any faults; no event is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from fencepost import Shape, SimulatedProcess
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.system.subject import Subject
from fencepost.plugins.manager import Plugins, load
from fencepost.runs import random_schedule
from fencepost.runs.run import Run, RunResult, RunSpec
from fencepost.runtimes.simulated.network import LOSSY
from fencepost.runtimes.simulated.runtime import SimulatedRuntime
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.quorum.broker.broker import BrokerNode
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.core.quorum.raft.raft import Role
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.core.replication.cluster_state import Broker
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.simulation.disk import MemoryDisk
from fencepost_clusters.reference.simulation.shell import Shell

pytestmark = pytest.mark.slow

SPAN_MS = 15_000
OFTEN = {"metadata.snapshot.interval.records": "20", "metadata.snapshot.slice.records": "2"}
"""Snapshots are taken all the time."""


@dataclass
class Invariants:
    """Remembers earlier states of the cluster, and asserts that the present state agrees with
    them."""

    steps: int = 0
    active: dict[int, str] = field(default_factory=dict)
    """controller epoch -> the one process that led it."""
    epochs: dict[str, int] = field(default_factory=dict)
    """Slot of a voter, or process of an observer -> the newest epoch it was in.

    A voter stores its epoch, which is never older after a restart. A broker has no vote, nor has a
    controller that was removed, and stores none: it starts in the last epoch of its metadata log,
    whose end a power loss removes, or in the last one in which it had a vote."""
    committed: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """offset of a committed batch of metadata -> its end and its bytes, for all nodes for ever."""
    seen: dict[str, int] = field(default_factory=dict)
    leaders: dict[tuple[object, int, int], int] = field(default_factory=dict)
    """(topic id, partition, leader epoch) -> the one broker id that led it."""
    replayed: dict[str, tuple[int, dict[object, int]]] = field(default_factory=dict)
    """slot -> how far it has replayed, and the epochs of brokers and partitions it knew there."""
    registered: dict[int, tuple[int, UUID | None]] = field(default_factory=dict)
    """broker id -> the newest broker epoch and whose it is."""
    superseded: set[tuple[int, UUID | None]] = field(default_factory=set)
    """(broker id, incarnation) that another incarnation took the id from."""
    messages: dict[tuple[object, int, int], tuple[int, bytes]] = field(default_factory=dict)
    """(topic id, partition, offset) of a batch below a leader's high watermark -> its end and its
    bytes, under any leader."""
    read_up_to: dict[tuple[str, object, int, int], int] = field(default_factory=dict)
    """(process, topic id, partition, leader epoch) -> the offset up to which `messages` was
    checked."""

    def look(self, processes: Mapping[str, SimulatedProcess]) -> None:
        """After every step."""
        self.steps += 1
        for name, program in processes.items():
            assert isinstance(program, Shell)
            core = program.core
            assert isinstance(core, ControllerNode | BrokerNode)
            self._quorum(name, core)
            if isinstance(core, BrokerNode):
                self._replicas(name, core, program._disk)

    def _quorum(self, name: str, core: ControllerNode | BrokerNode) -> None:
        raft, slot = core.raft, name.partition("#")[0]
        if raft.leading:
            assert self.active.setdefault(raft.epoch, name) == name, f"two led {raft.epoch}"
        lasting = name if raft.role is Role.OBSERVER else slot
        if raft.epoch == core.log.end == 0:  # its disk is new, or was emptied
            self.epochs.pop(lasting, None)
        assert raft.epoch >= self.epochs.get(lasting, 0), f"{name} went back to epoch {raft.epoch}"
        self.epochs[lasting] = raft.epoch
        assert raft.high_watermark <= core.log.end, name
        before = self.seen.get(name, 0)
        if raft.high_watermark > before:
            self.seen[name] = raft.high_watermark
            for batch in core.log.batches(before, raft.high_watermark):
                known = self.committed.setdefault(batch.base, (batch.end, batch.data))
                assert known == (batch.end, batch.data), f"{name} differs at {batch.base}"
        image = core.committed.image
        offset, _ = self.replayed.get(slot, (0, {}))
        if image.offset > offset:  # a process that has just begun replays what its slot knew before
            self._metadata(name, slot, image)

    def _metadata(self, name: str, slot: str, image: Image) -> None:
        _, before = self.replayed.get(slot, (0, {}))
        now: dict[object, int] = {one.id: one.epoch for one in image.brokers.values()}
        now |= {(one.topic_id, one.index): one.leader_epoch for one in image.all_partitions()}
        back = [key for key in before if now.get(key, before[key]) < before[key]]
        assert not back, f"{name} went back in the epochs of {back}"
        self.replayed[slot] = image.offset, before | now
        for one in image.brokers.values():
            epoch, incarnation = self.registered.get(one.id, (-1, one.incarnation))
            if one.epoch > epoch:
                self.registered[one.id] = one.epoch, one.incarnation
                if one.incarnation != incarnation:
                    self.superseded.add((one.id, incarnation))
                returned = (one.id, one.incarnation) in self.superseded
                assert not returned, f"{one.incarnation} is broker {one.id} again"

    def _replicas(self, name: str, core: BrokerNode, disk: MemoryDisk) -> None:
        for (topic, index), one in core.data.replicas.by_key.items():
            assert 0 <= one.high_watermark <= one.log.end, f"{name}: {one.name}"
            if one.leading:
                key = (topic, index, one.epoch)
                led = self.leaders.setdefault(key, core.settings.node_id)
                assert led == core.settings.node_id, f"two lead {one.name} in epoch {one.epoch}"
                self._messages(name, one, disk)

    def _messages(self, name: str, one: Replica, disk: MemoryDisk) -> None:
        topic, index = one.partition.topic_id, one.index
        read_up_to = self.read_up_to.get((name, topic, index, one.epoch), 0)
        if one.high_watermark <= read_up_to:
            return
        self.read_up_to[name, topic, index, one.epoch] = one.high_watermark
        log = disk.logs[one.name]
        for base, end, data in zip(log.bases, log.ends, log.batches, strict=True):
            if read_up_to <= base < one.high_watermark:
                known = self.messages.setdefault((topic, index, base), (end, data))
                assert known == (end, data), f"{name} has another {one.name} at {base}"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def conduct(
    seed: int,
    plugins: Plugins,
    folder: Path,
    *defects: str,
    settings: Mapping[str, str] | None = None,
) -> tuple[Invariants, RunResult]:
    """A random schedule on a lossy network, watched; then everything heals."""
    invariants = Invariants()
    system = plugins.system("reference/quorum")
    made = RunFolder.create(folder)
    shape = Shape(settings=settings or {}, defects=defects)
    runtime = SimulatedRuntime(
        Subject(system, shape, seed), made, profile=LOSSY, watch=invariants.look
    )
    spec = RunSpec(system, shape, "simulated", seed)
    with Run(runtime, spec, plugins, made) as run:
        run._start_nodes()
        run.clients.load()
        random_schedule.conduct(run, seed, SPAN_MS, plugins.faults)
        result = run.finish()
    return invariants, result


@pytest.mark.parametrize(
    ("seed", "settings"), [(501, {}), (502, {}), (503, OFTEN)], ids=["501", "502", "503-snapshots"]
)
def test_the_invariants_and_all_promises_hold(
    seed: int, settings: Mapping[str, str], plugins: Plugins, tmp_path: Path
) -> None:
    """The invariants after every step, the promises at the end."""
    invariants, result = conduct(seed, plugins, tmp_path / "run", settings=settings)
    assert result.recovered is not None
    assert result.recovered.recovered, result.recovered.missing
    assert not result.judgement.of(Outcome.VIOLATED)
    assert not result.judgement.of(Outcome.UNKNOWN)
    assert invariants.steps > 5_000
    assert len(invariants.committed) > 20
    assert len(invariants.leaders) >= 6
    assert len(invariants.messages) > 20
    assert invariants.superseded


@pytest.mark.parametrize(
    ("defects", "message", "first"),
    [
        (("votes-twice", "elects-shorter-log"), r"two led|differs at|two lead", 11),
        (("reuses-broker-epochs",), "went back in the epochs of", 3),
        (("elects-outside-isr",), "has another", 9),
    ],
)
def test_the_invariants_can_be_broken(
    defects: tuple[str, ...], message: str, first: int, plugins: Plugins, tmp_path: Path
) -> None:
    """Shows that the invariants can fail: a voter that votes twice makes two leaders of one
    epoch. `first` is a seed that shows it soon, to save time; if it does not, later ones may."""

    def until_broken() -> None:
        for seed in range(first, first + 30):
            conduct(seed, plugins, tmp_path / f"run-{seed}", *defects)

    with pytest.raises(AssertionError, match=message):
        until_broken()


def test_a_restart_that_forgets_its_epoch_is_seen(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = MemoryDisk.stored
    monkeypatch.setattr(MemoryDisk, "stored", lambda disk: replace(stored(disk), vote=Vote()))
    with pytest.raises(AssertionError, match=r"#\d went back to epoch"):
        conduct(502, plugins, tmp_path / "run")


def test_an_incarnation_that_lost_its_id_and_has_it_again_is_seen() -> None:
    invariants = Invariants()

    def registered(epoch: int, incarnation: int) -> None:
        image = Image()
        image.offset = epoch + 1
        image.brokers[1] = Broker(
            id=1,
            epoch=epoch,
            fenced=True,
            incarnation=UUID(int=incarnation),
            endpoints=(),
            registered_at=epoch,
        )
        invariants._metadata("controller-1#1", "controller-1", image)

    for epoch, incarnation in enumerate((7, 7, 8, 9, 9)):
        registered(epoch, incarnation)
    with pytest.raises(AssertionError, match="is broker 1 again"):
        registered(5, 7)
