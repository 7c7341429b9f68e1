"""`fencepost new-system`: a small working plugin for a system, to begin with."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from fencepost.commands.terminal import load_plugins, output, show
from fencepost.events import KINDS, kind_name
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.plugins.manager import Plugins

EXAMPLE = "acme"
"""The name of the system in the skeleton. It is replaced in text and in names of files."""
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MOST_LETTERS = 40


def new_system(
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits and _.")],
    into: Annotated[
        Path | None, typer.Option(help="The folder to make; by default fencepost-NAME, here.")
    ] = None,
) -> None:
    """Writes a small plugin that works, with a server, a client, a promise and tests: the start of
    a plugin for your own system."""
    check_name(name, load_plugins())
    folder = into or Path(f"fencepost-{name}")
    write(name, folder)
    console = output()
    show(console, f"{folder} has a plugin for {name}/servers. Next:")
    for line in (f"cd {folder}", "python -m pip install -e .", "pytest"):
        show(console, f"    {line}")


def check_name(name: str, loaded: Plugins) -> None:
    """Raises UsageError for a name that no plugin can have, or that a loaded plugin has."""
    if not _NAME.fullmatch(name) or len(name) > _MOST_LETTERS or keyword.iskeyword(name):
        raise UsageError(
            f"'{name}' cannot be the name of a plugin: take at most {_MOST_LETTERS} lower-case "
            "letters, digits and single underscores between them, with a letter first"
        )
    taken = {offer.plugin for offer in loaded.offers} | set(loaded.broken)
    taken |= {system.partition("/")[0] for system in loaded.systems}
    taken |= {kind_name(kind).partition(".")[0] for kind in (*KINDS, *loaded.event_kinds)}
    if name in taken:
        raise UsageError(f"'{name}' is the name of an installed module: take another name")


def write(name: str, folder: Path) -> None:
    """Writes the skeleton, with this name for its system.

    Raises UsageError if the folder exists; EnvironmentFailed if it cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        _copy(files("fencepost") / "skeleton", folder, name)
    except FileExistsError:
        raise UsageError(f"{folder} exists already: name another folder by --into") from None
    except OSError as failed:
        raise EnvironmentFailed(f"{failed.filename}: {failed.strerror}") from failed


def _copy(source: Traversable, target: Path, name: str) -> None:
    for entry in source.iterdir():
        if entry.name == "__pycache__":
            continue
        path = target / renamed(entry.name, name)
        if entry.is_dir():
            path.mkdir()
            _copy(entry, path, name)
        else:
            path.write_text(renamed(entry.read_text(encoding="utf-8"), name), encoding="utf-8")


def renamed(text: str, name: str) -> str:
    """The same text about a system of this name: `acme`, `Acme` and `ACME` become `my_db`, `MyDb`
    and `MY_DB`."""
    words = "".join(word.capitalize() for word in name.split("_"))
    return text.replace("ACME", name.upper()).replace("Acme", words).replace(EXAMPLE, name)
