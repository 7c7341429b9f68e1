"""Which systems the suites are for, where no tests are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost import UsageError
from fencepost.plugins.manager import load
from fencepost.testing.test_run import check_suite
from fencepost_clusters.reference.cluster import ReferenceQuorum


def test_every_system_that_comes_with_fencepost_has_a_suite() -> None:
    plugins = load()
    for system in plugins.systems.values():
        check_suite(system, plugins, "run")


@pytest.mark.parametrize("command", ["run", "conformance"])
def test_a_system_of_other_promises_has_no_suite(command: str) -> None:
    lamps = replace(ReferenceQuorum(), name="acme/lamps", plane="lamps")
    refusal = "there are no suites for acme/lamps: name your tests, such as `fencepost "
    with pytest.raises(UsageError, match=f"^{refusal}{command} tests`$"):
        check_suite(lamps, load(), command)
