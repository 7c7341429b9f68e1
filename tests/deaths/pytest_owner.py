"""A pytest file that owns a run as a session fixture; collected only when named (see test_deaths).

The environment variable DEATHS_FOLDER names the folder for its `ready` and `closing` files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deaths.python_owner import linger, start

from fencepost.runtimes.process.runtime import ProcessRuntime

pytestmark = pytest.mark.real
FOLDER = Path(os.environ["DEATHS_FOLDER"])


@pytest.fixture(scope="session")
def run() -> Iterator[ProcessRuntime]:
    with start(FOLDER) as runtime:
        yield runtime
        (FOLDER / "closing").touch()
        linger(runtime)


def test_waits_to_die(run: ProcessRuntime) -> None:
    (FOLDER / "ready").touch()  # not before: an interrupt of the fixture's start tears nothing down
    linger(run)
