"""The kinds of event that nodes owe, and those of them that no node of a run printed.

Many a rule reads absence: no node said that it stored a message, so none did. But nodes that other
programs run say things in their own words, and another release may use other words for them, or
print them no more. Then the absence says nothing of what happened. So a kind is owed from the
moment when somebody else has seen what a node must have printed as that kind: a client's write was
acknowledged, so some node has stored it. If no node of the run printed the kind, it is not
heard here at all, and whatever a rule concludes from its absence is unknown. A kind that nothing
has obliged is not owed: its rules are not exercised, as they are without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from msgspec import Struct

from fencepost.events import Event, kind_name


@final
@dataclass(frozen=True, slots=True, eq=False)
class Owed:
    """A kind of event that some node prints once something has happened that others have seen.

    `since` says what happened, such as `a write was acknowledged`. `by` has the kinds of event
    that show it, each with what of its bodies must hold for that. `silent_on` are the planes whose
    nodes never print it: there nothing is owed, and a clause is judged by its other rules.

    A rule names what it reads the absence of by an attribute `absence`: a tuple of these.
    """

    kind: type[Struct]
    since: str
    by: Mapping[type[Struct], Callable[[Any], bool]]
    silent_on: tuple[str, ...] = ()


@final
class Unprinted:
    """Which owed kinds no node has printed, as far as events were taken."""

    def __init__(self, owed: Iterable[Owed], plane: str) -> None:
        self._owed = tuple(one for one in dict.fromkeys(owed) if plane not in one.silent_on)
        self._obliged: set[Owed] = set()
        self.watched: set[type[Struct]] = set()
        """The kinds that may still change the answer; most runs have none left soon."""
        for one in self._owed:
            self.watched |= {one.kind, *one.by}

    def take(self, event: Event) -> None:
        """Takes an event of a watched kind."""
        body = event.body
        kind = type(body)
        # The kind was printed, by whichever node: it is heard in this run, and never owed again.
        self._owed = tuple(one for one in self._owed if one.kind is not kind)
        for one in self._owed:
            shows = one.by.get(kind)
            # An obligation alone is not enough: the kind may still come, also after the event that
            # obliged.
            if shows is not None and one not in self._obliged and shows(body):
                self._obliged.add(one)
        # The same set, changed in place: the judge holds it.
        self.watched.clear()
        for one in self._owed:
            self.watched.add(one.kind)
            if one not in self._obliged:
                self.watched.update(one.by)

    def lacks(self, absence: Iterable[Owed], release: str) -> str:
        """The first of these kinds that is owed and was not printed, in a sentence; else empty."""
        for one in absence:
            if one in self._owed and one in self._obliged:
                return f"{release} printed no {kind_name(one.kind)}, though {one.since}"
        return ""
