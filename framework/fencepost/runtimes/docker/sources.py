"""The digest of the sources that an image of this project was built from, so that no run uses a
stale image."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

SOURCES_LABEL = "fencepost.sources"
PACKAGES = ("fencepost", "fencepost_kafka", "fencepost_clusters")
"""The packages that run in pods: the agent with its probes, and the nodes."""


@cache
def digest() -> str:
    """A digest of these packages as they are installed here, names and contents."""
    whole = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(place)
            for path in sorted(root.rglob("*.py")):
                whole.update(f"{package}/{path.relative_to(root)}\0".encode())
                whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
