"""Shared by tests of the docker runtime: an engine with images, or a reason to skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost import EnvironmentFailed
from fencepost.runtimes.docker.engine import Engine, connect
from fencepost.runtimes.docker.host import docker_backend
from fencepost.runtimes.docker.pods import IMAGE
from fencepost.runtimes.process.backend import BackendKind

REQUIRED = os.environ.get("FENCEPOST_DOCKER") == "required"
"""Set where the engine's absence is a failure, and no reason to skip."""


def usable_backend() -> BackendKind:
    """The backend to test on; skips the test if there is no container engine."""
    try:
        return docker_backend(lambda slot: IMAGE)
    except EnvironmentFailed as lacking:
        if REQUIRED:
            raise
        pytest.skip(str(lacking))


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine to look with, beside the runtime under test."""
    usable_backend()
    found = connect(os.environ, "test")
    try:
        yield found
    finally:
        found.close()
