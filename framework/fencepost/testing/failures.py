"""How a failure is shown whose sentence says enough: with the lines of the user's own code only."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import pluggy
import pytest

import fencepost
from fencepost.model.errors import FencepostError

_SHORTENED = ("auto", "short", "line")
"""The styles of `--tb` that are shortened; the others show what they always show."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_MACHINERY = tuple(
    Path(module.__file__ or "").resolve().parent for module in (fencepost, pluggy, pytest)
)
_MACHINERY += (_MACHINERY[-1].parent / "_pytest",)
_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()


def shorten(item: pytest.Item, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
    """Cuts the traceback of an error of Fencepost to its sentence and the user's own lines.

    A test's author needs no frames of Fencepost, of pytest or of the standard library, and not the
    errors that led to this one. `--tb=long` and `--full-trace` show them.
    """
    config = item.config
    if call.excinfo is None or not isinstance(call.excinfo.value, FencepostError):
        return
    if config.getoption("fulltrace") or config.getoption("tbstyle") not in _SHORTENED:
        return
    report.longrepr = call.excinfo.getrepr(
        style="short",
        showlocals=config.getoption("showlocals"),
        abspath=Path.cwd() != config.invocation_params.dir,
        tbfilter=lambda found: found.traceback.filter(lambda entry: _is_own(entry.path)),
        chain=False,
    )


def _is_own(path: Path | str) -> bool:
    """Whether this is code of a test or of a plugin, as far as a path tells."""
    place = Path(path)
    if any(place.is_relative_to(folder) for folder in _MACHINERY):
        return False
    return not place.is_relative_to(_LIBRARY) or not _INSTALLED.isdisjoint(place.parts)
