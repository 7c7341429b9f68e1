"""`fencepost setup`: what a run needs beside the Python packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fencepost.commands.terminal import load_plugins, print_line, progress
from fencepost.injection.building import build_toxiproxy
from fencepost.injection.toxiproxies import present_toxiproxy, toxiproxy_version
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.system.capabilities import Fetched


def setup(
    into: Annotated[
        Path | None,
        typer.Option(help="The folder for toxiproxy; by default that of this Python."),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(help="A system whose software to fetch now; may be given more than once."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build toxiproxy even if there is one.")
    ] = False,
) -> None:
    """Builds toxiproxy with Go, unless there is one, and fetches the software of systems."""
    say, plugins = progress(), load_plugins()
    wanted = [plugins.system(name) for name in system or ()]
    for one in wanted:
        if not isinstance(one, Fetched):
            raise UsageError(f"{one.name} has nothing to fetch")
    program = None if rebuild or into is not None else _found()
    if program is None:
        say("build toxiproxy")
        program = build_toxiproxy(into, os.environ)
    print_line(f"toxiproxy {toxiproxy_version(program)}: {program}")
    for one in wanted:
        assert isinstance(one, Fetched)
        say(f"fetch {one.name}")
        print_line(f"{one.name}: {one.fetch()}")


def _found() -> Path | None:
    """The toxiproxy that is there. One that the environment names wrongly is an error."""
    try:
        return present_toxiproxy(os.environ)
    except EnvironmentFailed:
        if os.environ.get("FENCEPOST_TOXIPROXY"):
            raise
        return None
