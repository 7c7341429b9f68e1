"""The configuration of a client worker: the file that its last argument names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """The file named by a worker's last argument.

    The worker appends its events to the path `events`. `bootstrap` holds an `address:port` for each
    entry of the layout's bootstrap. `hosts` maps slot names to the addresses at which the clients'
    slot reaches them, on `client_port`, and on any other port for which the layout has such a link.
    `options` are the worker's own. `own` maps slot names to
    the addresses where nodes themselves listen, without a link: only for requests that are not part
    of the system's traffic. `security` is that of the shape; where it is not empty, `secrets` is
    the folder of the run's secrets, and `slot` the slot whose they may use.
    """

    run: str
    process: str
    events: str
    bootstrap: tuple[str, ...]
    hosts: Mapping[str, str]
    client_port: int
    options: msgspec.Raw
    own: Mapping[str, str] = {}
    security: str = ""
    secrets: str = ""
    slot: str = ""


def plain(value: Struct) -> dict[str, Any]:
    """A command or options as a worker reads them."""
    fields = msgspec.to_builtins(value)
    assert isinstance(fields, dict)
    return fields
