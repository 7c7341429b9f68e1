"""What a fault did is on its event, as the runtime saw it, whatever its name is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost import (
    HARMS_DISK,
    HARMS_FLUSHED,
    HEALTHY,
    Cut,
    Effect,
    Excuses,
    FaultInjected,
    Injected,
    LinkState,
    Receipt,
    Runtime,
    Signal,
)
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec


@dataclass(frozen=True)
class Stranger:
    """A fault of somebody else's plugin, by a name that nobody here knows."""

    what: str
    name: str = "bite"

    def inject(self, runtime: Runtime) -> Injected:
        one, other = (runtime.layout.slot(f"broker-{number}") for number in (1, 2))
        pair = frozenset({(one.name, other.name)})
        links = [link for link in runtime.layout.links if (link.source, link.target) in pair]
        if self.what == "sever":
            receipt = runtime.apply_cut(pair)
            return self._of_links(pair, receipt, lambda: runtime.lift_cut(pair))
        if self.what == "delay":
            receipt = runtime.set_links(links, LinkState(latency_ms=300))
            return self._of_links(pair, receipt, lambda: runtime.set_links(links, HEALTHY))
        process = runtime.living(one)
        assert process is not None
        signal = {"still": Signal.STOP, "dead": Signal.KILL, "empty": Signal.KILL}[self.what]
        receipt = runtime.signal(process, signal)
        if self.what == "empty":
            runtime.copy_disk(None, one)
        return Injected((process.name,), receipt, lambda: self._again(runtime))

    @staticmethod
    def _of_links(pair: Cut, receipt: Receipt, heal: Callable[[], Receipt]) -> Injected:
        return Injected(("broker-1", "broker-2"), receipt, heal, directions=pair)

    def _again(self, runtime: Runtime) -> Receipt:
        slot = runtime.layout.slot("broker-1")
        process = runtime.living(slot)
        if process is None:
            runtime.start(slot)
            return Receipt(True, "it runs")
        return runtime.signal(process, Signal.CONT)

    def arguments(self) -> Mapping[str, object]:
        return {"what": self.what}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system("reference/quorum"), runtime="simulated")
    with Run.start(spec, plugins, folder) as started:
        yield started


def injected(run: Run) -> FaultInjected:
    """The newest fault's event."""
    return [e.body for e in run.runtime.events() if isinstance(e.body, FaultInjected)][-1]


@pytest.mark.parametrize(
    ("what", "effects"),
    [
        ("sever", ("severs broker-1 -> broker-2",)),
        ("delay", ("slows broker-1 -> broker-2", "slows broker-2 -> broker-1")),
        ("still", ("stops broker-1",)),
        ("dead", ("ends broker-1",)),
        ("empty", ("ends broker-1", "empties-disk broker-1")),
    ],
)
def test_a_strangers_fault_has_the_effects_of_what_it_did(
    what: str, effects: Sequence[str], run: Run
) -> None:
    active = run.faults.inject(Stranger(what))
    assert injected(run).effects == effects
    active.heal()
    assert injected(run).effects == effects, "healing adds none"


def test_a_strangers_cut_is_taken_for_a_cut(run: Run) -> None:
    run.faults.inject(Stranger("sever"))
    faults = Excuses()
    for event in run.runtime.events():
        if isinstance(event.body, FaultInjected):
            faults.take(event)
    (cut,) = faults.now.values()
    assert cut.severs
    assert cut.directions == {("broker-1", "broker-2")}


def test_a_strangers_empty_disk_lacks_what_was_flushed(run: Run) -> None:
    run.faults.inject(Stranger("empty"))
    assert injected(run).acts(*HARMS_FLUSHED) == {"broker-1"}
    run.faults.heal_all()
    run.faults.inject(Stranger("dead"))
    assert not injected(run).acts(*HARMS_DISK)


@pytest.mark.parametrize(
    ("name", "arguments", "effects"),
    [
        ("cut", {"sources": "broker-1", "targets": "broker-2"}, {"severs broker-1 -> broker-2"}),
        ("pause", {"node": "broker-1"}, {"stops broker-1"}),
        ("kill", {"node": "broker-1"}, {"ends broker-1"}),
        ("terminate", {"node": "broker-1"}, {"ends broker-1"}),
        ("bounce", {"node": "broker-1", "after_ms": 100}, {"ends broker-1"}),
        ("wipe_disk", {"node": "broker-1"}, {"ends broker-1", "empties-disk broker-1"}),
        (
            "damage_disk",
            {"node": "broker-1", "files": "*.log", "last_bytes": 1},
            {"ends broker-1", "damages-disk broker-1"},
        ),
        ("lose_power", {"node": "broker-1"}, {"ends broker-1", "loses-unflushed broker-1"}),
        ("duplicate_id", {"node": "broker-1"}, {"doubles broker-1"}),
    ],
)
def test_our_own_faults_have_the_same_effects_as_their_names_had(
    name: str, arguments: Mapping[str, object], effects: set[str], run: Run
) -> None:
    """By their names, histories of before effects were written are judged."""
    run.faults.inject_named(name, arguments)
    body = injected(run)
    assert set(body.effects) == effects
    old = FaultInjected(
        fault_id=body.fault_id,
        fault=name,
        targets=body.targets,
        receipt=True,
        evidence="",
        directions=body.directions,
    )
    judged = set(Effect) - {Effect.ENDS}
    assert {one: bool(old.acts(one)) for one in judged} == {
        one: bool(body.acts(one)) for one in judged
    }
