"""Where histories come from: runs in the simulator, healthy or with a planted defect, and recorded
ones."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - a seeded stream is passed in
from tempfile import TemporaryDirectory

from fencepost import Codec, Shape
from fencepost.history import merge
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import Promises
from fencepost.model.system.capabilities import HasDefects
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, new_folder
from second_readings.families import Family
from second_readings.mutations import changed, cut, keys_of
from second_readings.reading import History

SPAN_MS = 12_000
HARMLESS = frozenset(
    {
        *("bridge", "cut", "cut_from_controllers", "cut_from_role", "halves", "hold", "isolate"),
        *("isolate_role", "kill", "partition", "pause", "slow_link", "terminate", "bounce"),
    }
)
"""Faults that take nothing from a disk: what is written under them stays promised."""
HEALTHY = 0.35
"""How often a run has no planted defect."""
PEACEFUL = 0.2
"""How often a run has no faults."""
_ROOT = Path(__file__).parent.parent.parent
FINDINGS = _ROOT / "clusters/fencepost_clusters/apache_kafka/findings"
KEPT_RUNS = (FINDINGS, Path(__file__).parent / "runs")
"""Recorded runs that are kept in the tree: of Apache Kafka, and of etcd."""


def recorded(folder: Path, plugins: Plugins) -> History:
    """The history of a recorded run."""
    packed = folder / "history.ndjson.gz"
    if packed.exists():  # as findings are kept
        with TemporaryDirectory(prefix="fencepost-readings-") as unpacked:
            for file in folder.iterdir():
                shutil.copy(file, unpacked)
            (Path(unpacked) / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
            (Path(unpacked) / packed.name).unlink()
            return recorded(Path(unpacked), plugins)
    run, promises = RunFolder(folder), plugins.promises
    reading = merge.read(run, Codec(promises.kinds))
    events = tuple(reading)
    return History(events, reading.end, promises.plane(run.info().system))


def runs_below(root: Path) -> Iterator[Path]:
    """The folder of every run below a folder that has a history."""
    for info in sorted(root.rglob("run.json")):
        if any(info.parent.glob("history.ndjson*")):
            yield info.parent


def recorded_below(root: Path, plugins: Plugins) -> Iterator[tuple[str, History]]:
    """Every run below a folder that has a history, with its name."""
    for folder in runs_below(root):
        yield folder.name, recorded(folder, plugins)


def simulated(
    systems: Sequence[str], clauses: Collection[str], plugins: Plugins, random: Random
) -> tuple[str, History] | None:
    """A run of one of these systems in the simulator, healthy or with a defect that breaks one of
    these clauses, and its name; None if the run never got ready."""
    name = random.choice(systems)
    system = plugins.system(name)
    assert isinstance(system, HasDefects)
    breaking = [
        defect.name
        for defect in system.defects()
        if "simulated" not in defect.unseen and set(defect.breaks) & set(clauses)
    ]
    defects: Sequence[str] = ()
    if random.random() >= HEALTHY and breaking:
        defects = (random.choice(breaking),)
    offered = set(plugins.faults) if random.random() < 0.5 else HARMLESS & set(plugins.faults)
    if random.random() < PEACEFUL:
        offered = set()
    seed = random.randrange(1, 1 << 30)
    spec = RunSpec(system, Shape(defects=tuple(defects)), "simulated", seed, lossy=True)
    with TemporaryDirectory(prefix="fencepost-readings-") as out:
        folder = new_folder(Path(out), f"random-{seed}")
        conducted = run_one(spec, plugins, folder, SPAN_MS, sorted(offered))
        if conducted.result is None:
            return None
        return f"{name} {seed} {' '.join(defects)}".rstrip(), recorded(folder.path, plugins)


def run_of(
    family: Family, plugins: Plugins, random: Random, kept: Sequence[tuple[str, History]]
) -> tuple[str, History] | None:
    """A run of which histories of a family are made: one of those that are kept, or a new one."""
    own = [one for one in kept if one[1].plane in family.recorded]
    if own and (not family.systems or random.random() < 0.3):
        return random.choice(own)
    if not family.systems:
        return None
    return simulated(family.systems, family.clauses, plugins, random)


def histories(
    family: Family, promises: Promises, run: History, random: Random, count: int
) -> Iterator[History]:
    """Histories that are made of one run: cut to a key, and changed."""
    keys = keys_of(run, family.key)
    kinds = family.kinds(promises)
    for _ in range(count):
        key = random.choice(keys) if keys else ()
        part = cut(run, kinds, key, random, window=family.window, most=family.most)
        yield changed(part, random, family.by_harness)
