"""The promises of availability in simulated runs: a healthy cluster keeps them, and a cluster that
breaks one is found by the rule of that promise, on every plane."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fencepost.history.run_folder import RunFolder
from fencepost.model.runtime import let_pass_until
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost.testing import Outcome
from fencepost_kafka import kafka_shape
from fencepost_kafka.facade.cluster import KafkaCluster

DEAD_MS = 22_000
"""Longer than every bound of a death, on every plane."""
CONTROLLERS = ("controller-1", "controller-2", "controller-3")
PLANES = ("reference/quorum", "reference/legacy", "reference/classic")


def _standby(cluster: KafkaCluster) -> str:
    acting = cluster.active_controller.name
    return next(one for one in CONTROLLERS if one != acting)


def outcomes(
    folder: Path, system: str, *defects: str, bounced: bool = False
) -> Mapping[str, Outcome]:
    """The verdicts on availability, after a broker was dead for long under load, and another one
    was asked to end. A standby may be bounced all that time."""
    plugins = load()
    spec = RunSpec(
        plugins.system(system), kafka_shape(defects=defects), runtime="simulated", seed=3
    )
    with Run.start(spec, plugins, RunFolder.create(folder / "run")) as run:
        cluster = run.cluster
        assert isinstance(cluster, KafkaCluster)
        clients = run.clients
        clients.create_topic("orders")
        clients.produce("orders")
        clients.consume("orders")
        run.faults.kill(cluster.leader("orders", 0))
        from_ns = run.runtime.now_ns()
        for at_ms in range(3_000, DEAD_MS if bounced else 0, 3_000):
            with run.faults.kill(_standby(cluster)):
                let_pass_until(run.runtime, from_ns + (at_ms - 1_000) * 1_000_000)
            let_pass_until(run.runtime, from_ns + at_ms * 1_000_000)
        let_pass_until(run.runtime, from_ns + DEAD_MS * 1_000_000)
        run.faults.terminate(cluster.leader("orders", 0)).heal()
        verdicts = run.finish().judgement.verdicts
    return {c: v.verdict for c, v in verdicts.items() if c.startswith("AVAIL")}


@pytest.mark.parametrize("system", PLANES)
def test_a_healthy_cluster_keeps_every_promise(system: str, tmp_path: Path) -> None:
    found = outcomes(tmp_path, system)
    assert set(found.values()) == {Outcome.HOLDS}


@pytest.mark.parametrize("defect", ["never-fences", "fenced-broker-keeps-leading"])
def test_a_defect_is_found_by_the_promises_that_it_breaks(defect: str, tmp_path: Path) -> None:
    found = outcomes(tmp_path, "reference/quorum", defect)
    violated = {clause for clause, outcome in found.items() if outcome is Outcome.VIOLATED}
    assert violated == {"AVAIL-fenced", "AVAIL-writable"}


@pytest.mark.parametrize(
    ("defects", "outcome"),
    [((), Outcome.HOLDS), (("never-fences",), Outcome.VIOLATED)],
    ids=["healthy", "never fences"],
)
def test_a_bounced_standby_hides_no_dead_broker(
    defects: tuple[str, ...], outcome: Outcome, tmp_path: Path
) -> None:
    found = outcomes(tmp_path, "reference/quorum", *defects, bounced=True)
    assert found["AVAIL-fenced"] is outcome
