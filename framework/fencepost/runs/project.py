"""The apps and the checks of a project: what each of its runs starts and asks, by its
pyproject.toml."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fencepost.model.check import Check
from fencepost.model.configuration import Configuration, configured_for
from fencepost.model.errors import UsageError
from fencepost.model.system.apps import check_program
from fencepost.model.system.shape import Shape
from fencepost.runs.run import RunSpec


def of_project(spec: RunSpec, folder: Path) -> RunSpec:
    """The run with the apps and the checks of the project whose folder, or one below it, this is.

    A program that the spec has already is the one that counts. Raises UsageError for a table that
    is wrong, and for a file of checks that is not there, cannot be imported or has none.
    """
    project = Configuration(**configured_for(folder))
    apps = {one.name: one.instances for one in project.app}
    if len(apps) < len(project.app):
        raise UsageError("[[tool.fencepost.app]]: two apps have one name")
    for program in project.app:
        check_program(program)
    given = {one.name for one in spec.programs}
    return replace(
        spec,
        shape=spec.shape.over(Shape(apps=apps)),
        programs=(*spec.programs, *(one for one in project.app if one.name not in given)),
        checks=unique((*spec.checks, *checks_in(project.checks))),
    )


def checks_in(files: Iterable[str]) -> Sequence[Check]:
    """The checks in these files of Python; raises UsageError as `of_project`."""
    found: list[Check] = []
    for file in files:
        path = Path(file)
        if not path.is_file():
            raise UsageError(f"there is no file of checks {path}")
        here = checks_of(vars(_imported(path)).values())
        if not here:
            raise UsageError(f"{path} has no check: mark one by @fencepost.check")
        found += here
    return found


def checks_of(values: Iterable[object]) -> Sequence[Check]:
    """The checks among the values of a module."""
    return [value for value in values if isinstance(value, Check)]


def unique(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Each check once, though several modules may have imported it. Raises UsageError for two of
    one name: one of them would not be asked."""
    found: dict[str, Check] = {}
    for one in checks:
        other = found.setdefault(one.id, one)
        if other is not one and _code(other) != _code(one):
            raise UsageError(f"two checks are named {one.id}: rename the function of one")
    return tuple(found.values())


def _code(check: Check) -> object:
    """What tells a function from another one, also where its file was imported twice."""
    return getattr(check.ask, "__code__", check.ask)


def _imported(path: Path) -> object:
    # By its path, under a name of its own: two projects may each have a checks.py.
    name = f"fencepost_checks_{path.stem}_{abs(hash(path))}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"{path} is no file of Python")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except Exception as error:  # a user's own code may raise anything
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
