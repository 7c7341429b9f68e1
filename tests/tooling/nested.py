"""A project of its own for a nested session of pytest, with the plugins of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


def prepare(pytester: pytest.Pytester) -> None:
    """Leaves out plugins that take longer to load than such a session takes without them."""
    pytester.makeini(
        f"""
        [pytest]
        pythonpath = {Path(__file__).parent}
        addopts = -p no:hypothesispytest -p no:allure_pytest
        """
    )
    pytester.makeconftest(
        """
        pytest_plugins = ["real_tests", "outcomes"]
        """
    )
