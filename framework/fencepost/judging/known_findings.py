"""Broken promises of a system that are known: reported as such, and turning nothing red.

A plugin lists them (`fencepost_known_findings`), each with what replays and what shows it;
`fencepost.judging.attribution` tells them from new ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct


class Seen(Struct, frozen=True, kw_only=True):
    """A finding showed in `runs` of `of` runs on a version."""

    version: str
    runs: int
    of: int


class KnownFinding(Struct, frozen=True, kw_only=True):
    """One known way in which a system breaks a promise.

    `system` is its family (`apache/kraft`), `clauses` what it breaks. `message` is a regular
    expression that the whole message of such a violation matches. With a `fault`, it is known only
    where the violation was found at a process that such a fault had been aimed at by then: a
    message alone may say too little. `seen` counts the runs of the schedule in `schedule`;
    `history` holds one that showed it. Both are paths below the plugin.

    `then` are the clauses that it leaves broken in its wake: whatever of them is violated in a
    scope of authority where this finding showed, in the same run, is its consequence. `wake` is the
    kind of such scopes, their first word.
    """

    id: str
    system: str
    clauses: tuple[str, ...]
    message: str
    fault: str = ""
    then: tuple[str, ...] = ()
    wake: str = ""
    says: str
    seen: tuple[Seen, ...]
    schedule: str
    history: str

    @property
    def versions(self) -> tuple[str, ...]:
        """Those it showed in: of these it is known."""
        return tuple(one.version for one in self.seen if one.runs)

    def matches(self, clause: str, message: str, faults: Collection[str]) -> bool:
        """Whether a violation is this one; `faults` had been aimed at the process at whose event it
        was found."""
        if clause not in self.clauses or (self.fault and self.fault not in faults):
            return False
        return re.fullmatch(self.message, message) is not None


def bearing_on(
    findings: Sequence[KnownFinding], system: str, versions: Mapping[str, str]
) -> Sequence[KnownFinding]:
    """The findings of a system (`family`, or `family@version`) in the version that a run was of;
    `versions` are those of run.json."""
    family, _, named = system.partition("@")
    version = versions.get(family, named)
    return [f for f in findings if f.system == family and version in f.versions]
