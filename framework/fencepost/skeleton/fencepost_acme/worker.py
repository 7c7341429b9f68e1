"""The program that runs one client: `worker CONFIG`. It ends with its standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count

from msgspec import Struct

from fencepost import ClientStarted, Recorder, WorkerConfig, run_worker, stop_requested
from fencepost_acme.events import KINDS, TakeBegan, TakeEnded
from fencepost_acme.protocol import ask

TIMEOUT_S = 2.0


class TakerOptions(Struct, frozen=True, kw_only=True):
    """A client that takes tokens of these servers in turn: `rate` a second, `count` in all (0: as
    long as the run lasts)."""

    servers: tuple[str, ...]
    rate: float = 20.0
    count: int = 0


def take(address: str, port: int, operation: str, server: str) -> TakeEnded:
    """Asks for one token."""
    reply = ask(address, port, "TAKE", TIMEOUT_S)
    outcome, error, token = reply.outcome, reply.error, -1
    if outcome == "ok":
        word, _, rest = reply.text.partition(" ")
        if word == "TOKEN":
            token = int(rest)
        else:
            outcome, error = "failed", reply.text
    return TakeEnded(operation=operation, server=server, outcome=outcome, token=token, error=error)


def work(config: WorkerConfig, options: TakerOptions, recorder: Recorder) -> str:
    """The client's work, until it is done or asked to end."""
    stopping = stop_requested()
    for number in count():
        if number == options.count > 0:
            return "done"
        server = options.servers[number % len(options.servers)]
        operation = f"{config.process}-{number}"
        recorder.record(TakeBegan(operation=operation, server=server))
        recorder.record(take(config.hosts[server], config.client_port, operation, server))
        if stopping.wait(1 / options.rate):
            break
    return "stopped"


def main(argv: Sequence[str]) -> int:
    """See `fencepost.run_worker`."""
    about = ClientStarted(kind="taker", library="sockets")
    return run_worker(argv, TakerOptions, lambda options: about, work, KINDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
