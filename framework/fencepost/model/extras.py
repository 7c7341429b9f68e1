"""The parts of Fencepost that need packages beyond those of a plain installation."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

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
            f"pip install 'fencepost[{extra}]'"
        )


def _missing(extra: str) -> Sequence[str]:
    return [module for module in EXTRAS[extra] if find_spec(module) is None]
