"""Every kind of event, its fields and its traits."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from fencepost import AuthorityChange, Concerning, OperationEvent, Sourced, Unrecognised, kind_name
from fencepost.events import KINDS
from fencepost.reporting import docstring
from fencepost_reference.loaded import plugins
from fencepost_reference.text import attribute_docstrings, code, line, prose, table

TRAITS = {
    "authority": AuthorityChange,
    "operations": OperationEvent,
    "concerns": Concerning,
    "origins": Sourced,
}


def kinds() -> str:
    """The framework's kinds, then those of each plugin."""
    parts = ["## Kinds of every run\n", *_described((*KINDS, Unrecognised))]
    for offer in plugins().offers:
        if offer.event_kinds:
            parts.append(f"## Kinds of the plugin `{offer.plugin}`\n")
            parts += _described(offer.event_kinds)
    return "\n".join(parts)


def _described(found: Iterable[type[Struct]]) -> Iterable[str]:
    for kind in sorted(dict.fromkeys(found), key=kind_name):
        yield f"### `{kind_name(kind)}`\n"
        yield f"Class `{kind.__name__}` of `{_public(kind)}`.{_traits(kind)}\n"
        yield prose(docstring(kind)) + "\n"
        fields = msgspec.structs.fields(kind)
        says = attribute_docstrings(kind)
        if fields:
            rows = [
                (
                    code(field.encode_name),
                    code(_written(kind, field.name)),
                    "" if field.required else code(_default(field)),
                    line(says.get(field.name, "")),
                )
                for field in fields
            ]
            yield table(("field", "type", "default", "meaning"), rows)


def _public(kind: type[Struct]) -> str:
    """The package by which it is imported."""
    return kind.__module__.split(".")[0]


def _traits(kind: type[Struct]) -> str:
    has = [name for name, trait in TRAITS.items() if issubclass(kind, trait)]
    return f" Its traits: {', '.join(has)}." if has else ""


def _written(kind: type[Struct], field: str) -> str:
    annotated = next(c for c in kind.__mro__ if field in vars(c).get("__annotations__", {}))
    return str(annotated.__annotations__[field])


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return repr(field.default)
    assert field.default_factory is not msgspec.NODEFAULT
    return repr(field.default_factory())
