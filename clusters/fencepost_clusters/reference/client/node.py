"""One client as a core: `handle(input, now) -> effects`, like a node's.

Its inputs are a node's, and `Commanded` besides; its effects are calls, notes and the exit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from fencepost import ClientFailed, ClientStarted, NodeStopped
from fencepost_clusters.reference.client.admin import AdminClient, ProbeClient, refuse
from fencepost_clusters.reference.client.producer import ProducerClient
from fencepost_clusters.reference.client.readers import ConsumerClient, ReaderClient
from fencepost_clusters.reference.client.routes import Routes
from fencepost_clusters.reference.core.node.effects import (
    Address,
    Answered,
    CallFailed,
    Effect,
    Exit,
    Instant,
    ShutdownAsked,
    Tick,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_kafka import (
    AdminOptions,
    ClientCommand,
    ClientOptions,
    ConsumerOptions,
    ProbeOptions,
    ProducerOptions,
    ReaderOptions,
    Seek,
)

LIBRARY = "fencepost client core"


class Commanded(Struct, frozen=True):
    """A command of the harness."""

    command: ClientCommand


Input = Answered | CallFailed | Tick | ShutdownAsked | Commanded


class ClientNode:
    """See the module."""

    def __init__(
        self,
        process: str,
        bootstrap: Sequence[Address],
        client_port: int,
        options: ClientOptions,
        now: Instant,
    ) -> None:
        self._out = Outbox()
        self._stopping = False
        self._ended = False
        kind = str(options.__struct_config__.tag)
        self._out.note(ClientStarted(kind=kind, library=LIBRARY))
        self._work: ProducerClient | ConsumerClient | ReaderClient | AdminClient | ProbeClient
        match options:
            case ProducerOptions():
                routes = Routes(bootstrap, [t for t, _ in options.partitions], self._out)
                self._work = ProducerClient(process, options, routes, self._out, now)
            case ConsumerOptions():
                routes = Routes(bootstrap, [t for t, _ in options.partitions], self._out)
                self._work = ConsumerClient(options, routes, self._out, now)
            case ReaderOptions():
                routes = Routes(bootstrap, [t for t, _ in options.partitions], self._out)
                self._work = ReaderClient(options, routes, self._out, now)
            case AdminOptions():
                self._work = AdminClient(options, Routes(bootstrap, (), self._out), self._out, now)
            case ProbeOptions():
                self._work = ProbeClient(client_port, self._out)

    def deadline_ns(self) -> int | None:
        """The monotonic time of the next Tick."""
        return None if self._ended else self._work.deadline_ns()

    def handle(self, what: Input, now: Instant) -> tuple[Effect, ...]:
        """One step."""
        if self._ended:
            return ()
        work = self._work
        match what:
            case Answered():
                work.answered(what.call_id, what.message, now)
            case CallFailed():
                if isinstance(work, AdminClient | ProbeClient):
                    work.failed(what.call_id, now, what.reason)
                else:
                    work.failed(what.call_id, now)
            case ShutdownAsked():
                self._stopping = True
                work.stop(now)
            case Commanded():
                self._command(what.command)
            case Tick():
                pass
        if not work.done:
            work.tick(now)
        if work.done:
            self._ended = True
            self._out.note(NodeStopped(reason="stopped" if self._stopping else "done"))
            self._out.add(Exit("done"))
        return self._out.drain()

    def _command(self, command: ClientCommand) -> None:
        work = self._work
        if isinstance(work, AdminClient | ProbeClient):
            work.take(command)
        elif isinstance(work, ConsumerClient) and isinstance(command, Seek):
            work.seek(command)
        elif not isinstance(work, ConsumerClient):
            self._out.note(
                ClientFailed(error="a producer and a reader take no commands", fatal=False)
            )
        else:
            refuse(self._out, command)


def read_options(raw: bytes) -> ClientOptions:
    """A client's options; raises msgspec.DecodeError."""
    options: ClientOptions = msgspec.json.decode(raw, type=ClientOptions)
    return options
