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

EXAMPLE, SYSTEM = "acme", "servers"
"""The plugin and the system in the skeleton. They are replaced in text and in names of files."""
PROGRAM = "skeleton_program"
"""The files that differ where the servers are an existing program."""
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MOST_LETTERS = 40


def new_system(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[/SYSTEM]",
            help="Its name, such as redis/sentinel: lower-case letters, digits and _. Without a "
            "second name the system is NAME/servers.",
        ),
    ],
    program: Annotated[
        bool,
        typer.Option(
            "--program",
            help="For an existing program, which is configured by a file and prints a log.",
        ),
    ] = False,
    into: Annotated[
        Path | None, typer.Option(help="The folder to make; by default fencepost-NAME, here.")
    ] = None,
) -> None:
    """Writes a small plugin that works, with a server, a client, a promise and tests: the start of
    a plugin for your own system."""
    plugin, _, system = name.partition("/")
    system = system or ("" if "/" in name else SYSTEM)
    check_name(plugin, system, load_plugins())
    folder = into or Path(f"fencepost-{plugin}")
    write(plugin, system, folder, program=program)
    console = output()
    show(console, f"{folder} has a plugin for {plugin}/{system}. Next:")
    for line in (f"cd {folder}", "python -m pip install -e .", "pytest"):
        show(console, f"    {line}")


def check_name(name: str, system: str, loaded: Plugins) -> None:
    """Raises UsageError for a name that no plugin or no system can have, or that a loaded plugin
    has."""
    for one, what in ((name, "plugin"), (system, "system")):
        if not _NAME.fullmatch(one) or len(one) > _MOST_LETTERS or keyword.iskeyword(one):
            raise UsageError(
                f"'{one}' cannot be the name of a {what}: take at most {_MOST_LETTERS} lower-case "
                "letters, digits and single underscores between them, with a letter first"
            )
    taken = {offer.plugin for offer in loaded.offers} | set(loaded.broken)
    taken |= {system.partition("/")[0] for system in loaded.systems}
    taken |= {kind_name(kind).partition(".")[0] for kind in (*KINDS, *loaded.event_kinds)}
    if name in taken:
        raise UsageError(
            f"'{name}' names an installed plugin, or its systems or events: take another name"
        )


def write(name: str, system: str, folder: Path, *, program: bool = False) -> None:
    """Writes the skeleton of a plugin of this name for this system; if `program`, over an existing
    program.

    Raises UsageError if the folder exists; EnvironmentFailed if it cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        for part in ("skeleton", PROGRAM) if program else ("skeleton",):
            _copy(files("fencepost") / part, folder, name, system)
    except FileExistsError:
        raise UsageError(f"{folder} exists already: name another folder by --into") from None
    except OSError as failed:
        raise EnvironmentFailed(f"{failed.filename}: {failed.strerror}") from failed


def _copy(source: Traversable, target: Path, name: str, system: str) -> None:
    for entry in source.iterdir():
        if entry.name == "__pycache__":
            continue
        path = target / renamed(entry.name, name)
        if entry.is_dir():
            path.mkdir(exist_ok=True)
            _copy(entry, path, name, system)
        else:
            text = renamed(entry.read_text(encoding="utf-8"), name, system)
            path.write_text(text, encoding="utf-8")


def renamed(text: str, name: str, system: str = SYSTEM) -> str:
    """The same text about this system of a plugin of this name: `acme/servers` becomes
    `my_db/system`; `acme`, `Acme` and `ACME` become `my_db`, `MyDb` and `MY_DB`."""
    words = "".join(word.capitalize() for word in name.split("_"))
    text = text.replace(f"{EXAMPLE}/{SYSTEM}", f"{EXAMPLE}/{system}")
    return text.replace("ACME", name.upper()).replace("Acme", words).replace(EXAMPLE, name)
