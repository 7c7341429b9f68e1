"""ZooKeeper in a state that brokers cannot use: each broker logs why, and keeps running."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, Shape, UsageError
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec


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
