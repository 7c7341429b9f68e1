"""A pytest plugin: the order of tests, and how xdist hands them out. The tests of a file stay
together, as they may share a cluster; but a test of the suites, of a death or of a defect shares
nothing with its file."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any, final

import pytest
from xdist.scheduler import LoadFileScheduling

ALONE = ("suites/", "tests/deaths/", "tests/clusters/reference/runs/test_searches.py")
FIRST = "tests/test_compiled.py"
"""The longest test: it compiles for minutes, and would do so alone if it began last."""


@final
class _ByFile(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, but each test that shares nothing goes to the next worker that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(ALONE) else str(super()._split_scope(nodeid))

    def remove_node(self, node: Any) -> Any:
        """A worker died. Xdist offers all its files again, also those that it has finished. A
        living worker that is given a finished one waits for good, since no test of it comes; so
        these go."""
        files = self.assigned_work[node]
        for finished in [name for name, tests in files.items() if all(tests.values())]:
            del files[finished]
        return super().remove_node(node)


def pytest_collection_modifyitems(items: MutableSequence[pytest.Item]) -> None:
    """Pytest's hook."""
    items[:] = sorted(items, key=lambda one: not one.nodeid.startswith(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Xdist's hook; None leaves the choice to xdist."""
    return _ByFile(config, log) if config.getoption("dist") == "loadfile" else None
