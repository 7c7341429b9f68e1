"""The environment that the tests of this folder share."""

from __future__ import annotations

import pytest
from tests.third_party.environment import Environment


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Fencepost, installed from its wheel."""
    return Environment.make(tmp_path_factory.mktemp("third-party"))
