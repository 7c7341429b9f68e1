"""The network of a simulated run: connections that delay, drop, break, and are cut.

On one connection messages arrive in their order; between two connections nothing is ordered. A cut
drops messages that would arrive, as the toxic `cut` does. When it is lifted, the
connections that it crossed break. A message counts as a kilobyte, unless its sender gives its size.
It does not imitate half-closed connections, full buffers or bytes that are split.

It is a `LinkControl`: `fencepost.injection.network` keeps the cuts and measures their receipts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random  # noqa: TID251 - a seeded stream, passed in
from typing import Final, Protocol, final

from fencepost.injection.links import Bytes
from fencepost.injection.toxics import DOWNSTREAM, UPSTREAM, toxics
from fencepost.model.clock import MS, SECOND
from fencepost.model.errors import UsageError
from fencepost.model.faults.hold import Hold, HoldCounts, check_hold
from fencepost.model.runtime import HEALTHY, LinkState
from fencepost.model.system.topology import Layout, Link
from fencepost.runtimes.simulated.holding import LinkHold, Waiting
from fencepost.runtimes.simulated.virtual_time import Agenda

KILOBYTE: Final = 1_000
"""The bytes of a message."""
_STREAMS = (DOWNSTREAM, UPSTREAM)
"""The stream of a message, by the end that it goes to: the dialling one, or the accepting one."""


@dataclass(frozen=True, slots=True)
class NetworkProfile:
    """The behaviour of the network without faults. The delay of a message is between the two
    bounds; one message in `slow_one_in` takes ten times as long, and one in `reset_one_in` breaks
    its connection (0: no message does)."""

    least_delay_ns: int = 100_000
    most_delay_ns: int = 2 * MS
    slow_one_in: int = 200
    reset_one_in: int = 0


LOSSY = NetworkProfile(most_delay_ns=5 * MS, slow_one_in=50, reset_one_in=5_000)
"""For random schedules: slower, and connections break by themselves."""


class End(Protocol):
    """A process as the network sees it."""

    @property
    def slot_name(self) -> str: ...
    def listens(self, port: int) -> bool: ...
    def connected(self, connection: int, port: int) -> None: ...
    def arrived(self, connection: int, message: object) -> None: ...
    def cut_off(self, connection: int, reason: str) -> None: ...


@dataclass(slots=True)
class _Connection:
    """`ends` are the dialling and the accepting process; `last` when each was last reached."""

    number: int
    link: Link
    ends: list[End | None]
    last: list[int] = field(default_factory=lambda: [0, 0])
    sent: list[int] = field(default_factory=lambda: [0, 0])
    """By receiving end: when a link with a rate will have passed on everything sent so far."""
    open: bool = True
    unnotified: int | None = None
    """The end that would have been notified of the close if the cut had not swallowed the
    notice."""


@final
class SimulatedNetwork:
    """See the module. `living` finds the process in a slot."""

    def __init__(
        self,
        layout: Layout,
        agenda: Agenda,
        draw: Random,
        living: Callable[[str], End | None],
        profile: NetworkProfile,
        *,
        frame: Callable[[object, int], bytes | None] | None = None,
    ) -> None:
        """`frame` gives the bytes of a message that was sent to a port (`Framing`)."""
        self._layout = layout
        self._frame = frame
        self._holds: dict[Link, LinkHold[_Connection]] = {}
        self._redelivering: dict[int, tuple[LinkHold[_Connection], int]] = {}
        """Connection that redelivers orphans -> how many of them have no answer yet."""
        self._agenda = agenda
        self._random = draw.random
        self._living = living
        self._links = {(link.source, link.target, link.port): link for link in layout.links}
        self._altered: dict[Link, LinkState] = {}
        """The links that are not healthy: most of the time none is."""
        self._dropped: Counter[tuple[Link, str]] = Counter()
        self._connections: dict[int, _Connection] = {}
        self._dialled = 0
        self._least = profile.least_delay_ns
        self._spread = profile.most_delay_ns - profile.least_delay_ns
        self._slow = 1 / profile.slow_one_in
        self._reset = 1 / profile.reset_one_in if profile.reset_one_in else 0.0

    # --------------------------------------------------------------------------- what processes do

    def dial(self, dialler: End, target: str, port: int) -> int:
        """Opens a connection; see `Host.dial`. Raises UsageError if no link leads there."""
        link = self._links.get((dialler.slot_name, target, port))
        if link is None:
            raise UsageError(f"no link leads from {dialler.slot_name} to {target}:{port}")
        self._dialled += 1
        one = _Connection(self._dialled, link, [dialler, None])
        self._connections[one.number] = one
        # The number is returned at once. Whether anybody listens is known only when the connection
        # arrives: until then what is sent is under way behind it.
        self._schedule(one, 1, 0, partial(self._connect, one, port))
        return one.number

    def send(self, sender: End, number: int, message: object, size: int = KILOBYTE) -> None:
        """Sends a message of `size` bytes; a message on a connection that is gone is lost."""
        one = self._connections.get(number)
        if one is None or not one.open:
            return
        if self._random() < self._reset:
            self._break(one, "connection reset")
            return
        side = 1 if one.ends[0] is sender else 0
        self._schedule(one, side, size, partial(self._arrive, one, side, message, size))

    def hang_up(self, end: End, number: int, reason: str = "connection closed") -> None:
        """Closes a connection from one end."""
        one = self._connections.get(number)
        if one is None or not one.open:
            return
        one.open = False
        side = 1 if one.ends[0] is end else 0
        self._schedule(one, side, 0, partial(self._tell, one, side, reason))

    def gone(self, end: End) -> None:
        """A process is gone: the other ends of its connections are notified."""
        for one in [c for c in self._connections.values() if end in c.ends and c.open]:
            self.hang_up(end, one.number, "connection reset")

    # ------------------------------------------------------------------------------------- workings

    def _schedule(
        self,
        one: _Connection,
        side: int,
        size: int,
        action: Callable[[], None],
    ) -> None:
        """Schedules an action for the arrival time of the next message of that size in this
        direction."""
        draw = self._random
        delay = self._least + int(draw() * self._spread)
        if draw() < self._slow:
            delay *= 10
        state = self._altered.get(one.link) if self._altered else None
        if state is not None:
            jitter = int((2 * draw() - 1) * state.jitter_ms * MS)
            delay += max(0, state.latency_ms * MS + jitter)
            if state.rate_kb:
                takes_ns = size * SECOND // (state.rate_kb * KILOBYTE)
                # A link with a rate passes on one message after another: each begins when the one
                # before it has left, so a large message delays all those behind it.
                one.sent[side] = max(one.sent[side], self._agenda.now_ns) + takes_ns
                delay += one.sent[side] - self._agenda.now_ns
        # Never before the message that was sent before: a connection keeps its order, whatever was
        # drawn.
        at = max(one.last[side] + 1, self._agenda.now_ns + delay)
        one.last[side] = at
        self._agenda.at(at, action)

    def _is_cut(self, one: _Connection, side: int) -> bool:
        """Whether nothing reaches this end now."""
        state = self._altered.get(one.link) if self._altered else None
        if state is None:
            return False
        # A cut is seen from the dialling end: what arrives at the accepting end (1) came upstream.
        return state.cut_upstream if side == 1 else state.cut_downstream

    def _connect(self, one: _Connection, port: int) -> None:
        if not one.open:
            return
        # The process that is there now, which may not be the one that was there when it was
        # dialled.
        target = self._living(one.link.target)
        # A cut does not reach here: through our toxiproxy, too, connecting succeeds and
        # only data is dropped.
        if target is None or not target.listens(port):
            one.open = False
            self._schedule(one, 0, 0, partial(self._tell, one, 0, "connection refused"))
            return
        one.ends[1] = target
        target.connected(one.number, port)

    def _arrive(self, one: _Connection, side: int, message: object, size: int) -> None:
        if not one.open:
            return
        # Only what the link's source sends is chosen among.
        hold = self._holds.get(one.link) if side == 1 else None
        if hold is None:
            self._deliver(one, side, message, size)
            return
        match hold.take(one, message):
            case "pass":
                self._deliver(one, side, message, size)
            case Waiting() as waiting if waiting.chosen and hold.what.action == "delay":
                due_ns = self._agenda.now_ns + hold.what.delay_ms * MS
                self._agenda.at(due_ns, partial(self._due, hold, waiting))

    def _deliver(self, one: _Connection, side: int, message: object, size: int = KILOBYTE) -> None:
        if self._is_cut(one, side):
            self._dropped[one.link, _STREAMS[side]] += size
            return
        end = one.ends[side]
        if end is not None:
            end.arrived(one.number, message)
        else:
            self._answered(one)

    def _tell(self, one: _Connection, side: int, reason: str) -> None:
        if self._is_cut(one, side):
            # The notice of a close is dropped like any message. It is made up for when the cut is
            # lifted: then toxiproxy closes the connection.
            one.unnotified = side
            return
        self._connections.pop(one.number, None)
        end = one.ends[side]
        if end is not None:
            end.cut_off(one.number, reason)

    def _break(self, one: _Connection, reason: str) -> None:
        """Breaks a connection for both ends, despite any cut."""
        one.open = False
        self._connections.pop(one.number, None)
        for end in one.ends:
            if end is not None:
                # By way of the agenda, never at once: `_break` may be called in the middle of a
                # step of the process itself, which would be entered a second time.
                self._agenda.at(self._agenda.now_ns, partial(end.cut_off, one.number, reason))

    # ---------------------------------------------------------------------------------- holding

    def hold(self, link: Link, what: Hold) -> None:
        """See `LinkControl.hold`."""
        frame = self._frame if link.port in self._layout.framed else None
        check_hold(link, frame is not None, link in self.holding)
        assert frame is not None
        self._holds[link] = LinkHold(what, lambda message: frame(message, link.port))

    def held(self, link: Link) -> HoldCounts:
        """See `LinkControl.held`."""
        hold = self._holds.get(link)
        return hold.counts if hold is not None else HoldCounts()

    def release(self, link: Link) -> None:
        """See `LinkControl.release`."""
        hold = self._holds.get(link)
        if hold is not None:
            hold.release()
            self._let_go(hold)
            for orphans in hold.orphans():
                self._redeliver(link, hold, orphans)

    @property
    def holding(self) -> Sequence[Link]:
        """See `LinkControl.holding`."""
        return [link for link, hold in self._holds.items() if hold.active]

    def _due(self, hold: LinkHold[_Connection], waiting: Waiting[_Connection]) -> None:
        waiting.free = True
        self._let_go(hold)

    def _let_go(self, hold: LinkHold[_Connection]) -> None:
        for one in hold.leaving():
            if one.connection.open:
                self._deliver(one.connection, 1, one.message)

    def _redeliver(
        self, link: Link, hold: LinkHold[_Connection], orphans: Sequence[Waiting[_Connection]]
    ) -> None:
        """Delivers orphans over a new connection, which no process dialled; it closes once all are
        answered."""
        target = self._living(link.target)
        if target is None or not target.listens(link.port):
            hold.lost(len(orphans))
            return
        self._dialled += 1
        one = _Connection(self._dialled, link, [None, target])
        self._connections[one.number] = one
        self._redelivering[one.number] = hold, len(orphans)
        target.connected(one.number, link.port)
        hold.redelivered(len(orphans))
        for orphan in orphans:
            self._deliver(one, 1, orphan.message)

    def _answered(self, one: _Connection) -> None:
        hold, left = self._redelivering[one.number]
        hold.answered()
        self._redelivering[one.number] = hold, left - 1
        if left == 1:
            one.open = False
            self._schedule(one, 1, 0, partial(self._tell, one, 1, "connection closed"))

    # ---------------------------------------------------------------------------- what faults do

    def state(self, link: Link) -> LinkState:
        """See `LinkControl.state`."""
        return self._altered.get(link, HEALTHY)

    def apply(self, wanted: Mapping[Link, LinkState]) -> Sequence[str]:
        """See `LinkControl.apply`; nothing ever has to be repaired."""
        for state in wanted.values():
            toxics(state)
        # Which connections met the cut is only known before the states change.
        were = self._cut_ones()
        for link, state in wanted.items():
            self._altered.pop(link, None)
            if state != HEALTHY:
                self._altered[link] = state
        self._healed(were)
        return ()

    def differences(self, links: Sequence[Link]) -> Sequence[str]:
        """None: a simulated link is always in its desired state."""
        return ()

    def bytes_passed(self, links: Sequence[Link]) -> Mapping[tuple[Link, str], Bytes]:
        """The dropped bytes; bytes that arrived are not counted."""
        return {(k, stream): Bytes(self._dropped[k, stream]) for k in links for stream in _STREAMS}

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        """How many connections through each of these links both ends have."""
        wanted = {link: 0 for link in links}
        for one in self._connections.values():
            if one.open and one.ends[1] is not None and one.link in wanted:
                wanted[one.link] += 1
        return wanted

    def _cut_ones(self) -> list[_Connection]:
        return [
            one
            for one in self._connections.values()
            if self._is_cut(one, 0) or self._is_cut(one, 1)
        ]

    def _healed(self, were: Iterable[_Connection]) -> None:
        """Breaks the connections that were cut and no longer are; notifies ends that missed a
        close."""
        for one in were:
            if self._is_cut(one, 0) or self._is_cut(one, 1):
                continue
            if one.open:
                self._break(one, "connection reset by its link")
            elif one.unnotified is not None:
                self._tell(one, one.unnotified, "connection reset by its link")
