"""Known violations of a system: they are reported as known and fail nothing.

A plugin lists them (`fencepost_known_findings`), each with a schedule that replays it and a history
that shows it; `fencepost.judging.attribution` separates them from new ones.

A finding is a function over facts: `caused` is asked of each violation of one of its clauses, and
answers whether the mechanism of the finding was at work. It sees a `Scene`: the facts of the
violation, the faults and operations that may have caused it, and the events that the mechanism
leaves. Whatever fits only partly is new, so a function asks for everything that the mechanism
needs, and for things that agree with each other: the same lease, the same server.

What a finding has broken may break more: a message that a truncation dropped is lost to every
client. `Wake` says which violations follow, where, and of which numbers.

See docs/decisions/25-known-findings.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct

from fencepost.judging.about import Facts
from fencepost.judging.scene import Scene
from fencepost.model.versions import nearest

Numbers = tuple[int, int] | None
"""The first and the last number that something is about, such as offsets; None: it states none."""


class Seen(Struct, frozen=True):
    """A finding appeared in `runs` of `of` runs on a version."""

    version: str
    runs: int
    of: int


def always(facts: Facts) -> bool:
    """Whatever the facts are."""
    return True


@final
@dataclass(frozen=True, slots=True)
class Follows:
    """A violation that a finding has in its wake: of a clause, and of numbers that the finding has
    affected, all of them; of any if `numbers` is None.

    It comes after a violation that the finding itself explains. With `earlier`, it stands before
    one: the event is that of something which was lost later.
    """

    clause: str
    numbers: Callable[[Facts], Numbers] | None = None
    earlier: bool = False
    of: Callable[[Facts], bool] = always
    """Which violations of the clause follow at all."""

    def affected(self, facts: Facts, numbers: Numbers) -> bool:
        """Whether a violation is of these numbers."""
        if self.numbers is None:
            return self.of(facts)
        own = self.numbers(facts)
        # All of its numbers must be affected: a loss of more than the finding explains is new.
        inside = own and numbers and numbers[0] <= own[0] <= own[1] <= numbers[1]
        return bool(inside) and self.of(facts)


@final
@dataclass(frozen=True, slots=True)
class Wake:
    """What a finding affects: scopes of a kind (`lease`), and numbers in each of them.

    `numbers` are those of a violation that the finding explains, if it affects any. `spreads` are
    the kinds of event by which it affects more afterwards, such as a follower that drops what its
    new leader lacks; each with the numbers of such an event. What was written more than
    `within_ms` after the finding's last violation in a scope is not of its wake, and its loss is
    new: the clients' answers in the evidence of a violation (`because`) say when that was.
    """

    scope: str
    follows: tuple[Follows, ...]
    numbers: Callable[[Facts], Numbers] | None = None
    spreads: Mapping[type[Struct], Callable[[Any], Numbers]] = field(default_factory=dict)
    within_ms: int = 20_000


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFinding:
    """One known way in which a system breaks a promise.

    `system` is its family (`apache/kraft`), `clauses` are the ones it breaks. `caused` says of a
    violation of these clauses whether it is this finding; `reads` are the kinds of event that it
    looks for. `seen` says in which versions it was met, and how often. A run has the version that
    its system says (`SaysVersion`), or "" if it says none; for that of somebody's own build, the
    findings of the nearest release stand in (`nearest`). `schedule` and `history` name files of a
    run that shows it, below the plugin: its schedule.json, for a replay, and its history.ndjson,
    for a test. They are for people and for your tests, and may be empty.
    """

    id: str
    system: str
    clauses: tuple[str, ...]
    caused: Callable[[Scene], bool]
    reads: tuple[type[Struct], ...] = ()
    wake: Wake | None = None
    says: str
    seen: tuple[Seen, ...]
    schedule: str
    history: str

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions in which it appeared; it is known for these only."""
        return tuple(one.version for one in self.seen if one.runs)


def both(one: Numbers, other: Numbers) -> Numbers:
    """The numbers from the lowest to the highest of both."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


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
    of_family = [finding for finding in findings if finding.system == family]
    known = {version for finding in of_family for version in finding.versions}
    version = nearest(versions.get(family, named), known)
    return [finding for finding in of_family if version in finding.versions]
