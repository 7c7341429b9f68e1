"""Where a process is."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Site(Struct, frozen=True):
    """How a process is reached: by nodes as `name`, its slot's; by clients at `advertised`, a host.

    `ports` has the port of each listener that it serves; `process` is what it calls itself.
    """

    name: str
    advertised: str
    ports: Mapping[str, int]
    process: str
