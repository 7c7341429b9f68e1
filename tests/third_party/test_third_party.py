"""A plugin from a wheel of its own, in an environment where nothing is editable."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.real

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

TEST = """
    import fencepost
    import pytest
    from fencepost import Condition
    from fencepost_kafka import HeartbeatSent, kafka_shape
    from fencepost_sneeze import Sneezed

    @pytest.fixture
    def fencepost_shape():
        settings = {"min.insync.replicas": "1", "default.replication.factor": "1"}
        return kafka_shape(controllers=1, brokers=1, settings=settings)

    @pytest.mark.clause("SNEEZE-1")
    def test_it(cluster, faults, history):
        assert "site-packages" in fencepost.__file__, "the wheel is tested, not the checkout"
        broker = cluster.brokers[0]
        sneezed = faults.sneeze(broker)
        assert sneezed.receipt.true
        assert [body.node for body in history.of(Sneezed)] == [broker.name]
        beats = history.of(HeartbeatSent)
        cluster.eventually(
            Condition("a heartbeat", lambda view: view.kinds["broker.heartbeat_sent"] > len(beats))
        )
"""


def build(project: Path, out: Path) -> Path:
    """The project's wheel, built by its own backend."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=project,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Fencepost and the plugin installed from wheels, nothing fetched.

    What they depend on is seen in this interpreter's own packages, behind those of the environment.
    """
    made = tmp_path_factory.mktemp("third-party")
    # Built from a copy, since a backend writes beside its project.
    plugin = shutil.copytree(HERE / "sneeze", made / "sneeze")
    wheels = [build(ROOT, made / "framework"), build(plugin, made / "plugin")]
    environment = made / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    interpreter = environment / "bin" / "python"
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    installing = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet"]
    subprocess.run(
        [*installing, "--no-index", "--no-deps", "--ignore-installed", *map(str, wheels)],
        check=True,
        capture_output=True,
    )
    return interpreter


def test_its_fault_event_kind_and_rule_work_as_ours_do(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_sneeze.py").write_text(dedent(TEST))
    bin_folder = Path(sys.executable).parent
    done = subprocess.run(
        [
            *(str(python), "-m", "pytest", "-W", "error", "--strict-markers"),
            *("-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.glob(".fencepost/*/")
    verdict = json.loads((folder / "verdicts.json").read_text())["SNEEZE-1"]
    assert (verdict["verdict"], verdict["witness"]) == ("holds", "self")
    injected = [
        line["body"]
        for line in map(json.loads, (folder / "history.ndjson").read_text().splitlines())
        if line["body"]["type"] == "fault.injected"
    ]
    assert [body["fault"] for body in injected] == ["sneeze"]
