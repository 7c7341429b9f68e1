"""A plugin from a wheel of its own, in an environment where nothing is editable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from tests.third_party.environment import Environment, build

pytestmark = pytest.mark.real

HERE = Path(__file__).parent

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


def test_its_fault_event_kind_and_rule_work_as_ours_do(
    environment: Environment, tmp_path: Path
) -> None:
    project = shutil.copytree(HERE / "sneeze", tmp_path / "sneeze")
    environment.install(build(project, tmp_path / "wheel"))
    folder = tmp_path / "of the user"
    folder.mkdir()
    (folder / "test_sneeze.py").write_text(dedent(TEST))
    quiet = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    done = environment.run(
        folder, "python", "-m", "pytest", "-W", "error", "--strict-markers", *quiet
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = folder.glob(".fencepost/*/")
    verdict = json.loads((kept / "verdicts.json").read_text())["SNEEZE-1"]
    assert (verdict["verdict"], verdict["evidence"]) == ("holds", "self")
    injected = [
        line["body"]
        for line in map(json.loads, (kept / "history.ndjson").read_text().splitlines())
        if line["body"]["type"] == "fault.injected"
    ]
    assert [body["fault"] for body in injected] == ["sneeze"]
