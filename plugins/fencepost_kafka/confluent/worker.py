"""The program that runs one client: `worker CONFIG`, its commands on standard input."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import confluent_kafka

from fencepost import ClientStarted, Recorder, WorkerConfig, run_worker
from fencepost_kafka.clients.commands import (
    AdminOptions,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    ReaderOptions,
)
from fencepost_kafka.confluent.consumer import ConsumerWork
from fencepost_kafka.confluent.producer import ProducerWork
from fencepost_kafka.confluent.reader import ReaderWork
from fencepost_kafka.confluent.session import Session
from fencepost_kafka.events import KINDS


def run(session: Session, options: ClientOptions) -> None:
    """Does the client's work; returns when it is done or was asked to stop.

    Code that builds Kafka's messages itself is imported only where it is needed: with kio's
    schemas, it takes a quarter of a worker's start.
    """
    match options:
        case ProducerOptions():
            ProducerWork(session, options).run(time.monotonic)
        case ConsumerOptions():
            ConsumerWork(session, options).run()
        case ReaderOptions():
            ReaderWork(session, options).run(time.monotonic)
        case AdminOptions():
            from fencepost_kafka.confluent.admin import AdminWork  # noqa: PLC0415

            AdminWork(session, options).run()
        case _:
            from fencepost_kafka.confluent.probe import ProbeWork  # noqa: PLC0415

            ProbeWork(session).run()


def about(options: ClientOptions) -> ClientStarted:
    """The kind of client, and its library."""
    kind = str(options.__struct_config__.tag)
    library = "raw" if kind == "probe" else f"confluent-kafka {confluent_kafka.__version__}"
    return ClientStarted(kind=kind, library=library)


def work(config: WorkerConfig, options: ClientOptions, recorder: Recorder) -> str:
    """The client's work, until it is done or asked to stop."""
    session = Session(config, recorder)
    # Not sys.stdin: at exit the interpreter needs its lock, which a reading thread holds.
    session.listen(open(0, "rb", closefd=False))  # noqa: SIM115 read until the process ends
    run(session, options)
    return "stopped" if session.stopping.is_set() else "done"


def main(argv: Sequence[str]) -> int:
    """See `run_worker`."""
    return run_worker(argv, ClientOptions, about, work, KINDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
