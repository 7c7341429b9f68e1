"""Known violations of a system: they are reported as known and fail nothing.

A plugin lists them (`fencepost_known_findings`), each with a schedule that replays it and a history
that shows it; `fencepost.judging.attribution` separates them from new ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, field


class Seen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding appeared in `runs` of `of` runs on a version."""

    version: str
    runs: int
    of: int


class Trigger(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fault that causes a finding, with the arguments that matter.

    A violation is caused by it only from the time when it was injected until `within_ms` after it
    was healed. If it `outlives` the process that the fault was aimed at, the next processes of that
    slot, which have its disk, are meant as well.
    """

    fault: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    within_ms: int = 0
    outlives: bool = False


class Mark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event that the mechanism of a finding leaves: of a kind, by its tag, from a process that
    the trigger was aimed at, after the trigger and before the violation.

    `sentence` is a regular expression that matches the event's whole sentence. If its groups `low`
    and `high` name numbers, some of them are among those that the violation names. With `there`,
    the event concerns the same thing as the violation: a scope whose first word is the finding's
    `wake`.
    """

    kind: str
    sentence: str = ".*"
    there: bool = False


class Spread(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event by which a finding affects more, such as a follower that drops what its new leader
    lacks: of a kind, by its tag, after a violation of the finding and in its scope.

    `sentence` is a regular expression for its whole sentence; its groups `low` and `high` name what
    is affected.
    """

    kind: str
    sentence: str


class Consequence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A clause that a finding breaks in its wake, and the messages of such violations.

    It comes after a violation that the trigger itself explains. With `earlier`, it stands before
    one: the event is that of something which was lost later.
    """

    clause: str
    message: str
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """A violation's message matches: the numbers `low` to `high` that it names, such as offsets
    (None: it names none), and the process that it names, if any."""

    low: int | None
    high: int | None
    process: str

    def within(self, low: int | None, high: int | None) -> bool:
        """Whether all of its numbers are among these."""
        if self.low is None or self.high is None:
            return True
        return low is not None and high is not None and low <= self.low <= self.high <= high

    def meets(self, other: Match) -> bool:
        """Whether some of its numbers are among those of the other one; it may name none."""
        if self.low is None or self.high is None:
            return True
        if other.low is None or other.high is None:
            return False
        return self.low <= other.high and other.low <= self.high


class KnownFinding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known way in which a system breaks a promise.

    `system` is its family (`apache/kraft`), `clauses` are the ones it breaks. `message` is a
    regular expression that matches the whole message of such a violation. Its groups `low` and
    `high` name the numbers that are affected, such as offsets, its group `process` the process that
    the fault was aimed at; without that group, it is the process of the violation's event.

    A violation is this finding only if its cause is there too: its `trigger`, and all its `marks`.
    Whatever fits only partly is new. A finding that any fault may cause has no trigger and no
    marks: its message must name the evidence of its cause.

    `then` are violations that follow. Such a violation is known in the same run, in a scope of
    authority where this finding appeared, for numbers that it affected: by its message, or by the
    events in `spreads`. `wake` is the kind of these
    scopes, their first word. `seen` counts the runs of the schedule in `schedule`; `history` is one
    that shows the finding. Both are paths below the plugin.
    """

    id: str
    system: str
    clauses: tuple[str, ...]
    message: str
    trigger: Trigger | None = None
    marks: tuple[Mark, ...] = ()
    spreads: tuple[Spread, ...] = ()
    then: tuple[Consequence, ...] = ()
    wake: str = ""
    says: str
    seen: tuple[Seen, ...]
    schedule: str
    history: str

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions in which it appeared; it is known for these only."""
        return tuple(one.version for one in self.seen if one.runs)


def matched(pattern: str, message: str) -> Match | None:
    """What a message names, if the regular expression matches the whole of it."""
    found = re.fullmatch(pattern, message)
    if found is None:
        return None
    named = found.groupdict()
    low = named.get("low") or named.get("high")
    high = named.get("high") or low
    return Match(int(low) if low else None, int(high) if high else None, named.get("process") or "")


def bearing_on(
    findings: Sequence[KnownFinding], system: str, versions: Mapping[str, str]
) -> Sequence[KnownFinding]:
    """The findings of a system (`family`, or `family@version`) that apply to the version of a run;
    `versions` are those of run.json."""
    family, _, named = system.partition("@")
    version = versions.get(family, named)
    return [f for f in findings if f.system == family and version in f.versions]
