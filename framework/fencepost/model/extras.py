"""The parts of Fencepost that need packages beyond those of a plain installation."""

from __future__ import annotations

from importlib.util import find_spec

from fencepost.model.errors import EnvironmentFailed

EXTRAS = {
    "spark": ("pyspark", "pyarrow", "pandas"),
    "connect": ("pyspark", "pyarrow", "pandas", "grpc"),
    "docker": ("docker",),
    "allure": ("allure",),
}
"""Each extra, and the modules that it brings."""


def check_extra(extra: str, what: str) -> None:
    """Raises EnvironmentFailed, with the command that installs it, unless an extra is installed.

    `what` is what needs it.
    """
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise EnvironmentFailed(
            f"{what} needs {' and '.join(missing)}, which the extra {extra!r} brings: "
            f"pip install 'fencepost[{extra}]'"
        )
