"""The addresses of a process."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from fencepost_clusters.reference.core.node.settings import CLIENT_LISTENER, REPLICATION_LISTENER


class Site(Struct, frozen=True):
    """The addresses of a process: nodes reach it as `name`, its slot's name; clients at the host
    `advertised`.

    `ports` has the port of each listener that it serves; `process` is its name in events. `apps`
    has a listener for each program of a user's: the program's slot -> the host at which it reaches
    this node, and the port.
    """

    name: str
    advertised: str
    ports: Mapping[str, int]
    process: str
    apps: Mapping[str, tuple[str, int]] = {}

    def endpoints(self) -> tuple[tuple[str, str, int], ...]:
        """The listeners of a broker, each with the host and the port that it registers."""
        apps = ((f"{CLIENT_LISTENER}/{app}", *end) for app, end in self.apps.items())
        return (
            (CLIENT_LISTENER, self.advertised, self.ports[CLIENT_LISTENER]),
            (REPLICATION_LISTENER, self.name, self.ports[REPLICATION_LISTENER]),
            *apps,
        )
