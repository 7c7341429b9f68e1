"""Which systems the suites are for, where no tests are named."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fencepost import Attached, UsageError, hookimpl
from fencepost.plugins.manager import load
from fencepost.testing.test_run import check_suite
from fencepost_clusters.reference.cluster import ReferenceQuorum


def test_every_system_that_fencepost_starts_has_a_suite() -> None:
    plugins = load()
    for system in plugins.systems.values():
        if isinstance(system, Attached):  # the suites' topics are not for a cluster of a user's
            with pytest.raises(UsageError, match="there are no suites for"):
                check_suite(system, plugins, "run")
        else:
            check_suite(system, plugins, "run")


@pytest.mark.parametrize("command", ["run", "conformance"])
def test_a_system_of_other_promises_has_no_suite(command: str) -> None:
    """What clients of any log expect binds it, since its clients record messages."""
    logs = replace(ReferenceQuorum(), name="acme/logs", plane="logs")
    plugins = load({"acme": SimpleNamespace(fencepost_systems=hookimpl(lambda: [logs]))})
    assert plugins.clauses["JEPSEN-lost-write"].binds("logs")
    refusal = "there are no suites for acme/logs: name your tests, such as `fencepost "
    with pytest.raises(UsageError, match=f"^{refusal}{command} tests`$"):
        check_suite(logs, plugins, command)
