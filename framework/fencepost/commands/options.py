"""The options that several commands take, with one meaning."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost.events.integers import MOST
from fencepost.model.clock import NO_SPAN, SECOND, span_ns
from fencepost.model.configuration import DEFAULTS, NAMES, seed_of
from fencepost.model.disk import NO_SIZE, size_of
from fencepost.model.errors import UsageError

System = Annotated[str, typer.Option(help="System under test; `fencepost plugins` lists them.")]
Runtime = Annotated[str, typer.Option(help="Its runtime: process, simulated or docker.")]
Image = Annotated[
    str,
    typer.Option(
        metavar="SYSTEM=IMAGE",
        help="The image in which the nodes of a system run on docker.",
    ),
]
Workload = Annotated[
    str, typer.Option(help="The workload of its clients; by default the system's own.")
]


def _number(text: str) -> int:
    seed = seed_of(str(text))
    if seed is None:
        raise typer.BadParameter(
            f"{text!r} is no number of 0 to {MOST}: correct --seed or FENCEPOST_SEED ('last' is "
            "known to pytest, run and conformance only)"
        )
    return seed


Seed = Annotated[
    int,
    typer.Option(help="The seed of every random choice.", parser=_number, metavar="INTEGER"),
]
SeedOrLast = Annotated[
    str | None,
    typer.Option(
        help="The seed of every random choice: a number, or 'last' for that of the session "
        "before; drawn anew if not given."
    ),
]
Count = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=N", help="One of the counts of the system; repeatable."),
]
Setting = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of it; repeatable.")
]
Defects = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A defect to switch on in it, if it has any; repeatable."),
]
Security = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How the listeners of its nodes are secured, such as SASL_SSL; open by default.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many runs at a time; not given: one a core if they are simulated, else one.",
    ),
]
Keep = Annotated[
    bool,
    typer.Option("--keep", help="Keep the folders of clean runs, too: a report counts them then."),
]


def _size(text: str) -> int:
    found = size_of(str(text))
    if found is None:
        raise typer.BadParameter(f"{text!r} {NO_SIZE}")
    return found


KeepAtMost = Annotated[
    int | None,
    typer.Option(
        help="Keep the folders of clean runs as --keep does, while they take no more than this "
        "together, such as 5GB: the oldest are deleted first.",
        parser=_size,
        metavar="SIZE",
    ),
]
Out = Annotated[Path, typer.Option(help="Folder below which run folders are made.")]


def span(text: str) -> int:
    """The nanoseconds of a time such as 90s, 20m or 2h; raises typer.BadParameter for another
    text."""
    found = span_ns(str(text))
    if found is None:
        raise typer.BadParameter(f"{text!r} {NO_SPAN}")
    return found


Budget = Annotated[
    int | None,
    typer.Option(
        help="The time that all runs may take, such as 20m: none begins that may not end in it.",
        parser=span,
        metavar="TIME",
    ),
]


def check_budget(budget_ns: int | None, minutes: float) -> None:
    """Raises UsageError for a budget in which not even one run has its time."""
    if budget_ns is not None and budget_ns <= minutes * 60 * SECOND:
        raise UsageError(
            f"--budget has no time for one run, which injects faults for {minutes:g} minutes: give "
            "more, or fewer --minutes"
        )


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]

_OWN: Mapping[str, Collection[str]] = {
    "run": NAMES,  # pytest finds the settings itself, those of its ini file too
    "replay": ("runtime", "workload", "defects", "security"),
    "compare": ("system",),  # each must be named
    "conformance": ("runtime",),
    "up": ("workload",),
    "demo": ("system",),
}
"""command -> its options that no setting of a project sets. Without such an option, the command
does something of its own, such as to use all runtimes."""

DEFAULT_SYSTEM = DEFAULTS.system
DEFAULT_OUT = Path(DEFAULTS.out)


def defaults_of(command: Any, configured: Mapping[str, Any]) -> Mapping[str, Any]:
    """Click's `default_map`: the settings of a project that are options of a command or of its
    subcommands, and that a command does not leave to itself."""
    below = getattr(command, "commands", {})
    set_here = configured.keys() - set(_OWN.get(command.name, ()))
    return {name: defaults_of(one, configured) for name, one in below.items()} | {
        option.name: _several(configured[option.name])
        if option.multiple
        else configured[option.name]
        for option in command.params
        if option.param_type_name == "option" and option.name in set_here
    }


def _several(value: Any) -> list[Any]:
    """The default of an option that may be repeated."""
    return list(value) if isinstance(value, tuple) else [value]
