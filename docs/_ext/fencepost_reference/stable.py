"""The stable modules: every exported name, and the members of classes and protocols."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_origin

from msgspec import Struct

from fencepost.events import KINDS
from fencepost.reporting import docstring
from fencepost_reference.definitions import (
    OURS,
    assigned,
    assigned_docstring,
    home,
    names_in,
    string,
)
from fencepost_reference.loaded import plugins
from fencepost_reference.text import (
    attribute_docstrings,
    class_source,
    code,
    first_paragraph,
    first_sentence,
    line,
    prose,
    signature,
    table,
)

MODULES = (
    *(
        "fencepost",
        "fencepost.testing",
        "fencepost.testing.kit",
        "fencepost.reporting",
        "fencepost.columns",
        "fencepost.images",
    ),
    *("fencepost_kafka", "fencepost_kafka.testing"),
)
"""What they export is stable. A name that several export is described where it is first."""
OBTAINED = frozenset(
    {
        *("Active", "Cluster", "EventLog", "Faults", "Plugins", "Run", "Workers"),
        *("KafkaClients", "KafkaCluster", "KafkaNode", "Node", "Reads", "Voters", "Writes"),
    }
)
"""Classes whose objects Fencepost makes; their constructors and class methods are not stable."""


class Listed(NamedTuple):
    """An exported name, its module and its meaning: the object, and what is written about it."""

    module: str
    name: str
    thing: Any
    says: str

    @property
    def kind(self) -> str:
        if inspect.isclass(self.thing):
            if issubclass(self.thing, BaseException):
                return "exception"
            if issubclass(self.thing, enum.Enum):
                return "enum"
            if self.thing in _event_kinds():
                return "event"
            return "protocol" if _is_protocol(self.thing) else "class"
        if inspect.isroutine(self.thing):
            return "function"
        return "type" if _is_type(self.thing) else "value"


def exported() -> str:
    """Every stable name with its first sentence, then the members of classes and protocols."""
    parts = []
    for module in MODULES:
        own = [one for one in listed() if one.module == module]
        parts.append(f"## `{module}`\n")
        parts.append(prose(first_paragraph(docstring(sys.modules[module]))) + "\n")
        rows = [(code(one.name), one.kind, _meaning(one)) for one in own]
        parts.append(table(("name", "what", "meaning"), rows))
        parts += [part for one in own for part in _described(one)]
    return "\n".join(parts)


@cache
def listed() -> tuple[Listed, ...]:
    """Every stable name once, by module, in the order of the alphabet."""
    found: dict[int, Listed] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for export in sorted(module.__all__, key=str.lower):
            thing = getattr(module, export)
            described = inspect.isclass(thing) or inspect.isroutine(thing)
            says = docstring(thing) if described else assigned_docstring(name, export)
            key = id(thing) if described else hash((export, repr(thing)))
            found.setdefault(key, Listed(name, export, thing, says))
    return tuple(found.values())


def unlisted() -> Mapping[str, str]:
    """The types of stable signatures that no stable module exports, each with one such signature.

    A plugin cannot import such a type, and the reference does not describe it.
    """
    names = {one.name for one in listed()}
    found: dict[str, str] = {}
    for one in listed():
        for where, module, annotation in _annotations(one):
            for name in names_in(annotation):
                origin = home(module, name)
                if origin and name not in names and _is_own_type(origin, name):
                    found.setdefault(name, where)
    return found


def _meaning(one: Listed) -> str:
    says = line(first_sentence(one.says))
    if one.kind != "type":
        return says
    return f"{says} {code(assigned(home(one.module, one.name), one.name))}"


def _described(one: Listed) -> Iterator[str]:
    """The section of a class, a protocol or a function; an event has one on the page of events."""
    if one.kind == "function":
        yield f"### `{one.name}`\n\n{code(one.name + signature(one.thing))}\n"
        yield prose(one.says) + "\n"
    elif one.kind == "event":
        return
    elif inspect.isclass(one.thing):
        rows = [*_values(one.thing), *_fields(one.thing), *_attributes(one.thing), *_methods(one)]
        if rows:
            yield f"### `{one.name}`\n\n{prose(one.says)}\n"
            yield table(("member", "meaning"), [(code(name), line(says)) for name, says in rows])


def _values(cls: type) -> Iterator[tuple[str, str]]:
    if issubclass(cls, enum.Enum):
        says = attribute_docstrings(cls)
        for value in cls:
            yield f"{value.name} = {value.value!r}", says.get(value.name, "")


def _fields(cls: type) -> Iterator[tuple[str, str]]:
    for owner in _own_classes(cls):
        says = attribute_docstrings(owner)
        for node in class_source(owner).body:
            if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
                yield ast.unparse(node), first_paragraph(says.get(ast.unparse(node.target), ""))


def _attributes(cls: type) -> Iterator[tuple[str, str]]:
    """The public attributes that a constructor sets, with their types as far as it shows them."""
    for made in class_source(cls).body:
        if not isinstance(made, ast.FunctionDef) or made.name != "__init__":
            continue
        types = {a.arg: ast.unparse(a.annotation) for a in made.args.args if a.annotation}
        for node, after in zip(made.body, [*made.body[1:], None], strict=True):
            if (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and (name := _set_by(node))
                and not name.startswith("_")
            ):
                kind = _shown_type(node, types)
                yield f"{name}: {kind}" if kind else name, first_paragraph(string(after))


def _set_by(node: ast.Assign | ast.AnnAssign) -> str:
    """The attribute of `self` that an assignment sets."""
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return target.attr if isinstance(target, ast.Attribute) else ""


def _shown_type(node: ast.Assign | ast.AnnAssign, parameters: Mapping[str, str]) -> str:
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation)
    if isinstance(node.value, ast.Name):
        return parameters.get(node.value.id, "")
    made = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
    return made if made[:1].isupper() else ""


def _methods(one: Listed) -> Iterator[tuple[str, str]]:
    for name, function, is_property in _functions(one):
        says = first_paragraph(docstring(function))
        if name == "__init__":
            yield one.name + signature(function), says or "The constructor."
        elif is_property:
            yield f"{name}: {function.__annotations__.get('return', '')}", says
        else:
            yield name + signature(function), says


def _functions(one: Listed) -> Iterator[tuple[str, Any, bool]]:
    """The stable methods and properties of a class, inherited ones of ours included."""
    shown: set[str] = set()
    made = not (
        one.name in OBTAINED
        or _is_protocol(one.thing)
        or issubclass(one.thing, Struct | BaseException)
        or dataclasses.is_dataclass(one.thing)
    )
    for owner in _own_classes(one.thing):
        for name, member in vars(owner).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            public = not name.startswith("_") or name == "__call__" or (name == "__init__" and made)
            if one.name in OBTAINED and isinstance(member, classmethod):
                continue
            if public and inspect.isfunction(function) and name not in shown:
                shown.add(name)
                yield name, function, isinstance(member, property)


def _own_classes(cls: type) -> Iterator[type]:
    return (owner for owner in cls.__mro__ if owner.__module__.startswith(OURS))


def _annotations(one: Listed) -> Iterator[tuple[str, str, str]]:
    """Where an annotation is, the module that it is read in, and its words."""
    if inspect.isroutine(one.thing):
        for annotation in one.thing.__annotations__.values():
            yield one.name, one.thing.__module__, str(annotation)
    elif inspect.isclass(one.thing):
        for owner in _own_classes(one.thing):
            for name, annotation in vars(owner).get("__annotations__", {}).items():
                if not name.startswith("_"):
                    yield f"{one.name}.{name}", owner.__module__, str(annotation)
        for shown, _ in _attributes(one.thing):
            name, _, annotation = shown.partition(": ")
            if annotation:
                yield f"{one.name}.{name}", one.thing.__module__, annotation
        for name, function, _ in _functions(one):
            for annotation in function.__annotations__.values():
                yield f"{one.name}.{name}", function.__module__, str(annotation)
    elif _is_type(one.thing):
        module = home(one.module, one.name)
        if written := assigned(module, one.name):
            yield one.name, module, written


@cache
def _event_kinds() -> frozenset[type]:
    return frozenset({*KINDS, *plugins().event_kinds})


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _is_type(thing: Any) -> bool:
    """Whether it names a type made of others, such as a union."""
    return hasattr(thing, "__args__")


def _is_own_type(module: str, name: str) -> bool:
    """Not a type variable, nor a name of ours for another type with bounds."""
    found = getattr(importlib.import_module(module), name)
    return not isinstance(found, TypeVar) and get_origin(found) is not Annotated
