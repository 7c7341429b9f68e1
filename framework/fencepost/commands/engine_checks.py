"""What `fencepost doctor` asks of the container engine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fencepost.model.errors import EnvironmentFailed
from fencepost.runtimes.docker.engine import connect
from fencepost.runtimes.docker.pods import IMAGE


def examine() -> Sequence[tuple[str, bool, str]]:
    """Each requirement: whether it is met, and the reason in words."""
    return [("container engine", *_engine()), ("containers", *_containers())]


def remove_leftovers() -> Sequence[str]:
    """Removes what dead runs left in the container engine, and nothing without Fencepost's labels.

    Returns what that was, in words. Raises EnvironmentFailed if there is no engine, or something
    could not be removed.
    """
    engine = connect(os.environ)
    try:
        return [str(left) for left in engine.clear(lambda left: left.abandoned)]
    finally:
        engine.close()


def _engine() -> tuple[bool, str]:
    """Only the docker runtime needs an engine, so a machine without one is not at fault."""
    try:
        engine = connect(os.environ)
    except EnvironmentFailed as missing:
        return True, f"none, which only the docker runtime needs: {missing}"
    try:
        without = "" if engine.has_image(IMAGE) else f"; without {IMAGE}, see ./dev images"
        return True, f"version {engine.version}{without}"
    finally:
        engine.close()


def _containers() -> tuple[bool, str]:
    """What dead runs left in the container engine, and how much belongs to live runs or other
    hosts."""
    try:
        engine = connect(os.environ)
    except EnvironmentFailed:
        return True, "no engine, so nothing is left there"
    try:
        found = engine.leftovers()
    finally:
        engine.close()
    abandoned = [str(left) for left in found if left.abandoned]
    others = len(found) - len(abandoned)
    beside = f"; {others} belong to live runs or other hosts" if others else ""
    if abandoned:
        return False, f"left of dead runs, see --reap: {', '.join(abandoned)}{beside}"
    return True, f"nothing of dead runs{beside}"
