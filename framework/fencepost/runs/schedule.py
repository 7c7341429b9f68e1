"""Schedules: plain values that say which fault is injected when, and what an administrator asks for
when; and the record that replays a run.

A planned schedule may name its targets by selectors (`@leader`), which are resolved when the
injection is due. The record of a run, schedule.json, is a schedule too, with the actual targets and
times. On real processes only that record can be replayed, never the seed. `@ROLE` means every node
of a role; a system may have more selectors (`Selecting`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from fencepost.history.files import content, decoded, write_whole
from fencepost.model.errors import UsageError, no_such
from fencepost.model.system.capabilities import Selecting, System
from fencepost.model.system.topology import Layout
from fencepost.model.view import View

SCHEDULE_VERSION = 3
"""Earlier versions are read as well: 2 has no administration, 1 has the injections under
`strikes`."""


class Injection(Struct, frozen=True, kw_only=True):
    """One injection, `at_ms` after the cluster was ready, healed `for_ms` later (None: at the end).

    A record adds `fault_id`, `targets` and `receipt`.
    """

    at_ms: int
    fault: str
    arguments: Mapping[str, object]
    for_ms: int | None = None
    fault_id: str = ""
    targets: tuple[str, ...] = ()
    receipt: bool | None = None
    missed: str = ""
    """Why it has no receipt: what was measured, and what to look at."""


class Asked(Struct, frozen=True, kw_only=True):
    """What an administrator asks the cluster for, `at_ms` after the cluster was ready. The clients
    of the run know the operation (`Administers`). A record adds `targets`: the slots that it
    concerned."""

    at_ms: int
    operation: str
    arguments: Mapping[str, object]
    targets: tuple[str, ...] = ()


class Skipped(Struct, frozen=True, kw_only=True):
    """A fault that a random schedule drew, `at_ms` after the cluster was ready, and that could not
    be injected then: why, in one sentence."""

    at_ms: int
    fault: str
    arguments: Mapping[str, object]
    why: str


class Schedule(Struct, frozen=True, kw_only=True):
    """The injections and the administration, each in the order of their times; at the same time,
    administration comes first. `version` is the version of this layout.

    A random schedule prefers operations whose victims are in a state that they did not meet before.
    `met` are the operations of earlier runs that it knew of: operation -> state -> how often.
    """

    injections: tuple[Injection, ...] = ()
    administration: tuple[Asked, ...] = ()
    met: Mapping[str, Mapping[str, int]] = {}
    skipped: tuple[Skipped, ...] = ()
    """No part of what is followed."""
    version: int = SCHEDULE_VERSION

    @property
    def selectors(self) -> Sequence[str]:
        """Every selector among the injections' arguments, once."""
        values = (value for one in self.injections for value in one.arguments.values())
        found = (v for v in values if isinstance(v, str) and v.startswith("@"))
        return sorted(dict.fromkeys(found))


class _Version1(Struct, frozen=True):
    strikes: tuple[Injection, ...] | None = None
    version: int = 1


class Kind(IntEnum):
    """What an action does: ask for administration, inject or heal."""

    ASK = 0
    INJECT = 1
    HEAL = 2


@dataclass(frozen=True, slots=True)
class Action:
    """What to do next; `number` is the place of the operation among those of its kind."""

    at_ms: int
    number: int
    kind: Kind


def actions(schedule: Schedule) -> tuple[Action, ...]:
    """What to do, in the order of the times; at the same time administration comes first, then the
    injections and heals in the schedule's order."""
    planned = [Action(one.at_ms, n, Kind.INJECT) for n, one in enumerate(schedule.injections)]
    planned += [
        Action(one.at_ms + one.for_ms, n, Kind.HEAL)
        for n, one in enumerate(schedule.injections)
        if one.for_ms is not None
    ]
    planned += [Action(one.at_ms, n, Kind.ASK) for n, one in enumerate(schedule.administration)]
    # A fault of no duration is injected before it is healed: its number is the same, and INJECT is
    # less than HEAL.
    return tuple(sorted(planned, key=lambda a: (a.at_ms, a.kind > Kind.ASK, a.number, a.kind)))


Select = Callable[[str, View], Sequence[str]]
"""The names of the slots that a selector means in a view; empty: none is known yet."""


def resolve(
    arguments: Mapping[str, object], view: View, select: Select
) -> Mapping[str, object] | None:
    """The arguments with every selector replaced by slot names; None while a target is not known
    yet.

    Raises UsageError for a selector that does not exist.
    """
    resolved: dict[str, object] = {}
    for name, value in arguments.items():
        if isinstance(value, str) and value.startswith("@"):
            found = select(value, view)
            if not found:
                return None
            # One slot is given as a name, since a fault of one node takes no list.
            resolved[name] = found[0] if len(found) == 1 else list(found)
        else:
            resolved[name] = value
    return resolved


def selecting(system: System, layout: Layout) -> Select:
    """The selectors of a run: `@ROLE` for every node of a role, and those of the system."""

    def select(selector: str, view: View) -> Sequence[str]:
        names = [f"@{role}" for role in layout.roles]
        if selector in names:
            return [slot.name for slot in layout.of(selector[1:])]
        if isinstance(system, Selecting):
            found = system.select(selector, view, layout)
            if found is not None:
                return found
            names += system.selectors
        raise no_such("selector", selector.split("/", maxsplit=1)[0], names)

    return select


def receipts(path: Path) -> Mapping[str, str]:
    """Why each fault of a recorded schedule has no receipt, by the fault's id; empty: it has one.

    A run without faults records no schedule.
    """
    if not path.exists():
        return {}
    injections = read(path).injections
    return {one.fault_id: "" if one.receipt else one.missed or _UNMEASURED for one in injections}


_UNMEASURED = "it was not measured"
_LATEST_MS = 7 * 24 * 3600 * 1000
"""The latest time in a schedule: a week after the cluster was ready."""


def read(path: Path) -> Schedule:
    """The schedule in a file; raises UsageError if there is none, or a newer one."""
    try:
        written = content(path.parent, path)
        old = decoded(written, _Version1)
        schedule = (
            Schedule(injections=old.strikes)
            # Both are asked: a file of a later version may have a field of that name.
            if old.strikes is not None and old.version == 1
            else decoded(written, Schedule)
        )
    except FileNotFoundError:
        raise UsageError(f"there is no schedule {path}") from None
    except msgspec.DecodeError as wrong:
        raise UsageError(f"{path} is no schedule: {wrong}") from wrong
    if schedule.version > SCHEDULE_VERSION:
        raise UsageError(f"{path} has version {schedule.version}, newer than {SCHEDULE_VERSION}")
    for one in schedule.injections:
        if not (0 <= one.at_ms <= _LATEST_MS and 0 <= (one.for_ms or 0) <= _LATEST_MS):
            raise UsageError(f"{path} has the fault {one.fault!r} at an absurd time")
    for asked in schedule.administration:
        if not 0 <= asked.at_ms <= _LATEST_MS:
            raise UsageError(f"{path} has {asked.operation!r} at an absurd time")
    return schedule


def write(path: Path, schedule: Schedule) -> None:
    """Writes the file, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(schedule)))
