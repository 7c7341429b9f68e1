"""What a fault did, as the runtime saw it: no fault says so, and no rule guesses by its name.

A fault acts through the `Runtime`: it cuts links, signals processes, empties disks, starts a second
process. The runtime writes down each of these acts, and the harness puts those of one injection on
`fault.injected`. So a fault of a stranger's plugin excuses, forfeits and explains what ours would
that does the same. How much of it took effect is for the receipt to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from fencepost.events import Effect
from fencepost.events.run import TO
from fencepost.model.system.topology import Cut, Layout, Link, Slot


@final
class Effects:
    """The acts of a run's faults, in order; each is an `Effect` and what it acts upon."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._done: list[str] = []

    def __len__(self) -> int:
        return len(self._done)

    def since(self, number: int) -> tuple[str, ...]:
        """The acts after the first ones, each once: `severs broker-1 -> broker-2`."""
        return tuple(dict.fromkeys(self._done[number:]))

    def cut(self, cut: Cut) -> None:
        """These directions were cut."""
        self._add(Effect.SEVERS, sorted(map(TO.join, cut)))

    def set_links(self, links: Iterable[Link], *, up: bool, down: bool, slow: bool) -> None:
        """Links were set: whether each drops what its source sends, or would receive, or is late
        in both directions."""
        for link in links:
            there, back = (link.source, link.target), (link.target, link.source)
            ways = [there] * up + [back] * down
            self._add(Effect.SEVERS, map(TO.join, ways))
            self._add(Effect.SLOWS, map(TO.join, [there, back] if slow else []))

    def held(self, link: Link) -> None:
        """A link chooses among messages."""
        self._add(Effect.HOLDS, [TO.join((link.source, link.target))])

    def signalled(self, slot: Slot, signal: str) -> None:
        """A process is sent a signal: it stands still, goes on, is killed, or is asked to end."""
        if signal != "SIGCONT":
            stops = signal == "SIGSTOP"
            self._add(Effect.STOPS if stops else Effect.ENDS, [slot.name])

    def disk(self, slot: Slot, effect: Effect) -> None:
        """A disk was harmed. That of a second process is made for it, and is none of a node's."""
        if not slot.duplicate:
            self._add(effect, [slot.name])

    def started(self, slot: Slot) -> None:
        """A process was started; it doubles the id of another one that may run."""
        if slot.duplicate:
            self._add(Effect.DOUBLES, [one.name for one in self._layout.rivals(slot)])

    def _add(self, effect: Effect, upon: Iterable[str]) -> None:
        self._done += [f"{effect} {one}" for one in upon]
