"""Apps: programs of the user's own that work with the cluster, each instance in a slot of its own.

The problem. "Does my service survive this?" needs a run in which the service is a part like any
other: cut from one node and from no other, paused, killed, judged. A program that dials the
cluster through links which it shares with others cannot be cut off alone. A program that follows
what the cluster tells it (which may name every node's address) would leave its links at the first
answer.

How it works. `Shape(apps={"billing": 2})` adds the slots `billing-1` and `billing-2` to whatever
a system lays out (`with_apps`). Both are clients' slots, with links wherever the harness's own
clients have one. Where a node tells clients an address (`Advertises`), it listens once more for
each instance, on a port of its own, and tells each that asks there the addresses of that instance's
own links (`Listener`). So a client stays on its links, whatever it follows, and every fault of
links and processes takes `billing-1` for a target.

What fills the slots is a `Program`: argv, environment and files, in which `{bootstrap}` and the
other words of `WORDS` stand for what only the run knows (`filled`).

What is not done. The simulator runs no program of a user's: it has no processes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from fencepost.model.errors import UsageError, no_such
from fencepost.model.secrets import is_secret, secrets_in
from fencepost.model.system.topology import CLIENT, NAME, Layout, Link, Slot

FIRST_PORT: Final = 10_000
"""Listeners for apps have the ports above it, so they are far from those of systems."""
_SLOTS: Final = 250
"""How many slots a run has, at most: each has a port of its own above `FIRST_PORT`."""
MOST_INSTANCES: Final = 50
WORDS: Final = frozenset(
    {"bootstrap", "address", "instance", "app", "slot", "work", "data", "secrets"}
)
"""What may stand in braces in a program's words: its first addresses, with commas between them; the
address at which it may listen; the number of the instance, its app and its slot; its folders, and
that of the secrets of a secured cluster."""
READY_MS: Final = 30_000


Parse = Callable[[Mapping[str, object]], Sequence[Struct]]
"""Makes events of a JSON object that a program printed; raises UsageError for one that is wrong."""


class Listener(NamedTuple):
    """Where a node listens for the instance in `slot`, and the address that it tells it."""

    slot: str
    port: int
    address: str


class Ready(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one sees that a program is ready; exactly one of these.

    `line`: it has printed a line with this text in it. `port`: it accepts connections on this port
    of its address. `url`: a GET of it is answered with a status from 200 to 299; the words of
    `WORDS` may stand in it.
    """

    line: str = ""
    port: int = 0
    url: str = ""


