"""Loopback addresses of the process runtime: 127.<run>.<slot>.<peer>, ports below 32768.

Slot s has the address 127.R.s.s and reaches peer p at 127.R.s.p, where its own toxiproxy listens on
the peer's port. So two nodes never share an address, the same port works on every node, and the
kernel's ephemeral ports (32768 and up) never collide with these.

R is claimed by a bound socket. So a claim is valid exactly where the addresses are (one network
namespace, all users). It ends with the last process that inherited it, however that process ends.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from dataclasses import dataclass
from typing import final

from fencepost.model.clock import MS, now_ns
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.machine import NEEDS_NONE
from fencepost.model.system.topology import CLIENT, NAME, Layout, Slot

FIRST_EPHEMERAL_PORT = 32768
# The claim's address is 127.R.254.254. Slots end at 250, so no slot's and no link's address is the
# claim's.
_CLAIM_PEER = 254
_LAST_SLOT = 250
_CLAIM_PORT = 8473
_ANY_LOOPBACK = "127.222.1.1"
_CONNECT_S = 2.0
RUNS = range(1, 240)
"""The numbers of runs. 0 is left out, since resolvers listen there; the last few are for tests of
this module."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of one run."""

    run: int

    def own(self, slot: Slot) -> str:
        """Where the slot's processes bind."""
        return self.seen(slot, slot)

    def seen(self, source: Slot, target: Slot) -> str:
        """Where `source` reaches `target`: its own end of the link, or its own address for
        itself."""
        return f"127.{self.run}.{source.index}.{target.index}"

    def outside(self, slot: Slot) -> str:
        """Where the harness and client workers reach the slot without a link: its own address."""
        return self.own(slot)


@final
class Claim:
    """A run's number: claimed until `close`, and until every process that inherited `fileno` has
    ended."""

    def __init__(self, run: int, held: socket.socket) -> None:
        self.run = run
        self._held = held

    def fileno(self) -> int:
        """The descriptor that children inherit to keep the claim."""
        return self._held.fileno()

    def close(self) -> None:
        """Releases this process's claim; may be called twice."""
        self._held.close()


def check_loopback() -> None:
    """Raises EnvironmentFailed unless programs reach each other at any address of 127.0.0.0/8.

    Some systems do not offer all of them. Where the interface `lo` is down, as in a new network
    namespace, an address can be bound all the same, and no connection to it succeeds.
    """
    done = "bound"
    try:
        with socket.socket() as listener, socket.socket() as dialler:
            # Any address of 127.0.0.0/8 but 127.0.0.1, which always works, shows it. The kernel
            # chooses a free port, since a run may use this address.
            listener.bind((_ANY_LOOPBACK, 0))
            listener.listen(1)
            done = "reached"
            dialler.settimeout(_CONNECT_S)
            dialler.connect(listener.getsockname())
    except OSError as refused:
        up = "; is the interface lo up?" if done == "reached" else ""
        why = refused.strerror or "no answer"
        raise EnvironmentFailed(
            f"the loopback address {_ANY_LOOPBACK} cannot be {done}: {why}{up}; real processes "
            f"need every address of 127.0.0.0/8, and {NEEDS_NONE}"
        ) from refused


def claim(first: int | None = None, runs: range = RUNS) -> Claim:
    """Claims one of `runs` that is not in use; raises EnvironmentFailed when all are taken, and as
    `check_loopback` does.

    The search starts at `first`, or at a number made from the clock: so successive runs differ, and
    a client that still retries the last run's addresses finds no listener there.
    """
    check_loopback()
    # Bound sockets decide, so two runs that begin at one number at one time get different ones: the
    # second bind fails with EADDRINUSE, and the search goes on.
    start = now_ns() // MS if first is None else first
    for step in range(len(runs)):
        run = runs[(start + step - runs.start) % len(runs)]
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind((f"127.{run}.{_CLAIM_PEER}.{_CLAIM_PEER}", _CLAIM_PORT))
        except OSError as refused:
            held.close()
            if refused.errno != errno.EADDRINUSE:
                raise EnvironmentFailed(
                    f"no address of 127.{run}.0.0/16 can be bound: {refused.strerror}; "
                    "the process runtime needs Linux's loopback network"
                ) from refused
        else:
            return Claim(run, held)
    raise EnvironmentFailed(
        f"all {len(runs)} address ranges are claimed by other runs (port {_CLAIM_PORT})"
    )


def check_layout(layout: Layout) -> None:
    """Raises UsageError for a layout that does not fit on the loopback network."""
    names = Counter(slot.name for slot in layout.slots)
    indices = Counter(slot.index for slot in layout.slots)
    laid_out = Counter(layout.links)
    for slot in layout.slots:
        if not NAME.fullmatch(slot.name):
            raise UsageError(f"the slot name {slot.name!r} is not lower-case words joined by '-'")
        if not 1 <= slot.index <= _LAST_SLOT:
            raise UsageError(
                f"slot {slot.name} has index {slot.index}, and a run on processes or in containers "
                f"has slots 1 to {_LAST_SLOT}: take fewer nodes, or the simulator"
            )
        if names[slot.name] > 1:
            raise UsageError(f"two slots are named {slot.name}")
        if indices[slot.index] > 1:
            raise UsageError(f"two slots have index {slot.index}, one of them {slot.name}")
    for link in layout.links:
        words = f"the link {link}"
        if not {link.source, link.target} <= names.keys() or link.source == link.target:
            raise UsageError(f"{words} does not join two slots of its layout")
        # A port from 32768 on may be the local port of any connection on this host, and a node
        # could not listen on it then: its start would fail now and then.
        if not 1 <= link.port < FIRST_EPHEMERAL_PORT or link.port == _CLAIM_PORT:
            raise UsageError(
                f"{words} needs a port below {FIRST_EPHEMERAL_PORT} that Fencepost does not use "
                "itself"
            )
        if laid_out[link] > 1:
            raise UsageError(f"{words} is laid out twice")
    reached = {(link.target, link.port) for link in layout.links}
    for name, port in layout.bootstrap:
        if layout.of(CLIENT) and (name, port) not in reached:
            raise UsageError(f"clients begin at {name}:{port}, and no link leads there")
