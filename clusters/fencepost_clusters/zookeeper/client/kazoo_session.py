"""A session with a real ZooKeeper, by kazoo.

kazoo runs a connection in a thread of its own. Answers and events are handed to the event loop from
that thread, in the order of the connection. With kazoo's own two worker threads, one for answers
and one for watches, an answer could overtake the watch event that came before it.

Three behaviours of kazoo are hidden from a node:

* kazoo makes a new session when one has ended. Here a session ends once: a later request never
  reaches kazoo, so it cannot be carried out in another session.
* kazoo holds requests while there is no connection, even past the end of the session. Here they are
  answered `Unsent` at once.
* kazoo learns from a server that its session has expired, so only once it reaches one again. Here a
  timer gives up a session that had no connection for as long as its timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Answered,
    Check,
    Checked,
    Children,
    Connected,
    Create,
    Created,
    Data,
    DataSet,
    Delete,
    Deleted,
    Deliver,
    Done,
    End,
    Ended,
    Exists,
    Fired,
    Found,
    GetChildren,
    GetData,
    Multi,
    Reason,
    Refused,
    Request,
    SetData,
    Stat,
    Suspended,
    Unknown,
    Unsent,
    Watch,
    Write,
    WriteResult,
    ZnodeChange,
    paths_are_good,
)

_REASONS: dict[type[Exception], Reason] = {
    exceptions.NoNodeError: Reason.NO_NODE,
    exceptions.NodeExistsError: Reason.NODE_EXISTS,
    exceptions.BadVersionError: Reason.BAD_VERSION,
    exceptions.NotEmptyError: Reason.NOT_EMPTY,
    exceptions.NoChildrenForEphemeralsError: Reason.NO_CHILDREN_FOR_EPHEMERALS,
    exceptions.BadArgumentsError: Reason.BAD_ARGUMENTS,
    exceptions.RolledBackError: Reason.ROLLED_BACK,
    exceptions.RuntimeInconsistency: Reason.AFTER_REFUSED,
}
_LOST = (
    exceptions.ConnectionLoss,
    exceptions.SessionExpiredError,
    exceptions.ConnectionClosedError,
)
_CHANGES = {
    EventType.CREATED: ZnodeChange.CREATED,
    EventType.DELETED: ZnodeChange.DELETED,
    EventType.CHANGED: ZnodeChange.DATA,
    EventType.CHILD: ZnodeChange.CHILDREN,
}
_MOST_SENT = 100
"""How many requests kazoo gets at a time. A few hundred would fill the pipe by which it wakes its
thread, and block the event loop."""
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.2, "max_jitter": 0.4}


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The servers, as `host:port`, and the path below which all requests are (empty: none)."""

    hosts: tuple[str, ...]
    chroot: str = ""


