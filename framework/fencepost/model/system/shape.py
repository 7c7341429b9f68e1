"""The size of a cluster, and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fencepost.model.errors import UsageError

_DIGITS = 6
"""How many digits a count may have."""


@dataclass(frozen=True, slots=True)
class Spare:
    """A node with an id of its own that is laid out but not started; `Cluster.start` starts it."""

    role: str
    node_id: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a cluster, and its settings (names of the system, text values).

    `counts` overrides the system's default counts (`System.counts`, most often of nodes of a role).
    `own` holds settings of single nodes, by the names of their slots; they override those of all
    nodes. A name such as `broker-1#2` is that of one process; its settings override those of its
    slot. So a restart can be an upgrade. `security` names how the listeners of all nodes are
    secured, in words of the system (`Secured.securities`); empty: they are open. `apps` are
    programs of the user's own that work with the cluster: name -> how many instances, each with a
    slot and links of its own (`fencepost.model.system.apps`).
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    spares: tuple[Spare, ...] = ()
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    security: str = ""
    apps: Mapping[str, int] = field(default_factory=dict)

    def own_of(self, slot: str, process: str) -> Mapping[str, str]:
        """The settings of this process alone: those of its slot, overridden by its own."""
        return {**self.own.get(slot, {}), **self.own.get(process, {})}

    def over(self, other: Shape) -> Shape:
        """This shape, and from `other` what this one leaves open: a count, a setting or an app by
        its name, defects, spares and the security as a whole."""
        names = {**other.own, **self.own}
        return Shape(
            counts={**other.counts, **self.counts},
            settings={**other.settings, **self.settings},
            defects=self.defects or other.defects,
            spares=self.spares or other.spares,
            own={one: {**other.own.get(one, {}), **self.own.get(one, {})} for one in names},
            security=self.security or other.security,
            apps={**other.apps, **self.apps},
        )


DEFAULT_SHAPE = Shape()
"""That of the system."""


def shape_of(
    counts: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    defects: Iterable[str] | None = None,
    security: str = "",
) -> Shape:
    """The shape that options give: counts `NAME=N`, settings `NAME=VALUE`, defects, of which one
    text may name several, with commas between them, and a security. Raises UsageError."""
    return Shape(
        counts={
            name: _number(name, text) for name, text in _pairs("count", "N", counts or ()).items()
        },
        settings=_pairs("setting", "VALUE", settings or ()),
        defects=tuple(name for one in defects or () for name in one.split(",") if name),
        security=security,
    )


def options_of(shape: Shape) -> Iterable[tuple[str, str]]:
    """The options that `shape_of` makes this shape of, each with its value."""
    yield from (("count", f"{name}={number}") for name, number in shape.counts.items())
    yield from (("setting", f"{name}={value}") for name, value in shape.settings.items())
    if shape.defects:
        yield "defects", ",".join(shape.defects)
    if shape.security:
        yield "security", shape.security


def _pairs(what: str, value: str, given: Iterable[str]) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not name or not equals:
            raise UsageError(f"a {what} is NAME={value}, not {one!r}")
        if name in pairs:
            raise UsageError(f"the {what} {name} is given twice")
        pairs[name] = text
    return pairs


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise UsageError(f"a count is NAME=N with a number, not {f'{name}={text}'!r}")
    return int(text)
