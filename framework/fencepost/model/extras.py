"""The parts of Fencepost that need packages beyond those of a plain installation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from fencepost.model.errors import EnvironmentFailed

EXTRAS = {
    "spark": ("pyspark", "pyarrow", "pandas"),
    "connect": ("pyspark", "pyarrow", "pandas", "grpc"),
    "docker": ("docker",),
    "allure": ("allure",),
}
"""Each extra, and the modules that it brings."""


def has_extra(extra: str) -> bool:
    """Whether an extra is installed."""
    return not _missing(extra)


def check_extra(extra: str, what: str) -> None:
    """Raises EnvironmentFailed, with the command that installs it, unless an extra is installed.

    `what` is what needs it.
    """
    if missing := _missing(extra):
        raise EnvironmentFailed(
            f"{what} needs {' and '.join(missing)}, which the extra {extra!r} brings: "
            f"{installing(extra)}"
        )


def installing(extra: str, recorded: str | None = None) -> str:
    """The command that installs an extra, as Fencepost itself was installed: from the folder of a
    clone, or by its name. `recorded` is what pip wrote down of that; by default it is read."""
    if recorded is None:
        with suppress(PackageNotFoundError):
            recorded = distribution("fencepost").read_text("direct_url.json")
    origin = json.loads(recorded or "{}")
    how = origin.get("dir_info")
    if how is None:
        return f"pip install 'fencepost[{extra}]'"
    clone = unquote(urlsplit(origin["url"]).path)
    return f"pip install {'-e ' if how.get('editable') else ''}{shlex.quote(f'{clone}[{extra}]')}"


def _missing(extra: str) -> Sequence[str]:
    return [module for module in EXTRAS[extra] if find_spec(module) is None]
