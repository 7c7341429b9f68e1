"""A link for tests that need no toxiproxy: it passes, refuses or is mute."""

from __future__ import annotations

import contextlib
import selectors
import socket
from threading import Event, Thread
from typing import Literal, final

Mode = Literal["pass", "refuse", "mute", "mute-up", "mute-down"]


@final
class Forwarder:
    """The connections that `source` dials to a port of `target`."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self._target = target
        self._listen = listen
        self.mode: Mode = "pass"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._dialled: set[socket.socket] = set()
        """The connections to the target; what they deliver is the answer."""
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._wanted: list[tuple[Mode | None, Event]] = []
        self._open()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def listens(self) -> tuple[str, int]:
        """Its address and port."""
        return self._listen

    def set(self, mode: Mode) -> None:
        """`refuse` closes all connections and the listener; `mute` keeps both and passes nothing.

        `mute-up` stops only what the source sends, `mute-down` only what the target sends. It takes
        effect before this returns.
        """
        self._ask(mode)

    def close(self) -> None:
        """Closes all connections and sockets."""
        self._ask(None)
        self._thread.join(5)
        self._wake.close()

    def _ask(self, mode: Mode | None) -> None:
        done = Event()
        self._wanted.append((mode, done))
        self._wake.send(b".")
        assert done.wait(10), f"a link was not set to {mode}"

    def _open(self) -> None:
        self._listener = socket.create_server(self._listen)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._woken:
                    self._woken.recv(1)
                    mode, done = self._wanted.pop(0)
                    self._change(mode or "refuse")
                    done.set()
                    if mode is None:
                        self._selector.close()
                        self._woken.close()
                        return
                elif ready is self._listener:
                    self._accept()
                elif ready in self._pairs:
                    self._move(ready)

    def _change(self, mode: Mode) -> None:
        for one in list(self._pairs):
            if mode == "refuse":
                self._close(one)
            elif self._muted(one, mode) and not self._muted(one, self.mode):
                self._selector.unregister(one)
            elif self._muted(one, self.mode) and not self._muted(one, mode):
                self._selector.register(one, selectors.EVENT_READ)
        if mode == "refuse" and self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        if mode != "refuse" and self._listener is None:
            self._open()
        self.mode = mode

    def _muted(self, one: socket.socket, mode: Mode) -> bool:
        return mode in {"mute", "mute-down" if one in self._dialled else "mute-up"}

    def _accept(self) -> None:
        assert self._listener is not None
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target, timeout=2)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        self._pairs |= {near: far, far: near}
        self._dialled.add(far)
        for one in (near, far):
            if not self._muted(one, self.mode):
                self._selector.register(one, selectors.EVENT_READ)

    def _move(self, ready: socket.socket) -> None:
        try:
            come = ready.recv(65536)
            if come:
                self._pairs[ready].sendall(come)
                return
        except OSError:
            pass
        self._close(ready)

    def _close(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other is None:
            return
        del self._pairs[other]
        self._dialled -= {one, other}
        for each in (one, other):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()
