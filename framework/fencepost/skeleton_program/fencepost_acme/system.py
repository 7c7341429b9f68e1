"""`acme/servers` as Fencepost sees it: slots and links, and how its program is started."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from string import Template
from typing import final

from fencepost import (
    CLIENT,
    ClientSpec,
    Command,
    Defect,
    Fold,
    Layout,
    Link,
    LogParser,
    Place,
    Probe,
    Shape,
    Slot,
    UsageError,
    View,
    counted,
    no_such,
)
from fencepost_acme import observer
from fencepost_acme.log_parser import AcmeLogParser
from fencepost_acme.protocol import acme_probe
from fencepost_acme.rules import PLANE
from fencepost_acme.view import SERVER, AcmeView, missing
from fencepost_acme.workload import WORKLOAD

PROGRAM = (sys.executable, "-m", "fencepost_acme.server")
"""What is started, with its configuration as its last word: your own, such as `("redis-server",)`.
"""
PORT = 7400
MOST_SERVERS = 100
DEFECTS = (
    Defect("forgets-tokens", ("ACME-1",), "a server does not keep its newest token on its disk"),
)


@final
@dataclass(frozen=True, slots=True)
class Acme:
    """Servers that know each other; each hands out tokens of its own."""

    name: str = "acme/servers"
    plane: str = PLANE
    workload: str = WORKLOAD
    counts: Mapping[str, int] = field(default_factory=lambda: {SERVER: 2})
    folds: Sequence[type[Fold]] = (AcmeView,)

    @property
    def version(self) -> str:
        """See `fencepost.SaysVersion`."""
        return version_of(PROGRAM)

    @property
    def probe(self) -> Probe:
        """See `fencepost.Probed`."""
        return acme_probe

    def layout(self, shape: Shape) -> Layout:
        """The servers, a slot for clients, and a link for every connection that is dialled."""
        if shape.spares or shape.settings or shape.own:
            raise UsageError(f"{self.name} has no settings and no spare servers")
        for defect in shape.defects:
            if defect not in (names := [known.name for known in DEFECTS]):
                raise no_such(f"defect of {self.name}", defect, names)
        count = counted(self, shape)[SERVER]
        if not 1 <= count <= MOST_SERVERS:
            raise UsageError(f"{self.name} has 1 to {MOST_SERVERS} servers, not {count}")
        servers = tuple(Slot(f"server-{n}", SERVER, n, n) for n in range(1, count + 1))
        # For the fault `duplicate_id`: a slot `server-1-duplicate` for each, with the same id, an
        # index of its own, `duplicate=True`, and the links of its server.
        clients = Slot("clients", CLIENT, -1, count + 1)
        links = tuple(
            Link(source.name, target.name, PORT)
            for source in (*servers, clients)
            for target in servers
            if source != target
        )
        return Layout((*servers, clients), links, bootstrap=tuple((s.name, PORT) for s in servers))

    def command(self, place: Place, shape: Shape) -> Command:
        """Starts the program on a configuration file, by way of `start.sh`.

        A server must dial `place.hosts`, or its traffic passes no link. If servers announce one
        address of each to all, let them announce names of slots, and add `hosts=True`. The program
        inherits little of the environment: name here what else it needs.
        """
        others = [slot.name for slot in place.layout.of(SERVER) if slot != place.slot]
        configuration = Template(_resource("acme.conf")).substitute(
            address=place.address,
            port=PORT,
            disk=place.data_dir,
            forget="yes" if "forgets-tokens" in shape.defects else "no",
            peers="\n".join(f"peer {name} {place.hosts[name]}" for name in others),
        )
        return Command(
            ("/bin/sh", "start.sh", *PROGRAM),
            {"DISK": str(place.data_dir)},
            {"start.sh": _resource("start.sh"), "acme.conf": configuration},
        )

    def observers(self, shape: Shape) -> Sequence[ClientSpec]:
        """See `fencepost.Observed`."""
        return (observer.spec([slot.name for slot in self.layout(shape).of(SERVER)]),)

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser:
        """See `fencepost.ParsesLogs`."""
        return AcmeLogParser(slot)

    def defects(self) -> Sequence[Defect]:
        """See `fencepost.HasDefects`."""
        return DEFECTS

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """Every server serves, and its peers answer it."""
        return missing(view, layout)

    def recovery_bound_ms(self, shape: Shape) -> int:
        """A restart of a server on a busy machine."""
        return 15_000


@cache
def version_of(program: tuple[str, ...]) -> str:
    """The version in what a program says, such as `server v=7.0.15`; empty if it cannot be asked.
    It is asked once."""
    try:
        said = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False)
    except OSError:  # it is not installed: a run says so in its own words
        return ""
    found = re.search(r"\d+(\.\d+)+", said.stdout)
    return found[0] if found else ""


def _resource(name: str) -> str:
    """A file beside this one."""
    return files("fencepost_acme").joinpath(name).read_text(encoding="utf-8")
