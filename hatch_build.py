"""A build hook: compiles the simulator's hot modules into the wheel, if it is asked for.

The modules are listed in `pyproject.toml`. Nothing is compiled by default, and never into an
editable installation. `HATCH_BUILD_HOOK_ENABLE_CUSTOM=true` asks for it. What the compiler writes
stays in `.mypyc`: C that has not changed is not compiled again.

See docs/decisions/14-compiled.md.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RULES = "suites/"


class CompiledModules(BuildHookInterface[BuilderConfig]):
    """hatchling finds a hook by its base, so this class has one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it writes a wheel."""
        if version == "editable":
            return
        modules = chosen(Path(self.root), self.config["compile"], self.config["interpret"])
        made = compiled(modules, Path(self.root, ".mypyc", made_by()))
        build_data["force_include"].update(made)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def made_by() -> str:
    """A name for what this Python and this compiler make."""
    return f"{sys.implementation.cache_tag}-mypy-{metadata.version('mypy')}"


def chosen(root: Path, patterns: Iterable[str], without: Iterable[str]) -> list[str]:
    """The files that some pattern matches, except those that one of `without` matches."""

    def matched(by: Iterable[str]) -> set[Path]:
        return {path for pattern in by for path in root.glob(pattern)}

    return sorted(str(path.relative_to(root)) for path in matched(patterns) - matched(without))


def compiled(modules: list[str], build: Path) -> dict[str, str]:
    """Where each extension module is, with its place in the wheel: beside the module's source."""
    # They are there only if the hook was asked for.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    # mypy reads its settings from pyproject.toml, so that what it checks is what it compiles.
    # A library of each package: the C of one library grows with the square of its modules. The
    # largest is first, so that it is not compiled alone at the end.
    packages: dict[Path, list[str]] = {}
    for one in sorted(modules, key=lambda one: -Path(one).stat().st_size):
        packages.setdefault(Path(one).parent, []).append(one)
    extensions = mypycify(
        modules,
        opt_level="2",
        debug_level="0",
        target_dir=str(build / "c"),
        separate=[(several, "_".join(package.parts)) for package, several in packages.items()],
    )
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(build / "lib"), str(build / "temp")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    names = [extension.name.replace(".", "/") + suffix for extension in extensions]
    return {str(build / "lib" / name): name for name in names}
