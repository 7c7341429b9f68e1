"""The services of a compose file, as the engine's `compose config` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from fencepost.model.errors import UsageError


class ComposedPort(Struct, frozen=True):
    """A port of a service, and where the host reaches it (0: nowhere)."""

    target: int
    published: int = 0


class ComposedService(Struct, frozen=True):
    """A service; `container` is the name of its only container."""

    name: str
    image: str
    container: str
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[ComposedPort, ...] = ()

    def published(self, target: int) -> int:
        """Where the host reaches one of its ports; 0: nowhere."""
        return next((one.published for one in self.ports if one.target == target), 0)


class ComposedProxy(Struct, frozen=True):
    """A proxy of the toxiproxy among the services, with the ports of its ends."""

    name: str
    listen: int
    upstream: str
    upstream_port: int


class Composed(Struct, frozen=True):
    """All services of a file, and the proxies that a toxiproxy among them has now."""

    services: tuple[ComposedService, ...]
    proxies: tuple[ComposedProxy, ...] = ()

    @property
    def toxiproxy(self) -> ComposedService | None:
        """The service that is a toxiproxy, by its image."""
        return next((one for one in self.services if "toxiproxy" in one.image), None)


class _Service(Struct):
    image: str = ""
    container_name: str = ""
    environment: dict[str, str | None] = {}
    ports: list[dict[str, Any]] = []


class _Config(Struct):
    name: str = ""
    services: dict[str, _Service] = {}


def composed(config: bytes) -> Composed:
    """The services in what `compose config --format json` prints; raises UsageError for anything
    else."""
    try:
        found = msgspec.json.decode(config, type=_Config, strict=False)
    except msgspec.DecodeError as wrong:
        raise UsageError(f"what `compose config` printed cannot be read: {wrong}") from None
    return Composed(
        tuple(
            ComposedService(
                name,
                one.image,
                one.container_name or f"{found.name}-{name}-1",
                {key: value or "" for key, value in one.environment.items()},
                tuple(
                    ComposedPort(int(port.get("target", 0)), int(port.get("published") or 0))
                    for port in one.ports
                ),
            )
            for name, one in found.services.items()
        )
    )
