"""The runs that reports are tried with, each written once."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample_runs

from fencepost.reporting import Promises


@pytest.fixture(scope="package")
def promises() -> Promises:
    return sample_runs.promises()


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sample_runs.folders(tmp_path_factory.mktemp("runs"))
