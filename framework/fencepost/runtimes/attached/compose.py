"""The stack of a compose file: services by the engine's words, proxies by toxiproxy's."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from fencepost.injection.attached_server import TheirToxiproxy
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.system.composed import Composed, ComposedProxy, composed
from fencepost.runtimes.attached.nodes import command_engine

_API = 8474


def stack_of(file: Path, engine: str = "docker") -> Composed:
    """What a compose file has, and the proxies of the toxiproxy in it, if that answers.

    Raises UsageError without the file, EnvironmentFailed if the engine cannot read it.
    """
    if not file.is_file():
        raise UsageError(f"there is no compose file {file}")
    words = ("compose", "--file", str(file), "config", "--format", "json")
    found = composed(command_engine(engine, *words).encode())
    return replace(found, proxies=_proxies(found))


def _proxies(stack: Composed) -> tuple[ComposedProxy, ...]:
    server = stack.toxiproxy
    if server is None:
        return ()
    try:
        shown = TheirToxiproxy(f"http://127.0.0.1:{server.published(_API) or _API}").proxies()
    except EnvironmentFailed:
        return ()  # the stack is down: the draft says which nodes have no proxy
    found = []
    for name, proxy in shown.items():
        host, _, port = proxy.upstream.rpartition(":")
        found.append(ComposedProxy(name, int(proxy.listen.rpartition(":")[2]), host, int(port)))
    return tuple(found)
