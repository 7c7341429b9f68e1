"""`acme/servers` as Fencepost sees it: slots and links, and how a server is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from fencepost import (
    CLIENT,
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
from fencepost_acme.log_parser import AcmeLogParser
from fencepost_acme.protocol import acme_probe
from fencepost_acme.rules import PLANE
from fencepost_acme.server import VERSION
from fencepost_acme.view import SERVER, AcmeView, missing
from fencepost_acme.workload import WORKLOAD

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
    version: str = VERSION
    """See `fencepost.SaysVersion`."""

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
        """Starts a server. It must dial `place.hosts`, or its traffic passes no link."""
        others = [slot.name for slot in place.layout.of(SERVER) if slot != place.slot]
        peers = [f"{name}={place.hosts[name]}" for name in others]
        forget = ["--forget"] if "forgets-tokens" in shape.defects else []
        where = [place.address, str(PORT), str(place.data_dir)]
        return Command((sys.executable, "-m", "fencepost_acme.server", *where, *forget, *peers))

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
