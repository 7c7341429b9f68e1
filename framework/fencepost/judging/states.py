"""The states of rules: where the judge keeps them, and how rules share them.

See docs/decisions/22-forfeits.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Protocol, final

from msgspec import Struct

from fencepost.events import Event
from fencepost.judging.about import Reason
from fencepost.judging.findings import Excused, Undecided

Key = tuple[str | int, ...]
"""What a rule keeps one state for, such as `("lease", 7)`; `()` for the whole run."""
Shared = dict[type, Any]
"""What the rules of one key share: a class, and the one object of it."""


class SharedFold(Protocol):
    """What several rules of a key ask, and none of them changes: the judge applies each event to it
    once, before it calls any rule of the key."""

    kinds: ClassVar[frozenset[type[Struct]]]
    """The classes of the bodies that it takes. Each rule that names the fold reads them."""

    def take(self, event: Event, body: Any) -> None:
        """Applies an event of one of these kinds."""
        ...


@final
class Unbegun:
    """Stands where the state of a rule is to be, until an event reaches the rule. Any value may be
    a state, None too."""


UNBEGUN: Final = Unbegun()
"""The only one of its class: it is compared by identity."""


@final
class Held:
    """What is held for one key: the states of the rules that are judged together, and what these
    share."""

    def __init__(self, key: Key, rules: int) -> None:
        self.key = key
        self.states: list[Any] = [UNBEGUN] * rules
        """The state of each rule."""
        self.began = [0] * rules
        """The turn in which the judge made each state, counted over all keys."""
        self.shared: Shared = {}
        self.folds: dict[type[SharedFold], SharedFold] = {}
        """Those objects of `shared` that have taken an event. By then the state of each rule that
        names one has begun."""

    def share_anew(self) -> None:
        """Drops what the rules share."""
        self.shared.clear()
        self.folds.clear()


class Forfeiture(Protocol):
    """Knows from which event on a run is promised nothing any more: what the system stands on was
    taken from it.

    A rule's `forfeiture` makes one for a judgement. It applies an event before any rule does. From
    the event on for which it has a reason, no rule judges, and each verdict counts that as excused.
    """

    @property
    def kinds(self) -> frozenset[type[Struct]]:
        """The classes of the bodies that it reads."""
        ...

    def take(self, event: Event) -> Reason | None:
        """Why nothing is promised from this event on; None if all is promised still."""
        ...


class Keeper(Protocol):
    """Keeps the states of rules where keys alone do not find them: earlier events decide which
    states an event belongs to, or whether it counts at all. It is decided once for all rules.

    A rule's `keeper` makes one for all rules of a judgement that name the same.
    """

    def find(self, event: Event) -> tuple[Held, ...]:
        """What an event belongs to; none if it does not count."""
        ...

    def excused(self) -> Iterable[tuple[int, Excused | Undecided]]:
        """What it stopped to judge, at the end: the number of the rule, and why. What it could not
        tell to be of any state is undecided."""
        ...

    def held(self) -> Iterable[Sequence[Held]]:
        """All that it keeps: for one subject after another, whatever it holds for that subject."""
        ...
