"""Known violations of a system: they are reported as known and fail nothing.

A plugin lists them (`fencepost_known_findings`), each with a schedule that replays it and a history
that shows it; `fencepost.judging.attribution` separates them from new ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct


class Seen(Struct, frozen=True, kw_only=True):
    """A finding appeared in `runs` of `of` runs on a version."""

    version: str
    runs: int
    of: int


class KnownFinding(Struct, frozen=True, kw_only=True):
    """One known way in which a system breaks a promise.

    `system` is its family (`apache/kraft`), `clauses` are the ones it breaks. `message` is a
    regular expression that matches the whole message of such a violation. With a `fault`, a
    violation is known only if such a fault had been injected at the violation's process before, for
    cases in which the message alone is too general. `seen` counts the runs of the schedule in
    `schedule`; `history` is one that shows the finding. Both are paths below the plugin.

    `then` are clauses that it breaks as a consequence: a violation of them, in the same run and in
    a scope of authority where this finding appeared, is its consequence. `wake` is the kind of
    these scopes, their first word.
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
        """The versions in which it appeared; it is known for these only."""
        return tuple(one.version for one in self.seen if one.runs)

    def matches(self, clause: str, message: str, faults: Collection[str]) -> bool:
        """Whether a violation is this finding; `faults` had been injected at the process of the
        violation's event."""
        if clause not in self.clauses or (self.fault and self.fault not in faults):
            return False
        return re.fullmatch(self.message, message) is not None


def bearing_on(
    findings: Sequence[KnownFinding], system: str, versions: Mapping[str, str]
) -> Sequence[KnownFinding]:
    """The findings of a system (`family`, or `family@version`) that apply to the version of a run;
    `versions` are those of run.json."""
    family, _, named = system.partition("@")
    version = versions.get(family, named)
    return [f for f in findings if f.system == family and version in f.versions]
