"""Schedules: which fault strikes when, as plain values; and the record that replays a run.

A planned schedule may name its targets by what they do (`@leader/orders/0`): they are looked up
when the strike is due. The record of a run, schedule.json, is a schedule too, with the targets and
times that it really came to; on real processes only that can be replayed, never the seed.

    @leader/TOPIC/PARTITION     the partition's leader
    @follower/TOPIC/PARTITION   the first replica in its ISR that does not lead
    @active-controller          the active controller
    @controllers, @brokers      every node of that role
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from fencepost.history.run_folder import write_whole
from fencepost.model.errors import UsageError, no_such
from fencepost.model.topology import Layout, Role
from fencepost.model.view import View

SCHEDULE_VERSION = 1
SELECTORS = ("@leader", "@follower", "@active-controller", "@controllers", "@brokers")


class Strike(Struct, frozen=True, kw_only=True):
    """One strike, `at_ms` after the cluster was ready, healed `for_ms` later (None: at the end).

    `fault_id`, `targets` and `receipt` are what a record adds.
    """

    at_ms: int
    fault: str
    arguments: Mapping[str, object]
    for_ms: int | None = None
    fault_id: str = ""
    targets: tuple[str, ...] = ()
    receipt: bool | None = None


class Schedule(Struct, frozen=True, kw_only=True):
    """Strikes in the order of their times. `version` is that of this layout."""

    strikes: tuple[Strike, ...] = ()
    version: int = SCHEDULE_VERSION


@dataclass(frozen=True, slots=True)
class Action:
    """What to do next: strike (the first time a number is met) or heal (the second time)."""

    at_ms: int
    number: int
    heals: bool


def actions(schedule: Schedule) -> tuple[Action, ...]:
    """The strikes and heals in the order of their times; at one time, in the schedule's own."""
    planned = [Action(strike.at_ms, n, False) for n, strike in enumerate(schedule.strikes)]
    planned += [
        Action(strike.at_ms + strike.for_ms, n, True)
        for n, strike in enumerate(schedule.strikes)
        if strike.for_ms is not None
    ]
    return tuple(sorted(planned, key=lambda a: (a.at_ms, a.number, a.heals)))


def resolve(
    arguments: Mapping[str, object], view: View, layout: Layout
) -> Mapping[str, object] | None:
    """The arguments with every selector replaced by slot names; None while one is not known yet.

    Raises UsageError for a selector that does not exist.
    """
    resolved: dict[str, object] = {}
    for name, value in arguments.items():
        if isinstance(value, str) and value.startswith("@"):
            found = _select(value, view, layout)
            if not found:
                return None
            resolved[name] = found[0] if len(found) == 1 else list(found)
        else:
            resolved[name] = value
    return resolved


def _select(selector: str, view: View, layout: Layout) -> Sequence[str]:
    kind, *of = selector.split("/")
    brokers = {slot.node_id: slot.name for slot in layout.of(Role.BROKER, spares=True)}
    match kind, of:
        case "@controllers", []:
            return [slot.name for slot in layout.of(Role.CONTROLLER)]
        case "@brokers", []:
            return list(brokers.values())
        case "@active-controller", []:
            return [
                s.name
                for s in layout.of(Role.CONTROLLER, spares=True)
                if s.id_as(Role.CONTROLLER) == view.active_controller
            ]
        case (("@leader" | "@follower"), [topic, partition]) if partition.isdecimal():
            known = view.partitions.get((topic, int(partition)))
            if known is None:
                return []
            if kind == "@leader":
                wanted = [known.leader]
            else:
                wanted = [replica for replica in known.isr if replica != known.leader][:1]
            return [brokers[node] for node in wanted if node in brokers]
    raise no_such("selector", kind, SELECTORS)


def read(path: Path) -> Schedule:
    """The schedule in a file; raises UsageError when it is none, or a newer one."""
    try:
        schedule = msgspec.json.decode(path.read_bytes(), type=Schedule)
    except FileNotFoundError:
        raise UsageError(f"there is no schedule {path}") from None
    except msgspec.DecodeError as wrong:
        raise UsageError(f"{path} is no schedule: {wrong}") from wrong
    if schedule.version > SCHEDULE_VERSION:
        raise UsageError(f"{path} has version {schedule.version}, newer than {SCHEDULE_VERSION}")
    return schedule


def write(path: Path, schedule: Schedule) -> None:
    """Writes the file, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(schedule)))
