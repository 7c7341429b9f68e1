"""A pytest plugin: how xdist hands out tests. A test of the suites shares nothing with its file."""

from __future__ import annotations

from typing import Any, final

import pytest
from xdist.scheduler import LoadFileScheduling


@final
class _ByFileButSuites(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, but each test of the suites goes to the next worker that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith("suites/") else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Xdist's hook; None leaves the choice to xdist."""
    return _ByFileButSuites(config, log) if config.getoption("dist") == "loadfile" else None
