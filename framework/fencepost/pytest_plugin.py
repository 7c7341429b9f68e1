"""Pytest's words into ours: options, markers and fixtures, no logic."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "clause(*ids): the promises of the seed documents that this test exercises",
    )
