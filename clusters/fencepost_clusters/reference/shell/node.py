"""The driver: makes inputs of bytes, time and signals, and carries out effects in their order."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from fencepost import ConnectionClosed, Recorder, Stalled
from fencepost_clusters.reference.assembly import Core, Measured
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node.rights import Rights
from fencepost_clusters.reference.shell.listener import BACKLOG, Connection
from fencepost_clusters.reference.shell.metrics_page import MetricsConnection
from fencepost_clusters.reference.shell.peers import Peers
from fencepost_clusters.reference.shell.sessions import Sessions
from fencepost_clusters.reference.shell.storage import Disk
from fencepost_clusters.reference.wire import codec
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.filling import filled

STALL_CHECK_S = 0.1
STALL_S = 0.25
EXIT_BROKEN = 70


def instant(offset_ms: int = 0) -> e.Instant:
    """The time by the machine's clocks; the wall clock is shifted by an offset, which may be
    negative."""
    return e.Instant(time.monotonic_ns(), time.time_ns() // 1_000_000 + offset_ms)


async def _listen(
    name: str, address: tuple[str, int], accept: Callable[[], asyncio.Protocol]
) -> None:
    """Listens on an address; raises OSError, which names it, if that is not possible."""
    host, port = address
    try:
        await asyncio.get_running_loop().create_server(accept, host, port, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(f"{host}:{port} ({name} listener): {reason}") from error


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity of a node's process: its name, the addresses of the cluster's names, its rights,
    the offset of its wall clock, and the listeners that it serves and calls."""

    process: str
    hosts: Mapping[str, str]
    rights: Rights
    clock_offset_ms: int = 0
    listeners: codec.Listeners = field(default_factory=lambda: codec.LISTENERS)
    calls: codec.Calls = field(default_factory=lambda: codec.NODE_CALLS)


class NodeShell:
    """Runs one core until it wants to exit. Inputs are handled one at a time."""

    def __init__(
        self,
        core: Core,
        disk: Disk,
        recorder: Recorder,
        identity: NodeIdentity,
    ) -> None:
        self._core = core
        self._offset_ms = identity.clock_offset_ms
        self._disk = disk
        self._recorder = recorder
        self._rights = identity.rights
        self._listeners = identity.listeners
        self._peers = Peers(
            identity.process, identity.hosts, identity.rights, self._step, identity.calls
        )
        self._sessions = Sessions(identity.hosts, self._step)
        self._requests: dict[int, Connection] = {}
        self._next_request = 0
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[int] | None = None

    async def run(
        self, listeners: Mapping[str, tuple[str, int]], metrics: tuple[str, int] | None = None
    ) -> int:
        """Listens, and runs until the core exits; returns the process's exit code.

        With `metrics`, it also serves its metrics page at that address; a core that has none has
        an empty page.

        Raises OSError, which names the address, if it cannot listen on one.
        """
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        for name, address in listeners.items():
            await _listen(
                name,
                address,
                lambda name=name: Connection(  # type: ignore[misc]
                    name,
                    self._received,
                    closed=self._closed,
                    rights=self._rights,
                    listeners=self._listeners,
                ),
            )
        if metrics is not None:
            ask = self._core.metrics_now if isinstance(self._core, Measured) else tuple
            await _listen("metrics", metrics, lambda: MetricsConnection(ask))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._step, e.ShutdownAsked())
        self._watch(loop.time())
        self._step(e.Tick())
        code = await self._done
        await self._sessions.wait_closed()
        return code

    # ------------------------------------------------------------------------------------- inputs

    def _received(
        self, connection: Connection, listener: str, header: codec.Header, request: m.Request
    ) -> int:
        self._next_request += 1
        request_id = self._next_request
        self._requests[request_id] = connection
        # The answer may come within the step, and gets its place in the connection only after it.
        asyncio.get_running_loop().call_soon(
            self._step,
            e.Received(
                request_id=request_id,
                listener=listener,
                client=header.client,
                correlation=header.correlation,
                message=request,
                principal=connection.principal,
            ),
        )
        return request_id

    def _closed(self, listener: str, peer: str, reason: str) -> None:
        if not self._over:  # the events that the core noted with its exit come last
            self._recorder.record(ConnectionClosed(listener=listener, peer=peer, reason=reason))

    def _watch(self, expected: float) -> None:
        """Notices when this process did not run for a while."""
        if self._over:
            return
        loop = asyncio.get_running_loop()
        late = loop.time() - expected
        if late >= STALL_S:
            self._recorder.record(Stalled(stalled_ns=int(late * 1e9)))
        due = loop.time() + STALL_CHECK_S
        loop.call_at(due, self._watch, due)

    # ------------------------------------------------------------------------------------ stepping

    def _step(self, what: e.Input) -> None:
        if self._over:
            return
        try:
            for effect in self._core.handle(what, instant(self._offset_ms)):
                self._carry_out(effect)
        except Exception:
            traceback.print_exc()
            self._finish(EXIT_BROKEN)
            return
        self._set_timer()

    def _recovered(self, recovering: asyncio.Future[e.Recovered]) -> None:
        try:
            found = recovering.result()
        except Exception:
            traceback.print_exc()
            self._finish(EXIT_BROKEN)
            return
        self._step(found)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline_ns = self._core.deadline_ns()
        if deadline_ns is not None:
            loop = asyncio.get_running_loop()
            # A deadline that is past gives a tick at once, but in a step of its own.
            wait = max(0, deadline_ns - time.monotonic_ns()) / 1e9
            self._timer = loop.call_at(loop.time() + wait, self._step, e.Tick())

    def _finish(self, code: int) -> None:
        assert self._done is not None
        if not self._over:
            self._done.set_result(code)
        self._peers.close()

    @property
    def _over(self) -> bool:
        assert self._done is not None
        return self._done.done()

    def _carry_out(self, effect: e.Effect) -> None:
        match effect:
            case e.Note():
                self._recorder.record(effect.body, effect.cause)
            case e.Call():
                self._peers.call(effect)
            case e.Reply():
                connection = self._requests.pop(effect.request_id, None)
                if connection is not None:
                    message = filled(effect.message, self._disk.read)
                    connection.answer(effect.request_id, message)
            case e.Close():
                connection = self._requests.pop(effect.request_id, None)
                if connection is not None:
                    connection.close(effect.reason)
            case e.Recover():
                # This may take long, and a controller in the same process must go on meanwhile.
                recovering = asyncio.get_running_loop().run_in_executor(None, self._disk.recover)
                recovering.add_done_callback(self._recovered)
            case e.Append():
                self._disk.log(effect.log).append(effect.data)
            case e.Truncate():
                self._disk.log(effect.log).truncate(effect.to_offset)
            case e.Sync():
                self._disk.log(effect.log).sync()
            case e.Delete():
                self._disk.delete(effect.log)
            case e.StoreVote():
                self._disk.store_vote(effect.epoch, effect.voted_for)
            case e.StoreSnapshot():
                self._disk.store_snapshot(effect.log, effect.offset, effect.epoch, effect.data)
            case e.Checkpoint():
                self._disk.checkpoint(effect.high_watermarks, effect.flushed)
            case e.OpenSession() | e.CloseSession() | e.ToZooKeeper():
                self._sessions.carry_out(effect)
            case e.Exit():
                print(f"exit: {effect.reason}", flush=True)
                self._finish(effect.code)
            case _:
                assert_never(effect)
