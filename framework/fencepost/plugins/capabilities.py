"""Checks that a plugin's system has what it must have, and that its capabilities are whole.

A capability is a protocol. A system that has some of its members and lacks others would silently be
taken for a system without the capability.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.model.cluster import Configured, Supersedes
from fencepost.model.errors import UsageError
from fencepost.model.faults.random_faults import ChoosesFaults
from fencepost.model.runtime import describe
from fencepost.model.system.attachment import Attached
from fencepost.model.system.capabilities import (
    Contained,
    Faceted,
    HasDefects,
    HasSuite,
    Launchable,
    Mutable,
    Observed,
    ParsesLogs,
    Probed,
    Secured,
    Selecting,
    StartsInOrder,
    System,
    Versioned,
)
from fencepost.model.system.simulable import Framing, Simulable
from fencepost.model.system.status import ShowsStatus

_WHOLE: Sequence[type] = (Attached, Secured, Selecting, Simulable, Versioned)
"""Capabilities of several members."""
_ALONE = ("version",)
"""Members that are a capability by themselves (`SaysVersion`)."""
_OF_PROGRAMS: Sequence[type] = (Contained, ParsesLogs)
"""Capabilities that only a system with programs can use."""
_ALL: Sequence[type] = (
    *(System, Probed, Faceted, Launchable, Observed, HasSuite, HasDefects, Mutable, Supersedes),
    *(Configured, ChoosesFaults, Framing, ShowsStatus, StartsInOrder, *_WHOLE, *_OF_PROGRAMS),
)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and type(count) is int for name, count in value.items()
    )


def _are_classes(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(one, type) for one in value)


_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_text, "text"),
    "plane": (_is_text, "text"),
    "counts": (_are_counts, "a mapping of names to numbers"),
    "folds": (_are_classes, "a sequence of classes"),
    "workload": (_is_text, "the name of a workload"),
}
"""The members of `System` that are no functions: whether a value fits, and what it must be."""


def check_system(system: Any) -> None:
    """Raises UsageError, with the capability and the remedy, for a system that does not fit."""
    named = f"the system {getattr(system, 'name', repr(system))}"
    # By the names of the members, since `isinstance` with a protocol says only yes or no.
    lacking = [name for name in members(System) if not hasattr(system, name)]
    if lacking:
        raise UsageError(f"{named} lacks {describe(lacking)}: fencepost.System needs them")
    _check_members(named, system)
    for capability in _WHOLE:
        lacking = [name for name in members(capability) if not hasattr(system, name)]
        has = [name for name in members(capability) if name not in {*lacking, *_ALONE}]
        if has and lacking:
            raise UsageError(
                f"{named} has {describe(has)} and lacks {describe(lacking)}: "
                f"fencepost.{capability.__name__} needs all of them"
            )
    if not isinstance(system, Launchable | Simulable):
        raise UsageError(
            f"{named} can run nowhere: give it `command` (fencepost.Launchable), or the members of "
            "fencepost.Simulable"
        )
    for capability in _OF_PROGRAMS:
        if isinstance(system, capability) and not isinstance(system, Launchable):
            raise UsageError(
                f"{named} has {describe(members(capability))} and no program: give it `command` "
                "(fencepost.Launchable)"
            )
    if isinstance(system, Probed):
        _check_probe(named, system.probe)


def _check_members(named: str, system: Any) -> None:
    for member, (fits, what) in _VALUES.items():
        if not fits(getattr(system, member)):
            raise UsageError(
                f"{named} has a bad `{member}`: it is {getattr(system, member)!r}; make it {what} "
                "(fencepost.System)"
            )
    for capability in _ALL:
        for member in members(capability):
            declared = vars(capability)[member]
            if isinstance(declared, property) or not hasattr(system, member):
                continue
            given = getattr(system, member)
            if not callable(given):
                raise UsageError(
                    f"{named} has a bad `{member}`: it is {given!r}; make it a "
                    f"function (fencepost.{capability.__name__})"
                )
            wanted = list(inspect.signature(declared).parameters.values())[1:]
            names = [one.name for one in wanted if one.kind is one.KEYWORD_ONLY]
            if not takes(given, len(wanted) - len(names), names):
                raise UsageError(
                    f"{named} has a `{member}` that does not take "
                    f"({', '.join(one.name for one in wanted)}): fencepost.{capability.__name__} "
                    "is called with these"
                )


def takes(given: Callable[..., Any], places: int, names: Sequence[str] = ()) -> bool:
    """Whether a function can be called with so many arguments by place, and with these by name."""
    try:
        signature = inspect.signature(given)
    except ValueError:  # some that are written in C have none
        return True
    try:
        signature.bind(*[None] * places, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def members(capability: type) -> Sequence[str]:
    """The names of a protocol's members, in its own order."""
    return [name for name in vars(capability) if not name.startswith("_")]


def _check_probe(named: str, probe: Any) -> None:
    module = sys.modules.get(getattr(probe, "__module__", ""))
    name = getattr(probe, "__qualname__", "")
    if not callable(probe) or getattr(module, name, None) is not probe:
        raise UsageError(
            f"the probe of {named} is no function of a module, and containers import it by name: "
            "define it at the top of a module (fencepost.Probed)"
        )
