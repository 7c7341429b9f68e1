"""A pytest file whose run is the plugin's own `cluster`; collected only when named.

The environment variable DEATHS_FOLDER names the folder for its `ready` file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost import Condition, Shape
from fencepost.model.clock import SECOND
from fencepost.runs.run import Run
from fencepost_kafka import kafka_shape

SETTINGS = {"min.insync.replicas": "1", "default.replication.factor": "1"}


@pytest.fixture
def fencepost_shape() -> Shape:
    return kafka_shape(controllers=1, brokers=1, settings=SETTINGS)


def test_waits_to_die(fencepost_run: Run) -> None:
    (Path(os.environ["DEATHS_FOLDER"]) / "ready").touch()
    runtime = fencepost_run.runtime
    runtime.advance(Condition("a death", lambda view: False), runtime.now_ns() + 120 * SECOND)
