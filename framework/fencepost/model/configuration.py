"""The settings of a project for all its runs: the table `[tool.fencepost]` of its pyproject.toml.

    [tool.fencepost]
    system = "reference/quorum"
    runtime = "simulated"

Its keys are named after the options of pytest and of the command line. A variable of the
environment, such as FENCEPOST_SYSTEM, sets the same for a session. It is stronger than any file,
and an option is stronger than both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from fencepost.events.integers import MOST
from fencepost.model.errors import UsageError, no_such
from fencepost.model.system.apps import Program

FILE = "pyproject.toml"
TABLE = "tool.fencepost"


class Configuration(Struct, frozen=True, kw_only=True):
    """The settings, each with its default."""

    system: str = "reference/quorum"
    """The system under test, such as reference/quorum or apache/kraft@4.1.0."""
    workload: str = ""
    """The workload of its clients; empty: the system's own."""
    runtime: str = "process"
    attach: str = ""
    """The file of a cluster that runs already, from the folder of pyproject.toml: in place of a
    system and a runtime."""
    seed: Annotated[int, Meta(ge=0, le=MOST)] | None = None
    """The seed of every random choice; None: drawn anew."""
    out: str = ".fencepost"
    """The folder below which run folders are made, from the folder of pyproject.toml."""
    defects: tuple[str, ...] = ()
    """The defects of the system that are switched on."""
    security: str = ""
    """How the listeners of its nodes are secured, such as SASL_SSL; empty: they are open."""
    app: tuple[Program, ...] = ()
    """`[[tool.fencepost.app]]`: programs of the project's own, which every run starts; the folder
    of each is from that of pyproject.toml."""
    checks: tuple[str, ...] = ()
    """Files of Python with checks, from the folder of pyproject.toml: every run asks them."""


DEFAULTS = Configuration()
_TABLES = frozenset({"app", "checks"})
"""The keys that no option and no variable sets."""
NAMES = tuple(name for name in Configuration.__struct_fields__ if name not in _TABLES)
VARIABLES = {name: f"FENCEPOST_{name.upper()}" for name in NAMES}
"""setting -> the variable of the environment that sets it, too."""


def schema(tool: str = "fencepost") -> dict[str, Any]:
    """The JSON Schema of `[tool.fencepost]`.

    It is found through the entry-point group `validate_pyproject.tool_schema`, which tools that
    check or complete a pyproject.toml ask.
    """
    (found,), defined = msgspec.json.schema_components((Configuration,))
    table = defined[found["$ref"].rpartition("/")[2]]
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "$id": f"urn:{tool}", **table, "additionalProperties": False}


def from_environment(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The settings that variables of the environment give, by name, as text. An empty variable
    gives none."""
    return {name: variables[v] for name, v in VARIABLES.items() if variables.get(v)}


def seed_of(text: str) -> int | None:
    """The seed that a text names, 0 to 2^63 - 1; None if it names none."""
    if not text.isdecimal() or len(text) > len(str(MOST)):  # int() refuses thousands of digits
        return None
    return seed if (seed := int(text)) <= MOST else None


class _Tools(Struct):
    fencepost: dict[str, Any] = {}


class _File(Struct):
    tool: _Tools = msgspec.field(default_factory=_Tools)


def configured(text: str) -> Mapping[str, Any]:
    """The settings that a pyproject.toml has, by name; none without the table.

    Raises UsageError for text that is not TOML, for an unknown key, with the nearest right one, and
    for a value of a wrong type.
    """
    try:
        table = msgspec.convert(tomllib.loads(text), _File).tool.fencepost
        for key in table:
            if key not in (known := Configuration.__struct_fields__):
                raise no_such(f"key of [{TABLE}]", key, known)
        found = msgspec.convert(table, Configuration)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"it has no valid [{TABLE}]: {error}") from error
    except RecursionError:
        raise UsageError("it is nested too deeply") from None
    if "\0" in found.out:
        raise UsageError(f"[{TABLE}]: `out` is no path: it has a NUL")
    return {name: getattr(found, name) for name in table}


def configured_for(folder: Path) -> Mapping[str, Any]:
    """The settings in the nearest pyproject.toml, in a folder or above it; `out` is absolute.

    Raises UsageError as `configured`, with the file's name.
    """
    folder = folder.absolute()
    for file in (above / FILE for above in (folder, *folder.parents)):
        if file.is_file():
            try:
                found = configured(_text(file))
            except UsageError as wrong:
                raise UsageError(f"{file}: {wrong}") from wrong
            return _placed(found, file.parent)
    return {}


def _placed(found: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The settings with absolute paths: they were written from the folder of their file."""
    placed = dict(found)
    if "out" in found:
        placed["out"] = str(folder / found["out"])
    if found.get("attach"):
        placed["attach"] = str(folder / found["attach"])
    if "checks" in found:
        placed["checks"] = tuple(str(folder / one) for one in found["checks"])
    if "app" in found:
        placed["app"] = tuple(replace(one, folder=str(folder / one.folder)) for one in found["app"])
    return placed


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as wrong:
        raise UsageError(f"it is not UTF-8: {wrong.reason}") from wrong
    except OSError as wrong:
        raise UsageError(f"it cannot be read: {wrong.strerror}") from wrong
