"""While recovery is awaited, processes that have lost their ids for good are replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import pytest

from fencepost import Cluster, Layout, Slot, View
from fencepost.runs.run import Run
from fencepost.testing import kit

NAME = "broker-2"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("shared")
    with kit.started("reference/quorum", folder, runtime="simulated") as run:
        yield run


@dataclass(frozen=True, slots=True)
class Loses:
    """A system in which the process of broker 2 has lost its id, if it is one of these."""

    lost: Callable[[str], bool]

    def superseded(self, view: View, layout: Layout) -> Collection[Slot]:
        return [layout.slot(NAME)] if self.lost(view.newest[NAME]) else []


def recovered_after(run: Run, lost: Callable[[str], bool]) -> tuple[bool, str]:
    """Whether the cluster recovered, and the process of broker 2 after that."""
    base = run.base
    bound_ms = base.recovery_bound_ms
    cluster = Cluster(run.runtime, base.missing, bound_ms, base.shape, Loses(lost))
    return cluster.await_recovery().recovered, run.runtime.view.newest[NAME]


def test_a_process_that_has_lost_its_id_is_replaced(simulated: Run) -> None:
    first = simulated.runtime.view.newest[NAME]
    recovered, process = recovered_after(simulated, lambda one: one == first)
    assert recovered
    assert process != first
    assert recovered_after(simulated, lambda one: one == first) == (True, process)


def test_a_slot_gets_the_next_process_once_each_time(simulated: Run) -> None:
    first = simulated.runtime.view.newest[NAME]
    recovered, process = recovered_after(simulated, lambda _: True)
    assert recovered
    number = int(first.partition("#")[2])
    assert process == f"{NAME}#{number + 1}"
