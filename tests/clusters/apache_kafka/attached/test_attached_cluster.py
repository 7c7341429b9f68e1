"""A cluster that runs already: attached to, struck, judged, left, and compared with what it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clusters.apache_kafka.attached.stranger import (
    NODES,
    Stranger,
    make_topic,
    stranger,
    topics_of,
    whole,
)

from fencepost.events import NodeStarted
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.model.clock import poll
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost.runtimes.attached.nodes import started_at
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_clusters.apache_kafka.distribution import cache

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (cache(os.environ) / DEFAULT_VERSION / "lib").is_dir() or not shutil.which("go"),
        reason="Apache Kafka is not installed, or Go is not, which builds a plain toxiproxy",
    ),
]
THEIRS = "payments"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    with stranger(tmp_path_factory.mktemp("stranger")) as found:
        make_topic(found, THEIRS)
        # A toxic of the stranger's own has to be there afterwards.
        body = {"name": "slow", "type": "latency", "attributes": {"latency": 1}}
        found.ask("/proxies/clients-2/toxics", "POST", body)
        yield found


def spec_of(plugins: Plugins, file: Path) -> RunSpec:
    return RunSpec(plugins.system(f"apache/attached@{file}"), runtime="attached")


def state_of(stack: Stranger) -> object:
    """All that a run may not change: proxies, topics, and which processes run."""
    running = {n: started_at(stack.pid(n)) is not None for n in NODES}
    return stack.ask("/proxies"), topics_of(stack), running


def test_a_strangers_cluster_is_struck_judged_and_left_as_it_was(
    stack: Stranger, plugins: Plugins, tmp_path: Path
) -> None:
    before = state_of(stack)
    pids = {n: stack.pid(n) for n in NODES}
    with Run.start(
        spec_of(plugins, stack.attach_file()), plugins, RunFolder.create(tmp_path / "run")
    ) as run:
        run.clients.load()
        run.enter("inject")
        with run.faults.cut("clients", "broker-1") as cut:
            assert cut.receipt.true, cut.receipt.evidence
            shown = stack.ask("/proxies/clients-1/toxics")
            assert isinstance(shown, list)
            assert [(one["name"], one["type"]) for one in shown] == [
                ("fencepost-cut-upstream", "timeout")
            ]
        with run.faults.slow_link("clients", "broker-2", latency_ms=50) as slow:
            assert slow.receipt.true, slow.receipt.evidence
        for name in ("broker-2", "broker-3"):  # the last one may be a container
            with run.faults.pause(name) as pause:
                assert pause.receipt.true, pause.receipt.evidence
        with run.faults.kill("broker-3") as kill:
            assert kill.receipt.true, kill.receipt.evidence
        with pytest.raises(UsageError, match="no proxy lies between broker-"):
            run.faults.partition("broker-1", ["broker-2", "clients"])
        with pytest.raises(UsageError, match="'wipe_disk' does not exist here"):
            run.faults.wipe_disk("broker-1")
        with pytest.raises(UsageError, match="'hold' does not exist here"):
            run.faults.hold("clients", "broker-1", apis="Produce")
        with pytest.raises(UsageError, match="is not this run's to change"):
            run.clients.produce(THEIRS)
        result = run.finish()
        began = [one.process for one in run.runtime.events() if isinstance(one.body, NodeStarted)]
    result.check()
    # By the line that the next process has logged, in a file or to the engine.
    assert "broker-3#2" in began
    held = result.judgement.of(Outcome.HOLDS)
    assert {"JEPSEN-lost-write", "AVAIL-running", "AVAIL-recovered", "AVAIL-writable"} <= {*held}
    assert state_of(stack) == before
    assert {n for n in NODES if stack.pid(n) != pids[n]} == {3}
    kept = json.loads((tmp_path / "run" / "attached.json").read_text())
    assert kept["left"] == []
    assert any("fencepost-orders" in one for one in kept["healed"])


KILLED = """
import os, signal, sys
from pathlib import Path
from fencepost.events import NodeStarted
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec

plugins = load()
spec = RunSpec(plugins.system("apache/attached@" + sys.argv[1]), runtime="attached")
with Run.start(spec, plugins, RunFolder.create(Path(sys.argv[2]))) as run:
    run.clients.load()
    run.faults.cut("clients", "broker-1")
    run.faults.pause("broker-2")
    run.faults.kill("broker-3")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_harness_that_is_killed_leaves_the_cluster_as_it_was(
    stack: Stranger, tmp_path: Path
) -> None:
    before = state_of(stack)
    words = [sys.executable, "-c", KILLED, stack.attach_file(), tmp_path / "run"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL

    # Until the node that was killed is in the cluster again, nobody knows all topics.
    assert poll(lambda: whole(stack) and state_of(stack) == before, 90, 0.5), state_of(stack)
    states = [Path(f"/proc/{stack.pid(n)}/stat").read_text().rpartition(")")[2] for n in NODES]
    assert not [one for one in states if one.split()[0] == "T"]


def test_without_consent_nothing_is_touched(
    stack: Stranger, plugins: Plugins, tmp_path: Path
) -> None:
    before = state_of(stack)
    with pytest.raises(UsageError, match="`may_break = true`"):
        Run.start(
            spec_of(plugins, stack.attach_file(consent=False)),
            plugins,
            RunFolder.create(tmp_path / "run"),
        )
    assert state_of(stack) == before


def test_a_cluster_that_was_broken_before_is_left_alone(
    stack: Stranger, plugins: Plugins, tmp_path: Path
) -> None:
    stack.ask("/proxies/clients-3", "POST", {"enabled": False})
    try:
        with pytest.raises(EnvironmentFailed, match="clients-3 is disabled"):
            Run.start(
                spec_of(plugins, stack.attach_file()), plugins, RunFolder.create(tmp_path / "run")
            )
    finally:
        stack.ask("/proxies/clients-3", "POST", {"enabled": True})


def test_a_proxy_that_somebody_else_changes_makes_verdicts_unknown(
    stack: Stranger, plugins: Plugins, tmp_path: Path
) -> None:
    spec = spec_of(plugins, stack.attach_file())
    toxic = {"name": "other", "type": "latency", "attributes": {"latency": 2}}
    try:
        with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
            run.clients.produce("fencepost-orders", count=20)
            stack.ask("/proxies/clients-1/toxics", "POST", toxic)
            result = run.finish()
        assert "somebody changed its toxics: other now" in str(result.end.damage)
        assert "clients-1: somebody changed its toxics" in str(result.trouble)
        shown = stack.ask("/proxies/clients-1/toxics")
        assert isinstance(shown, list)
        assert [one["name"] for one in shown] == ["other"]
    finally:
        stack.ask("/proxies/clients-1/toxics/other", "DELETE")
