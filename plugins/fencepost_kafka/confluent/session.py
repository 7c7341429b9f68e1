"""The session of a worker: its configuration, its recorder, its commands, and the request to
stop."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, BinaryIO, final

import msgspec
from confluent_kafka import KafkaError

from fencepost import ClientFailed, Recorder, WorkerConfig
from fencepost_kafka.clients.commands import ClientCommand
from fencepost_kafka.security import access_of

STUCK_S = 15
"""A worker that has not ended this long after it was asked to writes its stacks into its log."""
SLICE_S = 0.1
"""How long a call into librdkafka may block before the request to stop is checked again."""


@final
class Session:
    """What a worker's code uses. The end of its input, or SIGTERM, sets `stopping`."""

    def __init__(self, config: WorkerConfig, recorder: Recorder) -> None:
        self.config = config
        self.recorder = recorder
        self.stopping = Event()
        self._commands: SimpleQueue[ClientCommand | None] = SimpleQueue()

    def listen(self, stream: BinaryIO) -> None:
        """Reads commands from the stream, and handles SIGTERM, from now on."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        # An interrupt is for the harness, which shares the terminal and will ask this worker to
        # stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        Thread(target=self._read, args=(stream,), name="commands", daemon=True).start()

    def _read(self, stream: BinaryIO) -> None:
        decode = msgspec.json.Decoder[ClientCommand](ClientCommand).decode
        try:
            for line in stream:
                self._commands.put(decode(line))
        except msgspec.DecodeError as error:
            self.recorder.record(ClientFailed(error=f"not a command: {error}", fatal=True))
        self._stop()

    def _stop(self) -> None:
        # If a call into the library never returns, the log shows which one.
        faulthandler.dump_traceback_later(STUCK_S)
        self.stopping.set()
        self._commands.put(None)

    def commands(self) -> Iterable[ClientCommand]:
        """Every command as it comes, until the worker is asked to stop; commands from before that
        are yielded."""
        while (command := self._commands.get()) is not None:
            yield command

    def pending(self) -> Iterable[ClientCommand]:
        """The commands that have come, without waiting."""
        while not self._commands.empty():
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            if command is not None:
                yield command

    def refuse(self, command: ClientCommand) -> None:
        """Records that a command is not for this kind of client."""
        name = type(command).__name__
        self.recorder.record(ClientFailed(error=f"{name} is not for this client", fatal=False))

    def settings(
        self, own: dict[str, object], given: Iterable[tuple[str, str]], user: str = ""
    ) -> dict[str, Any]:
        """librdkafka's configuration for a cluster on loopback that is broken deliberately.

        Clients look for leaders and reconnect quickly, and give up on a silent connection within
        seconds, since a cut link neither answers nor closes. Into a secured cluster they get as the
        user of their slot, or as another `user`.
        """
        access = access_of(self.config, user)
        return {
            "bootstrap.servers": ",".join(self.config.bootstrap),
            "client.id": self.config.process,
            "broker.address.family": "v4",
            "socket.timeout.ms": 5_000,
            "socket.connection.setup.timeout.ms": 3_000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5_000,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "topic.metadata.propagation.max.ms": 5_000,
            "allow.auto.create.topics": False,
            "enable.metrics.push": False,
            "error_cb": self._failed,
            **({} if access is None else access.librdkafka()),
            **own,
            **dict(given),
        }

    def _failed(self, error: KafkaError) -> None:
        # librdkafka handles errors that are not fatal (a broker is down) by itself, and logs them.
        if error.fatal():
            self.recorder.record(ClientFailed(error=named(error), fatal=True))


def named(error: KafkaError) -> str:
    """librdkafka's name of an error, with its sentence: `_MSG_TIMED_OUT: Local: ...`."""
    return f"{error.name()}: {error.str()}"
