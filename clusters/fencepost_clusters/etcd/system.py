"""`etcd/cluster` as the framework sees it: slots, links, and the command of a member.

A version, or a program of one's own, is named after the system: `etcd/cluster@3.5.21`,
`etcd/cluster@./bin/etcd`.

Each member has a duplicate slot, so that a second process with its id has addresses and links of
its own. All members have one list of peer URLs, so these contain names; each member has a hosts
file of its own with its ends of the links.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fencepost import (
    CLIENT,
    ClientSpec,
    Cluster,
    Command,
    Defect,
    Fold,
    Layout,
    Link,
    LogParser,
    NotApplicable,
    Place,
    Probe,
    Shape,
    Slot,
    UsageError,
    View,
    named_path,
    no_such,
)
from fencepost_clusters.etcd import settings
from fencepost_clusters.etcd.build import binary, default_cache, in_namespace, version_of
from fencepost_clusters.etcd.clients.options import ObserverOptions
from fencepost_clusters.etcd.cluster import EtcdCluster
from fencepost_clusters.etcd.log_parser import MEMBER, MemberLogParser
from fencepost_clusters.etcd.probe import etcd_probe
from fencepost_clusters.etcd.selectors import SELECTORS, select
from fencepost_clusters.etcd.view import EtcdView, missing
from fencepost_clusters.etcd.workload import DEFECTS, WORKLOAD, spec

VERSION = "3.6.16"
"""The version in `server/go.mod`."""
_KNOWN = re.compile(r"3\.[56]\.\d+(-[0-9a-z.]+)?")
"""The versions that are built of the same sources, and whose logs were read."""
IMAGE = f"fencepost/etcd:{VERSION}"
PEER_PORT, CLIENT_PORT = 2380, 2379
MOST_MEMBERS = 9
PROGRAM_IN_IMAGE = "/usr/local/bin/etcd"
_RESTART_MS = 15_000
"""How long a member may take from its start to serving clients, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Etcd:
    """`etcd/cluster`: members of one version, unpatched except for their name resolution; or of a
    program of the user's own."""

    name: str = "etcd/cluster"
    plane: str = "raft"
    version: str = VERSION
    suite: str = "fencepost_clusters.etcd.suite"
    workload: str = WORKLOAD
    counts: Mapping[str, int] = field(default_factory=lambda: {MEMBER: 3})
    selectors: Sequence[str] = SELECTORS

    own: Path | None = None
    """A program of the user's own."""

    def at(self, version: str) -> Etcd:
        """Another version, 3.5 or 3.6, or a program by its path: what has a slash in it, or begins
        with a dot or a tilde. Raises UsageError for anything else."""
        own = named_path(version)
        if own is not None:
            return replace(self, own=own, version=version_of(own), name=f"etcd/cluster@{own}")
        if not _KNOWN.fullmatch(version):
            raise UsageError(
                f"{version!r} is no version of etcd that is known here, 3.5 or 3.6, such as "
                f"{VERSION}, and no path of a program, such as ./etcd"
            )
        return replace(self, own=None, version=version, name=f"etcd/cluster@{version}")

    def _program(self) -> Path:
        """The program of a member on this host."""
        if self.own is not None:
            return self.own
        return binary(default_cache(), "" if self.version == VERSION else self.version)

    @property
    def folds(self) -> Sequence[type[Fold]]:
        """`EtcdView`."""
        return (EtcdView,)

    @property
    def probe(self) -> Probe:
        """A GET of /version."""
        return etcd_probe

    def layout(self, shape: Shape) -> Layout:
        """Members, their duplicates, the clients' slot; raises UsageError for a bad shape or
        setting."""
        if shape.spares:
            raise UsageError(f"{self.name} has no spare members")
        for defect in shape.defects:
            if defect not in (names := [known.name for known in DEFECTS]):
                raise no_such(f"defect of {self.name}", defect, names)
        settings.check(shape, self.name)
        count = shape.counts.get(MEMBER, self.counts[MEMBER])
        if not 1 <= count <= MOST_MEMBERS:
            raise UsageError(f"{self.name} has 1 to {MOST_MEMBERS} members, not {count}")
        members = [Slot(f"etcd-{n}", MEMBER, n, n) for n in range(1, count + 1)]
        duplicates = [
            Slot(f"{m.name}-duplicate", MEMBER, m.node_id, count + m.index, duplicate=True)
            for m in members
        ]
        clients = Slot("clients", CLIENT, -1, 2 * count + 1)
        links = (
            *(
                Link(source.name, target.name, PEER_PORT)
                for source in (*members, *duplicates)
                for target in members
                if source.node_id != target.node_id
            ),
            *(Link(clients.name, target.name, CLIENT_PORT) for target in (*members, *duplicates)),
        )
        bootstrap = tuple((member.name, CLIENT_PORT) for member in members)
        return Layout((*members, *duplicates, clients), links, CLIENT_PORT, bootstrap)

    def fetch(self) -> str:
        """See `Fetched`: etcd's server, built by Go."""
        return str(self._program())

    def command(self, place: Place, shape: Shape) -> Command:
        """One member; builds etcd first if that was not done, which takes a minute.

        Raises EnvironmentFailed as `binary` does.
        """
        if place.image:
            program: tuple[str, ...] = (PROGRAM_IN_IMAGE,)
        elif self.own is not None:
            program = in_namespace(self.own, os.getuid())
        else:
            program = (str(self._program()),)
        slot, own = place.slot, shape.own_of(place.slot.name, place.process)
        members = place.layout.of(MEMBER)
        cluster = ",".join(f"{m.name}=http://{_host(m)}:{PEER_PORT}" for m in members)
        (same,) = (m for m in members if m.node_id == slot.node_id)
        flags = {
            "name": same.name,
            "data-dir": str(place.data_dir),
            "listen-peer-urls": f"http://{place.address}:{PEER_PORT}",
            "listen-client-urls": f"http://{place.address}:{CLIENT_PORT}",
            "initial-advertise-peer-urls": f"http://{_host(same)}:{PEER_PORT}",
            "advertise-client-urls": f"http://{_host(same)}:{CLIENT_PORT}",
            "initial-cluster": cluster,
            "initial-cluster-state": "new",
            "initial-cluster-token": place.run,
            "logger": "zap",
            "log-outputs": "stdout",
            "log-level": "info",
            **settings.SETTINGS,
            **shape.settings,
            **own,
        }
        hosts = {"localhost": "127.0.0.1"} if self.own else {}
        hosts |= {_host(m): place.address if m == same else place.hosts[m.name] for m in members}
        return Command(
            (*program, *(f"--{name}={value}" for name, value in flags.items())),
            # A program of the user's own sees the file as /etc/hosts.
            {} if self.own else {"FENCEPOST_HOSTS": "hosts"},
            {"hosts": "".join(f"{address} {name}\n" for name, address in hosts.items())},
        )

    def image(self, slot: Slot) -> str:
        """The image that `images/etcd/Dockerfile` makes. There is none of another version, which
        raises NotApplicable."""
        if self.version != VERSION or self.own is not None:
            raise NotApplicable(f"there is no image of {self.name}: its members run as processes")
        return IMAGE

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser:
        """The parser of a member's log."""
        return MemberLogParser(slot.node_id)

    def defects(self) -> Sequence[Defect]:
        """Defects of the clients, to see that they are found; etcd itself stays unchanged."""
        return DEFECTS

    def observers(self, shape: Shape) -> Sequence[ClientSpec]:
        """The client that asks every member for its status."""
        return (spec("observer", ObserverOptions()),)

    def facade(self, cluster: Cluster) -> EtcdCluster:
        """See `EtcdCluster`."""
        return EtcdCluster(cluster)

    def select(self, selector: str, view: View, layout: Layout) -> Sequence[str] | None:
        """See the module `selectors`."""
        return select(selector, view, layout)

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """See `System.missing`: a leader, and members that serve and follow it."""
        return missing(view, layout)

    def recovery_bound_ms(self, shape: Shape) -> int:
        """The time of a restart and of several elections, since votes may be split."""
        election_ms = int({**settings.SETTINGS, **shape.settings}[settings.ELECTION])
        return _RESTART_MS + 10 * election_ms


def _host(member: Slot) -> str:
    """The name by which peers dial a member; it has a dot, so that no search domain is tried."""
    return f"{member.name}.fencepost"
