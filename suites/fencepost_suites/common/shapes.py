"""Shapes of clusters for the tests of several seed documents, each as a mark."""

from __future__ import annotations

import pytest

from fencepost import Shape


def shaped(named: str = "set", **settings: str) -> pytest.MarkDecorator:
    """Runs the test with these settings; dots in a setting's name are written as underscores."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return pytest.mark.parametrize("fencepost_shape", [Shape(settings=given)], ids=[named])


OUTLASTING_LEASE = shaped("outlasting-lease", registration_lease_timeout_ms="6000")
"""Leases outlast an election, which a stall of the machine may cause at any time. So a broker that
is not heard for that long keeps its lease."""
LONG_LEASE = shaped("long-lease", registration_lease_timeout_ms="9000")
"""As `OUTLASTING_LEASE`, for tests that wait for no end of a lease. These leases outlast the start
of a process too, which may take seconds on a busy machine."""
