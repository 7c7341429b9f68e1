"""Known violations of a system: they are reported as known and fail nothing.

A plugin lists them (`fencepost_known_findings`), each with a schedule that replays it and a history
that shows it; `fencepost.judging.attribution` separates them from new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, field


class Seen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding appeared in `runs` of `of` runs on a version."""

    version: str
    runs: int
    of: int


class Trigger(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What causes a finding: a `fault`, or an `operation` that the schedule asks for, with the
    arguments that matter. Both are regular expressions for a whole name.

    A violation is caused by a fault only from the time when it was injected until `within_ms` after
    it was healed, and only if a receipt shows that it took effect; and by an operation from the
    time when it was asked for until `within_ms` later.

    `at` is a regular expression for one of the targets. Without it, a fault was aimed at the
    process that the violation names. If it `outlives` that process, the next processes of that
    slot, which have its disk, are meant as well.

    In `arguments`, names and texts are regular expressions, too; any other value is the argument
    itself. Raises ValueError unless either `fault` or `operation` is given.
    """

    fault: str = ""
    operation: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    within_ms: int = 0
    outlives: bool = False

    def __post_init__(self) -> None:
        if bool(self.fault) is bool(self.operation):
            raise ValueError("a trigger is either a fault or an operation")


class Mark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event that the mechanism of a finding leaves, after the trigger and before the violation,
    or no later than the last event that the violation names as its evidence.

    `kind` is a regular expression for the event's whole tag, `sentence` for its whole sentence,
    and `by` for the whole name of the process that wrote it. Without `by`, a fault that is the
    trigger was aimed at that process, and otherwise any process may have written it. If the groups
    `low` and `high` of the sentence name numbers, some of them are among those that the violation
    names. With `there`, the event concerns the same thing as the violation: a scope whose first
    word is the finding's `wake`. `within_ms` is how long before the violation it may be; 0: any
    time. With `absent`, it is the lack of such an event that the mechanism leaves.
    """

    kind: str
    sentence: str = ".*"
    by: str = ""
    there: bool = False
    within_ms: int = 0
    absent: bool = False


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


Names = Mapping[str, str]
"""What groups of a finding's regular expressions name: group -> text."""
PROCESS = "process"
"""The group that names the process which the fault was aimed at."""


@dataclass(frozen=True, slots=True)
class Match:
    """A regular expression matches: the numbers `low` to `high` that the text names, such as
    offsets (None: it names none), and what the other groups name, each as a text."""

    low: int | None
    high: int | None
    names: Names

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
    Whatever fits only partly is new. Where anything may cause a finding, it has marks only. Raises
    ValueError if it has neither a trigger nor an event as its mark.

    The message, the trigger and the marks are about the same things: groups of one name must match
    the same text wherever they occur, such as `key` in the message and in an argument of the
    trigger. So `by = '(?P<process>.+)'` is the violation's process.

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

    def __post_init__(self) -> None:
        if self.trigger is None and all(mark.absent for mark in self.marks):
            raise ValueError(f"the known finding {self.id} has no cause")

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions in which it appeared; it is known for these only."""
        return tuple(one.version for one in self.seen if one.runs)


def matched(pattern: str, message: str) -> Match | None:
    """What a message names, if the regular expression matches the whole of it."""
    found = re.fullmatch(pattern, message)
    if found is None:
        return None
    named = {name: text for name, text in found.groupdict().items() if text is not None}
    low = named.pop("low", "") or named.get("high", "")
    high = named.pop("high", "") or low
    return Match(int(low) if low else None, int(high) if high else None, named)


def joined(known: Names, more: Names) -> Names | None:
    """Both, if they agree on what they both name; else None."""
    if any(known.get(name, text) != text for name, text in more.items()):
        return None
    return {**known, **more}


def fits(wanted: Any, given: Any, names: Names) -> Iterator[Names]:
    """What is known if an argument is as a trigger wants it (see `Trigger.arguments`), once for
    each way in which it is; `names` are known before."""
    if isinstance(wanted, str):
        match = matched(wanted, str(given))
        both = None if match is None else joined(names, match.names)
        if both is not None:
            yield both
    elif isinstance(wanted, Mapping):
        if isinstance(given, Mapping):
            yield from _entries_fit(list(wanted.items()), given, names)
    elif wanted == given:
        yield names


def _entries_fit(
    wanted: Sequence[tuple[str, Any]], given: Mapping[str, Any], names: Names
) -> Iterator[Names]:
    if not wanted:
        yield names
        return
    name, value = wanted[0]
    for key, one in given.items():
        for named in fits(name, key, names):
            for both in fits(value, one, named):
                yield from _entries_fit(wanted[1:], given, both)


def elsewhere(
    findings: Sequence[KnownFinding], system: str, versions: Mapping[str, str]
) -> Sequence[KnownFinding]:
    """The findings of a system that were seen in other versions only than that of a run; the
    arguments are those of `bearing_on`."""
    family = system.partition("@")[0]
    here = bearing_on(findings, system, versions)
    return [f for f in findings if f.system == family and f.versions and f not in here]


def bearing_on(
    findings: Sequence[KnownFinding], system: str, versions: Mapping[str, str]
) -> Sequence[KnownFinding]:
    """The findings of a system (`family`, or `family@version`) that apply to the version of a run;
    `versions` are those of run.json."""
    family, _, named = system.partition("@")
    version = versions.get(family, named)
    return [f for f in findings if f.system == family and version in f.versions]
