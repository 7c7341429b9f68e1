"""The command line as its parser knows it, and the exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from fencepost.commands.cli import app
from fencepost.model import errors
from fencepost_reference.definitions import assigned_docstring
from fencepost_reference.text import code, line, prose, table


def commands() -> str:
    """Every command with its arguments and options."""
    return "\n".join(_described("fencepost", typer.main.get_command(app)))


def _described(path: str, command: Any) -> Iterator[str]:
    for name, sub in getattr(command, "commands", {}).items():
        yield from _described(f"{path} {name}", sub)
    if hasattr(command, "commands"):
        return
    yield f"## `{path}`\n"
    yield prose(command.help or "") + "\n"
    rows = [_parameter(one) for one in command.params if one.name != "help"]
    if rows:
        yield table(("argument or option", "default", "meaning"), rows)


def _parameter(one: Any) -> tuple[str, str, str]:
    if one.param_type_name == "argument":
        many = "..." if one.nargs == -1 else ""
        name = f"{one.name.upper()}{many}"
        return code(name if one.required else f"[{name}]"), "", line(one.help or "")
    default = one.default
    shown = "" if default in (None, False, ()) or callable(default) else str(default)
    names = " / ".join((*one.opts, *one.secondary_opts))
    return code(names), code(shown), line(one.help or "")


def exit_codes() -> str:
    """The exit codes of the command line, and the errors that lead to them."""
    codes = {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    raised = [
        thing
        for thing in vars(errors).values()
        if inspect.isclass(thing) and issubclass(thing, errors.FencepostError | errors.Violation)
    ]
    rows = []
    for name, number in sorted(codes.items(), key=lambda pair: pair[1]):
        by = [one for one in raised if one.exit_code == number]
        says = line(assigned_docstring(errors.__name__, name))
        named = ", ".join(code(error.__name__) for error in by)
        rows.append((code(number), name.removeprefix("EXIT_").lower(), says, named))
    return table(("code", "name", "meaning", "errors that lead to it"), rows)
