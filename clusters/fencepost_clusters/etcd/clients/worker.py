"""The program that runs one client: `worker CONFIG`; it ends with its standard input."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from threading import Event, Thread

from fencepost import ClientFailed, ClientStarted, Recorder, WorkerConfig, run_worker
from fencepost_clusters.etcd.clients.http import Gateway, carry_out
from fencepost_clusters.etcd.clients.locks import Locker
from fencepost_clusters.etcd.clients.observing import observing
from fencepost_clusters.etcd.clients.options import (
    EtcdOptions,
    LockerOptions,
    ReaderOptions,
    RegisterOptions,
)
from fencepost_clusters.etcd.clients.registers import reading, working
from fencepost_clusters.etcd.clients.script import Script
from fencepost_clusters.etcd.events import KINDS


def members_of(config: WorkerConfig) -> tuple[str, ...]:
    """The slots at which clients begin; `hosts` has those of duplicates and clients, too."""
    begins = set(config.bootstrap)
    reached = config.hosts.items()
    return tuple(
        sorted(slot for slot, address in reached if f"{address}:{config.client_port}" in begins)
    )


def script_of(config: WorkerConfig, options: EtcdOptions) -> Script:
    """The client's script."""
    slots = members_of(config)
    match options:
        case RegisterOptions():
            return working(config.process, options, slots)
        case ReaderOptions():
            return reading(config.process, options, slots)
        case LockerOptions():
            return Locker(config.run, config.process, options, slots).working()
        case _:
            return observing(options, slots)


def about(options: EtcdOptions) -> ClientStarted:
    """The kind of client."""
    return ClientStarted(kind=str(options.__struct_config__.tag), library="etcd's JSON gateway")


def work(config: WorkerConfig, options: EtcdOptions, recorder: Recorder) -> str:
    """The client's work, until it is done or was asked to stop."""
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    # An interrupt is for the harness, which shares the terminal and asks clients to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_listen, args=(recorder, stopping), daemon=True).start()
    links = Gateway(config.hosts, config.client_port)
    own = Gateway(config.own or config.hosts, config.client_port)
    carry_out(script_of(config, options), recorder, links, own, stopping)
    links.close()
    own.close()
    return "stopped" if stopping.is_set() else "done"


def _listen(recorder: Recorder, stopping: Event) -> None:
    # Not sys.stdin: at exit the interpreter needs its lock, which this reading thread holds.
    with open(0, "rb", closefd=False) as stream:
        for _ in stream:
            recorder.record(ClientFailed(error="clients of etcd take no commands", fatal=False))
    stopping.set()


def main(argv: Sequence[str]) -> int:
    """See `run_worker`."""
    return run_worker(argv, EtcdOptions, about, work, KINDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
