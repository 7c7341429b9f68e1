"""A client core as a client worker: `python -m ...reference.shell.client CONFIG`.

It is the workload `core_clients`: the clients of simulated runs, on real sockets, so that they can
be compared with those of Kafka's own libraries. See the hook `fencepost_workloads` for CONFIG.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import BinaryIO

import msgspec

from fencepost import ClientFailed, Recorder, WorkerConfig
from fencepost_clusters.reference.client.node import ClientNode, Commanded, Input, read_options
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node.rights import Rights
from fencepost_clusters.reference.shell.node import instant
from fencepost_clusters.reference.shell.peers import Peers
from fencepost_clusters.reference.wire import codec
from fencepost_kafka import KINDS, ClientCommand


class ClientProgram:
    """Carries out the core's effects, until it exits."""

    def __init__(self, config: WorkerConfig, recorder: Recorder) -> None:
        bootstrap = [(host, int(port)) for host, _, port in
                     (address.rpartition(":") for address in config.bootstrap)]  # fmt: skip
        options = read_options(bytes(config.options))
        self._recorder = recorder
        self._core = ClientNode(config.process, bootstrap, config.client_port, options, instant())
        self._peers = Peers(config.process, config.hosts, Rights(), self._step, codec.CLIENT_CALLS)
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] | None = None

    async def run(self, commands: BinaryIO) -> None:
        """Returns when the client has done its work, or was asked to stop."""
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, self._step, e.ShutdownAsked())
        # An interrupt is for the harness, which shares the terminal, and stops this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        Thread(target=self._listen, args=(commands, loop), name="commands", daemon=True).start()
        self._step(e.Tick())
        await self._done
        self._peers.close()

    def _listen(self, commands: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        decode = msgspec.json.Decoder[ClientCommand](ClientCommand).decode
        try:
            for line in commands:
                loop.call_soon_threadsafe(self._step, Commanded(decode(line)))
        except msgspec.DecodeError as error:
            self._recorder.record(ClientFailed(error=f"not a command: {error}", fatal=True))
        loop.call_soon_threadsafe(self._step, e.ShutdownAsked())

    def _step(self, what: Input) -> None:
        assert self._done is not None
        if self._done.done():
            return
        now = instant()
        for effect in self._core.handle(what, now):
            match effect:
                case e.Note():
                    self._recorder.record(effect.body, effect.cause)
                case e.Call():
                    self._peers.call(effect)
                case e.Exit():
                    self._done.set_result(None)
                case _:
                    raise AssertionError(f"a client wants {effect!r}")
        if self._timer is not None:
            self._timer.cancel()
        deadline_ns = self._core.deadline_ns()
        if deadline_ns is not None:
            loop = asyncio.get_running_loop()
            wait_s = max(0, deadline_ns - now.monotonic_ns) / 1e9
            self._timer = loop.call_at(loop.time() + wait_s, self._step, e.Tick())


def main(argv: list[str]) -> int:
    """Runs the client; exit code 0 when the work was done, 2 for a bad configuration."""
    try:
        config = msgspec.json.decode(Path(argv[1]).read_bytes(), type=WorkerConfig)
        recorder = Recorder.open(Path(config.events), config.run, config.process, KINDS)
        program = ClientProgram(config, recorder)
    except (IndexError, OSError, ValueError, msgspec.DecodeError) as error:
        print(f"the client's configuration cannot be read: {error}", file=sys.stderr)
        return 2
    # Not sys.stdin: at exit the interpreter needs its lock, which a reading thread holds.
    asyncio.run(program.run(open(0, "rb", closefd=False)))  # noqa: SIM115 until the process ends
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
