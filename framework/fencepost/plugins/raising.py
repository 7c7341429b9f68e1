"""Which plugin an error comes from that nothing foresaw.

Code of a plugin runs everywhere: a fold, a template, a condition. Its author needs the place, and
not the advice to report a bug. So the innermost frame decides that is of Fencepost or of a plugin;
what either of them calls, such as a library, belongs to its caller.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from importlib.metadata import entry_points

from fencepost.model.errors import FencepostError, PluginFailed, Violation
from fencepost.plugins.manager import GROUP, SYSTEMS

_OURS = "fencepost"


def by_plugin(
    error: BaseException, packages: Mapping[str, str] | None = None
) -> PluginFailed | None:
    """The error of the plugin whose code raised this one; None if Fencepost or a test did, or if it
    is an error of Fencepost's, which says by itself what a plugin means by it.

    `packages` maps the package of each plugin to its name; by default those that are installed.
    """
    if isinstance(error, FencepostError | Violation):
        return None
    known = {_OURS: _OURS, **(_packages() if packages is None else packages)}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        plugin = known.get(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        if plugin == _OURS:
            return None
        if plugin is not None:
            code = frame.f_code
            said = f"{type(error).__name__}: {error}"
            where = f"{code.co_filename}, line {line}, in {code.co_name}"
            return PluginFailed(f"code of the plugin {plugin} raised {said} ({where})")
    return None


def _packages() -> Mapping[str, str]:
    """The package of each installed plugin -> its name, or `fencepost` if it comes with that."""
    return {
        one.module.partition(".")[0]: _OURS if one.dist and one.dist.name == _OURS else one.name
        for group in (GROUP, SYSTEMS)
        for one in entry_points(group=group)
    }
