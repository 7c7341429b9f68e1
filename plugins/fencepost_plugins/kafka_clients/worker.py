"""The program that runs one client: `worker CONFIG`, its commands on standard input."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import confluent_kafka
import msgspec

from fencepost import (
    AdminOptions,
    ClientFailed,
    ClientOptions,
    ClientStarted,
    ConsumerOptions,
    NodeStopped,
    ProducerOptions,
    ReaderOptions,
    Recorder,
    WorkerConfig,
)
from fencepost_plugins.kafka_clients.admin import Administering
from fencepost_plugins.kafka_clients.consumer import Consuming
from fencepost_plugins.kafka_clients.probe import Probing
from fencepost_plugins.kafka_clients.producer import Producing
from fencepost_plugins.kafka_clients.reader import Reading
from fencepost_plugins.kafka_clients.session import Session


def run(session: Session, options: ClientOptions) -> None:
    """Does the client's work; returns when it is done or was asked to stop."""
    match options:
        case ProducerOptions():
            Producing(session, options).run(time.monotonic)
        case ConsumerOptions():
            Consuming(session, options).run()
        case ReaderOptions():
            Reading(session, options).run(time.monotonic)
        case AdminOptions():
            Administering(session, options).run()
        case _:
            Probing(session).run()


def main(argv: list[str]) -> int:
    """Exit code 0 when the work was done, 2 for a bad configuration, 1 for a failed client."""
    try:
        config = msgspec.json.decode(Path(argv[1]).read_bytes(), type=WorkerConfig)
        options = msgspec.json.decode(config.options, type=ClientOptions)
    except (IndexError, OSError, msgspec.DecodeError) as error:
        print(f"the client's configuration cannot be read: {error}", file=sys.stderr)
        return 2
    recorder = Recorder.open(Path(config.events), config.run, config.process)
    kind = str(options.__struct_config__.tag)
    library = "raw" if kind == "probe" else f"confluent-kafka {confluent_kafka.__version__}"
    recorder.record(ClientStarted(kind, library))
    session = Session(config, recorder)
    # Not sys.stdin, whose lock the interpreter wants when it ends while a thread reads on.
    session.listen(open(0, "rb", closefd=False))  # noqa: SIM115 read until the process ends
    try:
        run(session, options)
    except Exception as error:
        # The client has failed, not the run: its open operations are unknown, and this says why.
        recorder.record(ClientFailed(f"{type(error).__name__}: {error}", True))
        recorder.record(NodeStopped("failed"))
        raise
    recorder.record(NodeStopped("stopped" if session.stopping.is_set() else "done"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
