"""A client of the run that observes what no log says: it asks each server for its status, again and
again, and records what has changed.

A server that restarts quickly may look the same as before. So the observer also reports a server
whose run is another one: the state of the cluster waits for the first report of each new process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import Struct

from fencepost import ClientSpec, ClientStarted, Recorder, WorkerConfig, run_worker, stop_requested
from fencepost_acme.protocol import ask

OBSERVER = "acme_observer"
TIMEOUT_S = 0.5


class ServerObserved(Struct, frozen=True, kw_only=True, tag="acme.server_observed"):
    """A server answered the observer; `run` is another one after each start of the server."""

    server: str
    run: str
    token: int

    def sentence(self) -> str:
        return f"sees {self.server} in its run {self.run[:8]}, with token {self.token}"


class ObserverOptions(Struct, frozen=True, kw_only=True):
    """Which servers are asked, and how often a second."""

    servers: tuple[str, ...]
    rate: float = 20.0


def observed(server: str, answer: str) -> ServerObserved | None:
    """What an answer to `STATUS` says; None for another answer."""
    match answer.split():
        case ["STATUS", run, token] if token.isdigit():
            return ServerObserved(server=server, run=run, token=int(token))
    return None


def work(config: WorkerConfig, options: ObserverOptions, recorder: Recorder) -> str:
    """Asks until the run asks it to stop. It dials the servers' own addresses, not the links: a
    fault of links must not blind it."""
    stopping = stop_requested()
    runs: dict[str, str] = {}
    while not stopping.wait(1 / options.rate):
        for server in options.servers:
            reply = ask(config.own[server], config.client_port, "STATUS", TIMEOUT_S)
            seen = observed(server, reply.text)
            if seen is not None and runs.get(server) != seen.run:
                runs[server] = seen.run
                recorder.record(seen)
    return "stopped"


def spec(servers: Sequence[str]) -> ClientSpec:
    """The observer of these servers."""
    return ClientSpec("observer", OBSERVER, {"servers": list(servers)})


def main(argv: Sequence[str]) -> int:
    """See `fencepost.run_worker`."""
    about = ClientStarted(kind="observer", library="sockets")
    return run_worker(argv, ObserverOptions, lambda options: about, work, (ServerObserved,))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
