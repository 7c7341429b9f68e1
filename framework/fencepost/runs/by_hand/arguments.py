"""The arguments of a fault, as words of a command line: `isolate broker-1`, `slow_link broker-1
broker-2 --latency-ms 200`.

The words follow the fault's own signature, as a test would call it: a word without a name is the
next argument that was not named, `--latency-ms 200` and `--latency_ms=200` name one, and
`--overtake` alone is true. A list is written with commas (`broker-1,broker-2`). What a parameter's
type does not say is read as JSON, or else as text.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, Union, get_args, get_origin, get_type_hints

from fencepost.model.errors import UsageError, no_such
from fencepost.model.faults.fault import FaultFactory

_ANY = object()
"""The type of a parameter that has none."""


def arguments_from(name: str, factory: FaultFactory, words: Sequence[str]) -> Mapping[str, object]:
    """The arguments by name; raises UsageError for a word that the fault does not take.

    A missing argument is left to the factory, which names all that it takes.
    """
    wanted = _parameters(factory)
    given: dict[str, object] = {}
    free = list(wanted)
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--") and len(word) > 2:
            said, equals, value = word[2:].partition("=")
            argument = said.replace("-", "_")
            if argument not in wanted:
                raise no_such(f"argument of the fault '{name}'", argument, wanted)
            if not equals:
                if _is_flag(wanted[argument]) and not (left and _is_truth(left[0])):
                    value = "true"
                elif not left:
                    raise UsageError(f"--{said} of the fault '{name}' needs a value")
                else:
                    value = left.pop(0)
        else:
            argument, value = next((one for one in free if one not in given), ""), word
            if not argument:
                takes = ", ".join(wanted) or "no argument"
                raise UsageError(f"the fault '{name}' takes no {word!r}; it takes: {takes}")
        if argument in given:
            raise UsageError(f"{argument} of the fault '{name}' is given twice")
        given[argument] = _value(f"{argument} of the fault '{name}'", value, wanted[argument])
    return given


def usage_of(name: str, factory: FaultFactory) -> str:
    """How the fault is written on a command line: `isolate NODE`, `slow_link SOURCES TARGETS
    [--latency-ms 0]`."""
    parts = [name]
    for parameter in _signed(factory):
        if parameter.default is Parameter.empty:
            parts.append(parameter.name.upper())
        elif parameter.default is False:
            parts.append(f"[{_option(parameter.name)}]")
        else:
            parts.append(f"[{_option(parameter.name)} {_shown(parameter.default)}]")
    return " ".join(parts)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default) or "''"


def _signed(factory: FaultFactory) -> Iterable[Parameter]:
    try:
        return signature(factory).parameters.values()
    except ValueError:  # some callables written in C
        return ()


def _parameters(factory: FaultFactory) -> Mapping[str, Any]:
    """The parameters that have a name, in order, with their types."""
    try:
        hints = get_type_hints(factory)
    except (NameError, TypeError):  # a name that only the fault's module knows, or no function
        hints = {}
    alone = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {
        one.name: hints.get(one.name, _ANY) for one in _signed(factory) if one.kind not in alone
    }


def _options(wanted: Any) -> Sequence[Any]:
    """The types of which a value may be."""
    return get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)


def _is_flag(wanted: Any) -> bool:
    return wanted is bool


def _is_truth(word: str) -> bool:
    return word in ("true", "false")


def _value(what: str, word: str, wanted: Any) -> object:
    options = _options(wanted)
    elements = [one for one in options if _is_list(one)]
    scalars = [one for one in options if not _is_list(one)]
    # A name has no comma, so a word with one is a list where a list may stand.
    if elements and ("," in word or not scalars):
        (inside, *_) = get_args(elements[0]) or (str,)
        return [_value(what, part, inside) for part in word.split(",") if part]
    for kind in (bool, int, float):
        if kind in scalars and (found := _scalar(kind, word)) is not None:
            return found
    if str in scalars:
        return word
    if {bool, int, float}.isdisjoint(scalars):
        return _plain(word)
    names = " or ".join(_NAMES[kind] for kind in (bool, int, float) if kind in scalars)
    raise UsageError(f"{what} is {names}, not {word!r}")


_NAMES = {bool: "true or false", int: "a whole number", float: "a number"}


def _scalar(kind: type, word: str) -> object:
    """The value of that type; None for a word that is none."""
    if kind is bool:
        return word == "true" if _is_truth(word) else None
    try:
        return int(word) if kind is int else float(word)
    except ValueError:
        return None


def _is_list(wanted: Any) -> bool:
    origin = get_origin(wanted)
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not str


def _plain(word: str) -> object:
    try:
        return json.loads(word)
    except ValueError:
        return word
