"""One request to a server, as clients and the probe send it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from fencepost_acme.events import Outcome

_MOST_PADDING = 32_000


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a request: answered, certainly failed, or unknown because no answer came."""

    outcome: Outcome
    text: str = ""
    error: str = ""


def ask(address: str, port: int, line: str, timeout_s: float) -> Reply:
    """Sends one line to a server, and reads its answer."""
    try:
        connection = socket.create_connection((address, port), timeout_s)
    except OSError as error:
        return Reply("failed", error=str(error))
    with connection:
        try:
            connection.settimeout(timeout_s)
            connection.sendall(f"{line}\n".encode())
            answer = connection.makefile().readline()
        except OSError as error:
            return Reply("unknown", error=str(error))
    if not answer.endswith("\n"):
        return Reply("unknown", error="the connection ended before the answer")
    return Reply("ok", answer.strip())


def acme_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """The probe by which it is measured that a link to a server answers. It changes nothing in the
    server."""
    padding = "-" * min(size, _MOST_PADDING)
    return ask(address, port, f"PING{padding}", timeout_s).text == "PONG"
