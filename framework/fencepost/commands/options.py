"""The options that several commands take, with one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost.model.configuration import DEFAULTS

System = Annotated[str, typer.Option(help="System under test; `fencepost plugins` lists them.")]
Runtime = Annotated[str, typer.Option(help="Its runtime: process, simulated or docker.")]
Workload = Annotated[
    str, typer.Option(help="The workload of its clients; by default the system's own.")
]
Seed = Annotated[int, typer.Option(help="The seed of every random choice.")]
Out = Annotated[Path, typer.Option(help="Folder below which run folders are made.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]

DEFAULT_SYSTEM = DEFAULTS.system
DEFAULT_OUT = Path(DEFAULTS.out)


def defaults_of(command: Any, configured: Mapping[str, Any]) -> Mapping[str, Any]:
    """Click's `default_map`: the settings of a project that are options of a command or of its
    subcommands."""
    below = getattr(command, "commands", {})
    return {name: defaults_of(one, configured) for name, one in below.items()} | {
        option.name: [configured[option.name]] if option.multiple else configured[option.name]
        for option in command.params
        if option.param_type_name == "option" and option.name in configured
    }
