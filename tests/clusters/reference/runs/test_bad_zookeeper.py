"""ZooKeeper in a state that brokers cannot use: each broker logs why, and keeps running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import Condition, EnvironmentFailed, Shape, UsageError
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import SECOND
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost_kafka import BrokerStateChanged, SessionChanged


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def refused(plugins: Plugins, folder: Path, own: str) -> str:
    """The error of a cluster of which every broker has that zookeeper.connect."""
    own_of_each = {f"broker-{n}": {"zookeeper.connect": own} for n in (1, 2, 3)}
    spec = RunSpec(plugins.system("reference/legacy"), Shape(own=own_of_each), "simulated", 1)
    with (
        pytest.raises(EnvironmentFailed) as failed,
        Run.start(spec, plugins, RunFolder.create(folder)),
    ):
        pass
    return str(failed.value)


def test_a_chroot_that_does_not_exist_is_named(tmp_path: Path, plugins: Plugins) -> None:
    said = refused(plugins, tmp_path / "run", "zookeeper-1:2181/nowhere")
    assert "the chroot '/nowhere' of zookeeper.connect does not exist" in said


@pytest.mark.parametrize("ms", ["500", "90000"])
def test_a_session_timeout_that_the_servers_do_not_grant_is_refused(
    ms: str, plugins: Plugins
) -> None:
    shape = Shape(settings={"zookeeper.session.timeout.ms": ms})
    with pytest.raises(UsageError, match=f"is {ms}: ZooKeeper's servers grant 1000 to 60000 ms"):
        plugins.system("reference/legacy").layout(shape)


def sessions(run: Run, broker: str) -> list[tuple[int, str, str]]:
    """What a broker's newest process has recorded of its sessions."""
    process = run.runtime.view.newest[broker]
    bodies = [one.body for one in run.runtime.events() if one.process == process]
    return [(b.session, b.state, b.how) for b in bodies if isinstance(b, SessionChanged)]


def pass_seconds(run: Run, seconds: int) -> None:
    never = Condition("nothing", lambda view: False)
    run.runtime.advance(never, run.runtime.now_ns() + seconds * SECOND)


@pytest.fixture
def running(tmp_path: Path, plugins: Plugins) -> Iterator[Run]:
    """A simulated cluster over one ZooKeeper server; every promise of writes holds at its end."""
    spec = RunSpec(plugins.system("reference/legacy"), runtime="simulated", seed=1)
    with Run.start(spec, plugins, RunFolder.create(tmp_path / "run")) as run:
        writes = run.clients.produce("orders", count=100, rate=20)
        run.cluster.eventually(writes.acked_at_least(20))
        yield run
        run.cluster.eventually(run.cluster.recovered, within_ms=60_000)
        run.cluster.eventually(writes.settled, within_ms=60_000)
        assert writes.acked <= run.clients.read_all("orders")
        result = run.finish()
    result.check(("JEPSEN-lost-write",))


def test_a_broker_that_starts_without_zookeeper_says_so_and_registers_once_it_is_back(
    running: Run,
) -> None:
    with running.faults.kill("zookeeper-1"):
        running.faults.kill("broker-1").heal()
        pass_seconds(running, 25)
        never = (0, "ended", "never made: no server answered")
        assert sessions(running, "broker-1") == [never, never]
    running.cluster.eventually(running.cluster.recovered, within_ms=60_000)
    assert sessions(running, "broker-1")[-1][1] == "connected"


def test_a_broker_whose_zookeeper_is_too_slow_loses_its_session_and_registers_anew_when_it_is_fast(
    running: Run,
) -> None:
    with running.faults.slow_link("broker-2", "zookeeper-1", latency_ms=8_000):
        pass_seconds(running, 26)
        first, *others = sessions(running, "broker-2")
        session = first[0]
        assert others[:2] == [
            (session, "suspended", ""),
            (session, "ended", "given up: no connection for as long as its timeout"),
        ]
        assert set(others[2:]) == {(0, "ended", "never made: no server answered")}
        process = running.runtime.view.newest["broker-2"]
        changes = [
            (e.body.new, e.body.reason)
            for e in running.runtime.events()
            if e.process == process and isinstance(e.body, BrokerStateChanged)
        ]
        assert changes[-1] == ("INITIAL", "session_ended")
    running.cluster.eventually(running.cluster.recovered, within_ms=60_000)
    assert sessions(running, "broker-2")[-1][1] == "connected"
