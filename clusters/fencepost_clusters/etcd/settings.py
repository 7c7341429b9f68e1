"""The flags of etcd that a shape may set, and the values that a member accepts for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fencepost import Shape, UsageError, no_such

SETTINGS: Mapping[str, str] = {
    "heartbeat-interval": "100",
    "election-timeout": "1000",
    "pre-vote": "true",
    "snapshot-count": "10000",
    "quota-backend-bytes": "0",
    "max-request-bytes": "1572864",
}
"""The flags, with etcd's own defaults."""
HEARTBEAT, ELECTION = "heartbeat-interval", "election-timeout"
_MOST, _MOST_LONG = (1 << 31) - 1, (1 << 63) - 1
_RANGES: Mapping[str, tuple[int, int]] = {
    HEARTBEAT: (1, _MOST),
    ELECTION: (1, 50_000),
    "snapshot-count": (1, _MOST_LONG),
    "quota-backend-bytes": (-1, _MOST_LONG),
    "max-request-bytes": (1, _MOST),
}
"""The flags that are whole numbers. A member takes its default for a snapshot count of 0; a
quota of 0 is its default, and -1 is none."""
_BEATS = 5
"""How many heartbeats an election timeout has, at least."""


def check(shape: Shape, system: str) -> None:
    """Raises UsageError for a flag that is not here, and for a value that no member accepts."""
    for given in (shape.settings, *shape.own.values()):
        for name, value in given.items():
            if name not in SETTINGS:
                raise no_such(f"setting of {system}", name, SETTINGS)
            _check(name, value)
    for process in ("", *shape.own):
        slot, _, _ = process.partition("#")
        _check_beats({**SETTINGS, **shape.settings, **shape.own_of(slot, process)})


def _check(name: str, value: str) -> None:
    if name not in _RANGES:
        if value not in ("true", "false"):
            raise UsageError(f"{name} must be true or false, not {value!r}")
        return
    least, most = _RANGES[name]
    if not re.fullmatch(r"-?[0-9]{1,19}", value) or not least <= int(value) <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, not {value!r}")


def _check_beats(flags: Mapping[str, str]) -> None:
    if int(flags[ELECTION]) < _BEATS * int(flags[HEARTBEAT]):
        raise UsageError(
            f"{ELECTION} is {flags[ELECTION]}: etcd needs at least {_BEATS} times the "
            f"{HEARTBEAT}, {flags[HEARTBEAT]}"
        )
