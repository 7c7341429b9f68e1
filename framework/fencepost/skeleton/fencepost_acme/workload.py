"""acme's clients as a test sees them: the fixture `clients`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import final

from fencepost import ClientSession, Cluster, Condition, UsageError, Workers, Workload, plain
from fencepost_acme.view import SERVER, AcmeView
from fencepost_acme.worker import TakerOptions


@final
class Taker:
    """A client that was started."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    def has_taken(self, count: int, server: str) -> Condition:
        """It has got that many tokens of a server."""
        client = self._session.process
        return Condition(
            f"{client} to get {count} tokens of {server}",
            lambda view: view.of(AcmeView).taken[client, server] >= count,
        )


@final
class AcmeClients:
    """Starts clients in the clients' slot."""

    def __init__(self, workers: Workers, cluster: Cluster) -> None:
        self._workers = workers
        self._cluster = cluster

    def take(self, *servers: str, rate: float = 20.0, count: int = 0) -> Taker:
        """Starts a client that takes tokens of these servers in turn (none: of all)."""
        return Taker(self._start("taker", servers or self._servers, rate, count))

    def load(self, selectors: Sequence[str] = ()) -> None:
        """Two clients; see `fencepost.Clients`."""
        for _ in range(2):
            self.take()

    def probe(self, random: Random, victims: Sequence[str]) -> None:
        """Takes a token of a server that a fault affects, if there is one."""
        asked = [server for server in self._servers if server in victims] or self._servers
        server = asked[random.randrange(len(asked))]
        self._workers.await_end([self._start("probe", (server,), 1.0, 1)])

    def read_finally(self) -> Sequence[str]:
        """Takes a last token of every server, so that each restart is followed by a take; returns
        the servers that gave none."""
        last = self._start("last", self._servers, 20.0, len(self._servers))
        self._workers.await_end([last])
        taken = self._cluster.runtime.view.of(AcmeView).taken
        return [server for server in self._servers if not taken[last.process, server]]

    @property
    def _servers(self) -> tuple[str, ...]:
        return tuple(node.name for node in self._cluster.of(SERVER))

    def _start(self, kind: str, servers: tuple[str, ...], rate: float, count: int) -> ClientSession:
        options = TakerOptions(servers=servers, rate=rate, count=count)
        return self._workers.start_kind(kind, plain(options))


def acme_clients(workers: Workers, cluster: object) -> AcmeClients:
    """Makes the fixture `clients`; raises UsageError for a cluster with a facade of its own."""
    if not isinstance(cluster, Cluster):
        raise UsageError("the clients of acme need a cluster of acme/servers")
    return AcmeClients(workers, cluster)


WORKLOAD = "acme_clients"
WORKLOADS = {WORKLOAD: Workload(("-m", "fencepost_acme.worker"), acme_clients)}
