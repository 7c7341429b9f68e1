"""Imports kio's types as if hypothesis were not installed.

If hypothesis is installed, kio registers its types with it. That costs each process a tenth of a
second. In a new folder it costs two seconds, and hypothesis leaves a folder of its own there. So
every package that uses kio first imports this module, or another module that does.
"""

from __future__ import annotations

import sys

NAME = "hypothesis"

_loaded = sys.modules.pop(NAME, None)
sys.modules[NAME] = None  # type: ignore[assignment]  # an import of it raises ImportError
try:
    import kio.static.primitive  # noqa: F401
except ModuleNotFoundError as missing:
    # A pod imports probes of packages that use kio, and has no kio.
    if (missing.name or "").partition(".")[0] != "kio":
        raise
finally:
    del sys.modules[NAME]
    if _loaded is not None:
        sys.modules[NAME] = _loaded
