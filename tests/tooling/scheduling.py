"""A pytest plugin: how xdist hands out tests. The tests of a file stay together, as they may share
a cluster; but a test of the suites, of a death or of a defect shares nothing with its file."""

from __future__ import annotations

from typing import Any, final

import pytest
from xdist.scheduler import LoadFileScheduling

ALONE = ("suites/", "tests/deaths/", "tests/clusters/reference/runs/test_searches.py")


@final
class _ByFile(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, but each test that shares nothing goes to the next worker that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(ALONE) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Xdist's hook; None leaves the choice to xdist."""
    return _ByFile(config, log) if config.getoption("dist") == "loadfile" else None