class Program(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What runs in the slots of the app `name`. `instances` is how many a project's runs have; a
    test says it in `Shape.apps`.

    It gets the environment of the harness, and `environment` over it. `folder` is where it starts
    (empty: where the harness does; in a container, where the image says). `files` are written into
    a folder of its own, `{work}`, path -> text. `ready_ms` bounds the time until it is ready, and
    `works_again_ms` the time after the last heal until it is ready once more (0: nobody asks). An
    instance that ends by itself is started again, as a supervisor would (`restarts`), until its
    third end within a minute; it breaks the promise APP-runs, unless it `may_end` and ends with
    code 0. Values of the `environment` that have a secret's name, or are named in `secrets`, are
    masked in all that is kept. Random schedules strike it, too, if it may be `struck`. On docker,
    `image` is the container's.
    """

    name: str
    instances: int = 1
    argv: tuple[str, ...]
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    folder: str = ""
    ready: Ready | None = None
    ready_ms: int = READY_MS
    works_again_ms: int = 0
    may_end: bool = False
    restarts: bool = True
    secrets: tuple[str, ...] = ()
    image: str = ""
    struck: bool = False


def check_apps(apps: Mapping[str, int], taken: Sequence[str] = ()) -> None:
    """Raises UsageError for a name that is no word of a slot, a number of instances out of bounds,
    and a slot of an instance that the system lays out already (`taken`)."""
    for name, instances in apps.items():
        if not NAME.fullmatch(name):
            raise UsageError(f"the app's name {name!r} is not lower-case words joined by '-'")
        if not 1 <= instances <= MOST_INSTANCES:
            raise UsageError(f"the app {name} has 1 to {MOST_INSTANCES} instances, not {instances}")
    slots = [*taken, *(one for name in apps for one in slots_of(name, apps[name]))]
    for slot in slots:
        if slots.count(slot) > 1:
            raise UsageError(f"two slots would be named {slot}: give the app another name")


def slots_of(app: str, instances: int) -> Sequence[str]:
    """The names of the slots of an app's instances."""
    return [f"{app}-{number}" for number in range(1, instances + 1)]


def with_apps(layout: Layout, apps: Mapping[str, int], told: Sequence[int] = ()) -> Layout:
    """The layout with a slot for each instance, and links wherever the first clients' slot has one.

    `told` are the ports whose addresses nodes tell clients: a link to one of them goes to a port of
    the instance's own (`own_port`). Raises UsageError as `check_apps`, and for a system without a
    slot for clients.
    """
    if not apps:
        return layout
    check_apps(apps, [slot.name for slot in layout.slots])
    clients = layout.of(CLIENT)
    if not clients:
        raise UsageError("the system lays out no slot for clients, and so none for apps")
    taken = {slot.index for slot in layout.slots}
    index = (number for number in count(1) if number not in taken)
    slots = [
        Slot(slot, CLIENT, -1, next(index), app=name)
        for name, instances in apps.items()
        for slot in slots_of(name, instances)
    ]
    theirs = [link for link in layout.links if link.source == clients[0].name]
    links = [
        Link(slot.name, link.target, own_port(slot, link.port, told))
        for slot in slots
        for link in theirs
    ]
    framed = {own_port(slot, port, told) for slot in slots for port in layout.framed}
    return replace(
        layout,
        slots=(*layout.slots, *slots),
        links=(*layout.links, *links),
        framed=layout.framed | framed,
    )


def own_port(slot: Slot, port: int, told: Sequence[int]) -> int:
    """The port on which nodes listen for the instance in a slot, in place of `port`."""
    if not slot.app or port not in told:
        return port
    return FIRST_PORT + list(told).index(port) * _SLOTS + slot.index


def bootstrap_of(layout: Layout, slot: Slot, told: Sequence[int]) -> Sequence[tuple[str, int]]:
    """The slots, each with a port, to which the clients in a slot connect first."""
    return [(name, own_port(slot, port, told)) for name, port in layout.bootstrap]


def check_program(program: Program) -> None:
    """Raises UsageError for a program that cannot be started, or could never be ready."""
    app = program.name
    if not program.argv and not program.image:
        raise UsageError(f"the app {app} has no program: its argv is empty")
    for text in (*program.argv, *program.environment, *program.environment.values()):
        if "\0" in text:
            raise UsageError(f"the app {app} has a NUL in its argv or environment")
    for path in program.files:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise UsageError(f"the file {path!r} of the app {app} is not below its folder")
    for name in program.secrets:
        if name not in program.environment:
            raise UsageError(f"the secret {name} of the app {app} is no variable of its own")
    ready = program.ready
    if ready is not None and sum(map(bool, (ready.line, ready.port, ready.url))) != 1:
        raise UsageError(f"the app {app} is ready by one of line, port and url")
    if program.ready_ms < 1 or program.works_again_ms < 0:
        raise UsageError(f"the app {app} has a bound below one millisecond")
    if program.works_again_ms and (ready is None or ready.line):
        raise UsageError(
            f"whether the app {app} works again is asked at a port or a url: it is ready by neither"
        )


def check_installed(layout: Layout, program: Program) -> None:
    """Raises UsageError for an app without a slot, and for a program as `check_program`."""
    known = {slot.app: slot for slot in layout.instances()}
    if program.name not in known:
        raise no_such("app", program.name, known)
    check_program(program)


def secrets_of(program: Program) -> frozenset[str]:
    """The values that are kept nowhere."""
    named = {
        value
        for name, value in program.environment.items()
        if name in program.secrets or is_secret(name)
    }
    return frozenset({*named, *secrets_in(program.argv)} - {""})


def filled(text: str, words: Mapping[str, str]) -> str:
    """The text with the words in braces replaced. Other braces stay: a file may be JSON."""
    return re.sub(
        r"\{(" + "|".join(sorted(WORDS)) + r")\}", lambda found: words.get(found[1], found[0]), text
    )