@final
class KazooSession:
    """One session with a timeout, which begins now; must be made where an event loop runs.

    The server's shortest and longest timeout must allow `timeout_ms`: kazoo does not report the
    negotiated timeout. The session is never made if no server answers within `limit_ms`.
    """

    def __init__(
        self, ensemble: Ensemble, timeout_ms: int, deliver: Deliver, limit_ms: int = 10_000
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._timeout_s = timeout_ms / 1000
        self._queue: deque[tuple[int, Request]] = deque()
        self._sent: set[int] = set()
        self._connected = False
        self._stopping: asyncio.Task[None] | None = None
        # Held while kazoo is asked, and while its thread learns that the session has ended.
        self._lock = Lock()
        self._over = False
        self._client = KazooClient(
            hosts=",".join(ensemble.hosts) + ensemble.chroot,
            timeout=self._timeout_s,
            handler=_InlineHandler(),
            connection_retry=KazooRetry(**_RETRY),
            # kazoo warns of every lost connection, which the node records itself.
            logger=logging.Logger("kazoo", logging.ERROR),
        )
        self._client.add_listener(self._state_changed)
        self._timer = self._loop.call_later(limit_ms / 1000, self._end, End.NEVER_MADE)
        self._client.start_async()

    def ask(self, number: int, request: Request) -> None:
        """See `Session`."""
        if not paths_are_good(request):
            self._deliver(Answered(number, Refused(Reason.BAD_ARGUMENTS)))
            return
        if self._connected:
            self._queue.append((number, request))
            self._send_next()
        else:
            self._deliver(Answered(number, Unsent()))

    def close(self) -> None:
        """See `Session`."""
        self._end(End.CLOSED)

    async def wait_closed(self) -> None:
        """Waits until kazoo's thread has ended; to be awaited after `Ended`, however it ended."""
        assert self._stopping is not None
        await self._stopping

    def _send_next(self) -> None:
        while self._queue and len(self._sent) < _MOST_SENT:
            number, request = self._queue[0]
            with self._lock:
                if self._over:
                    return
                result = self._send(request)
            self._queue.popleft()
            self._sent.add(number)
            self._link(result, number, request)

    def _link(self, result: Any, number: int, request: Request) -> None:
        result.rawlink(lambda done: self._post(self._answer, number, _answer(request, done)))

    def _send(self, request: Request) -> Any:
        """Sends a request; returns kazoo's future of the answer."""
        client = self._client
        match request:
            case Create(path, data, ephemeral, sequential):
                return client.create_async(
                    path, data, ephemeral=ephemeral, sequence=sequential, include_data=True
                )
            case Delete(path, version):
                return client.delete_async(path, version)
            case SetData(path, data, version):
                return client.set_async(path, data, version)
            case Exists(path, watch):
                return client.exists_async(path, watch=self._node_fired if watch else None)
            case GetData(path, watch):
                return client.get_async(path, watch=self._node_fired if watch else None)
            case GetChildren(path, watch):
                return client.get_children_async(
                    path, watch=self._children_fired if watch else None, include_data=True
                )
            case Multi(writes):
                transaction = client.transaction()
                for write in writes:
                    _add(transaction, write)
                return transaction.commit_async()

    # Runs in the connection's thread, which must not wait: hands answers to the loop.

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            session, _ = self._client.client_id
            self._post(self._resumed, session)
        elif state == KazooState.SUSPENDED:
            self._post(self._suspended)
        else:
            with self._lock:
                self._over = True
            self._post(self._end, End.EXPIRED)

    def _node_fired(self, event: WatchedEvent) -> None:
        self._fired(event, Watch.NODE)

    def _children_fired(self, event: WatchedEvent) -> None:
        self._fired(event, Watch.CHILDREN)

    def _fired(self, event: WatchedEvent, watch: Watch) -> None:
        """kazoo also notifies each watch of a disconnection, by an event without a change; that is
        ignored."""
        if event.type in _CHANGES:
            self._post(self._watched, Fired(event.path, watch, _CHANGES[event.type]))

    def _post(self, call: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # The loop is closed, so no caller waits any more.
            self._loop.call_soon_threadsafe(call, *arguments)

    # Runs in the loop.

    def _resumed(self, session: int) -> None:
        if self._stopping is None and not self._over:
            self._timer.cancel()
            self._connected = True
            self._deliver(Connected(session))

    def _suspended(self) -> None:
        if self._stopping is None and self._connected:
            self._connected = False
            self._timer = self._loop.call_later(self._timeout_s, self._end, End.GIVEN_UP)
            self._refuse_queued()
            self._deliver(Suspended())

    def _watched(self, fired: Fired) -> None:
        if self._stopping is None:
            self._deliver(fired)

    def _answer(self, number: int, answer: Answer) -> None:
        if number in self._sent:
            self._sent.discard(number)
            self._deliver(Answered(number, answer))
            if not isinstance(answer, Unknown):
                self._send_next()

    def _refuse_queued(self) -> None:
        queued, self._queue = self._queue, deque()
        for number, _ in queued:
            self._deliver(Answered(number, Unsent()))

    def _end(self, how: End) -> None:
        """Ends the session here at once, and lets kazoo close it in a thread."""
        if self._stopping is not None:
            return
        with self._lock:
            self._over = True
        self._connected = False
        self._timer.cancel()
        self._stopping = self._loop.create_task(asyncio.to_thread(self._stop))
        for number in sorted(self._sent):
            self._answer(number, Unknown())
        self._refuse_queued()
        self._deliver(Ended(how))

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()


@final
class _InlineHandler:
    """kazoo's threading handler without its worker threads: callbacks run in the connection's
    thread, so none may wait."""

    def __init__(self) -> None:
        self._threading = SequentialThreadingHandler()

    def start(self) -> None:
        """Starts no worker."""

    def stop(self) -> None:
        """Stops no worker."""

    def dispatch_callback(self, callback: Any) -> None:
        """Runs a watch's callback."""
        callback.func(*callback.args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threading, name)


def _add(transaction: Any, write: Write) -> None:
    match write:
        case Create(path, data, ephemeral, sequential):
            transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
        case Delete(path, version):
            transaction.delete(path, version)
        case SetData(path, data, version):
            transaction.set_data(path, data, version)
        case Check(path, version):
            transaction.check(path, version)


def _answer(request: Request, done: Any) -> Answer:
    """The answer to a request, from kazoo's future, which has a result or an exception."""
    if done.exception is not None:
        return Unknown() if isinstance(done.exception, _LOST) else _refused(done.exception)
    value = done.value
    match request:
        case Create():
            path, stat = value
            return Created(path, _stat(stat))
        case Delete():
            return Deleted()
        case SetData():
            return DataSet(_stat(value))
        case Exists():
            return Found(None if value is None else _stat(value))
        case GetData():
            data, stat = value
            return Data(data, _stat(stat))
        case GetChildren():
            names, stat = value
            return Children(tuple(sorted(names)), _stat(stat))
        case Multi(writes):
            return Done(tuple(map(_result, writes, value)))


def _result(write: Write, value: Any) -> WriteResult:
    if isinstance(value, Exception):
        return _refused(value)
    match write:
        case Create():
            return Created(value, None)
        case Delete():
            return Deleted()
        case SetData():
            return DataSet(_stat(value))
        case Check():
            return Checked()


def _refused(error: Exception) -> Refused:
    why = _REASONS.get(type(error), Reason.OTHER)
    return Refused(why, f"{type(error).__name__}: {error}" if why is Reason.OTHER else "")


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        owner=stat.ephemeralOwner,
        length=stat.dataLength,
        children=stat.numChildren,
    )
