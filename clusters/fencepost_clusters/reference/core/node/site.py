"""The addresses of a process."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Site(Struct, frozen=True):
    """The addresses of a process: nodes reach it as `name`, its slot's name; clients at the host
    `advertised`.

    `ports` has the port of each listener that it serves; `process` is its name in events.
    """

    name: str
    advertised: str
    ports: Mapping[str, int]
    process: str
