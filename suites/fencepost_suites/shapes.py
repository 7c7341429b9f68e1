"""Shapes of a cluster that tests of several seed documents run on, each as a mark."""

from __future__ import annotations

import pytest

from fencepost import Shape


def shaped(named: str = "set", **settings: str) -> pytest.MarkDecorator:
    """The test runs with these settings: dots in a name are written as underscores."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return pytest.mark.parametrize("fencepost_shape", [Shape(settings=given)], ids=[named])


OUTLASTING_LEASE = shaped("outlasting-lease", registration_lease_timeout_ms="6000")
"""Leases outlast an election, which a machine that stands still may bring about at any time: who is
asked only once has not been fenced meanwhile."""
LONG_LEASE = shaped("long-lease", registration_lease_timeout_ms="9000")
"""The same where no test awaits a lease's end. They outlast the start of a process, too, which may
take seconds on a busy machine."""
