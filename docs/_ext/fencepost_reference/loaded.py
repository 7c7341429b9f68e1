"""The installed plugins, loaded once."""

from __future__ import annotations

from functools import cache

from fencepost.plugins.manager import Plugins, load


@cache
def plugins() -> Plugins:
    """What every installed plugin offers; raises RuntimeError if one was disabled."""
    loaded = load()
    if loaded.broken:
        raise RuntimeError(f"plugins that cannot be described: {loaded.broken}")
    return loaded
