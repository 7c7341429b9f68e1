"""The hold of a simulated link: which messages wait, in which order, and what happened to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeVar, final

from fencepost.model.faults.hold import Hold, HoldCounts


class Carrying(Protocol):
    """The parts of a connection that a hold uses."""

    @property
    def open(self) -> bool: ...


C = TypeVar("C", bound=Carrying)


@final
@dataclass(slots=True, eq=False)
class Waiting(Generic[C]):
    """A message that waits in its connection: a `chosen` one, or one behind a chosen message."""

    connection: C
    message: object
    chosen: bool
    free: bool


@final
@dataclass(slots=True)
class LinkHold(Generic[C]):
    """One link's hold. `frame` gives the bytes of a message, and None for a payload that is no
    message."""

    what: Hold
    frame: Callable[[object], bytes | None]
    active: bool = True
    _waiting: list[Waiting[C]] = field(default_factory=list)
    _counts: HoldCounts = field(default_factory=HoldCounts)

    def take(self, connection: C, message: object) -> Waiting[C] | Literal["pass", "drop"]:
        """Decides on a message that has come: it passes, is dropped, or waits from now on."""
        # Also a message that is not chosen waits if one waits before it in its connection: a link
        # without overtaking keeps the order of TCP.
        blocked = not self.what.overtake and any(
            one.connection is connection for one in self._waiting
        )
        if self.active and self._is_chosen(message):
            self._add(HoldCounts(taken=1))
            if self.what.action == "drop":
                self._add(HoldCounts(dropped=1))
                return "drop"
            # A chosen message waits for the release, or for the end of its delay.
            return self._wait(Waiting(connection, message, chosen=True, free=False))
        if blocked:
            # It waits for nothing itself, and leaves as soon as no message before it stays.
            return self._wait(Waiting(connection, message, chosen=False, free=True))
        return "pass"

    def leaving(self) -> Sequence[Waiting[C]]:
        """Takes out the messages that may now leave over their own connection, in their order."""
        leaving: list[Waiting[C]] = []
        staying: list[Waiting[C]] = []
        for one in self._waiting:
            # In the order of arrival: a message stays if one that stays is before it in its
            # connection.
            blocked = any(other.connection is one.connection for other in staying)
            free = one.free and one.connection.open
            (leaving if free and (self.what.overtake or not blocked) else staying).append(one)
        self._waiting[:] = staying
        self._add(HoldCounts(released=sum(one.chosen for one in leaving)))
        return leaving

    def release(self) -> None:
        """Ends the choosing; every waiting message may leave."""
        self.active = False
        for one in self._waiting:
            one.free = True

    def orphans(self) -> Sequence[Sequence[Waiting[C]]]:
        """Takes out the chosen messages whose connections have ended, by connection.

        Messages that waited behind them are dropped: their sender is gone too.
        """
        ended = [one for one in self._waiting if not one.connection.open]
        self._waiting[:] = [one for one in self._waiting if one.connection.open]
        groups: dict[int, list[Waiting[C]]] = {}
        for one in ended:
            if one.chosen:
                # By connection, since each group is redelivered over one new connection, in its
                # order.
                groups.setdefault(id(one.connection), []).append(one)
        if self.what.outlives:
            return list(groups.values())
        self._add(HoldCounts(dropped=sum(map(len, groups.values()))))
        return ()

    def redelivered(self, number: int) -> None:
        """That many orphans reached the target."""
        self._add(HoldCounts(redelivered=number))

    def answered(self) -> None:
        """One redelivered orphan was answered."""
        self._add(HoldCounts(answered=1))

    def lost(self, number: int) -> None:
        """That many orphans found no process at the target."""
        self._add(HoldCounts(lost=number))

    @property
    def counts(self) -> HoldCounts:
        """See `Runtime.held`."""
        chosen = [one for one in self._waiting if one.chosen]
        held = sum(one.connection.open for one in chosen)
        # A hold without `outlives` drops a message when its connection ends. It is taken out only
        # at the release, so until then it is counted here.
        ended = len(chosen) - held
        if self.what.outlives:
            return replace(self._counts, held=held, orphans=ended)
        return replace(self._counts, held=held, dropped=self._counts.dropped + ended)

    def _is_chosen(self, message: object) -> bool:
        frame = self.frame(message)
        if frame is None:
            return False
        self._add(HoldCounts(seen=1))
        if not self.what.matches(frame):
            return False
        self._add(HoldCounts(matched=1))
        # The count is of the link, not of a connection: clients reconnect, and "the second one"
        # would come anew with each connection.
        return self.what.chooses(self._counts.matched)

    def _wait(self, one: Waiting[C]) -> Waiting[C]:
        self._waiting.append(one)
        return one

    def _add(self, more: HoldCounts) -> None:
        self._counts += more
