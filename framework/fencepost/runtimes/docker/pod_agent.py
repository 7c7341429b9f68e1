"""The agent: the first process of a pod, which carries out the harness's requests there.

It is run by path in a container that owns the pod's network and process namespaces, without root.
It imports the standard library only, so that it starts at once. Each request is one JSON object, on
a line of its standard input; each answer is one JSON object, on a line of its standard output, in
the order of the requests. Its standard error, and its toxiproxy's, is the pod's log. toxiproxy's
API is on a Unix socket in a folder of the agent's own, so only the harness, through the agent,
reaches it.

    {"id": 1, "do": "proxy"}                       (re)starts toxiproxy; {"id": 1, "pid": 7}
    {"id": 2, "do": "http", "method", "path", "body", "limit_s"}
                                                   {"id": 2, "status", "text"} or {"id": 2, "hung"}
    {"id": 3, "do": "probe", "probe": "module:name", "ends": [[address, port, timeout_s, size]]}
                                                   {"id": 3, "answers": [[came, took_ms]]}, or
                                                   {"id": 3, "raised"}: what the probe raised
    {"id": 4, "do": "sockets"}                     {"id": 4, "text"}: its /proc/net/tcp
    {"id": 5, "do": "state", "process"}            {"id": 5, "state": "S"}, empty when it is gone
    {"id": 6, "do": "write", "folder", "files"}    {"id": 6}
    {"id": 7, "do": "wipe", "folder"}              {"id": 7}: the folder is there, and empty
    {"id": 8, "do": "pack", "folder"}              {"id": 8, "tar"}: its files, in base 64
    {"id": 9, "do": "unpack", "folder", "tar"}     {"id": 9}

An answer with "error" says why the request failed. The agent ends when its standard input ends,
which means that its owner is gone, or when its toxiproxy ends by itself. It is the first process of
the pod's process namespace, so the kernel then ends the pod's node, too.
"""

from __future__ import annotations

import base64
import http.client
import importlib
import io
import json
import os
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

PROGRAM = "fencepost-toxiproxy"
NAMED = b"FENCEPOST_PROCESS="
"""The variable that gives a container's process its name."""
_READY_LIMIT_S = 5.0
_EXIT_TOXIPROXY = 70


class Agent:
    """Carries out requests, one after another."""

    def __init__(self) -> None:
        self._toxiproxy = 0
        # mkdtemp makes a folder that only this user can enter.
        self._socket = Path(tempfile.mkdtemp()) / "toxiproxy"

    def serve(self) -> None:
        """Carries out requests until standard input ends."""
        for line in sys.stdin.buffer:
            request = json.loads(line)
            try:
                answer = getattr(self, "do_" + request["do"])(request)
            except (
                OSError,
                ValueError,
                http.client.HTTPException,
                LookupError,
                ImportError,
            ) as failed:
                answer = {"error": f"{type(failed).__name__}: {failed}"}
            packet = json.dumps({"id": request["id"], **answer}).encode() + b"\n"
            sys.stdout.buffer.write(packet)
            sys.stdout.buffer.flush()

    def reap(self, *_: object) -> None:
        """Reaps every process that has ended, also those that the agent did not start."""
        with suppress(ChildProcessError):
            # The first process of a process namespace inherits every orphan in it, and has to wait
            # for each. One SIGCHLD may stand for several ends, so it waits until none is left.
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                # Links without a toxiproxy would carry nothing, and no fault explains that: the pod
                # ends, and the harness reports it. A toxiproxy that `do_proxy` kills is no longer
                # `_toxiproxy`.
                if ended[0] == self._toxiproxy:
                    code = os.waitstatus_to_exitcode(ended[1])
                    print(f"toxiproxy ended with exit code {code}", file=sys.stderr, flush=True)
                    os._exit(_EXIT_TOXIPROXY)

    def do_proxy(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._toxiproxy:
            old, self._toxiproxy = self._toxiproxy, 0
            os.kill(old, signal.SIGKILL)
            # `reap` waits for it meanwhile. The ports of its links are free once it is gone.
            _await(lambda: not Path(f"/proc/{old}").exists())
        self._socket.unlink(missing_ok=True)
        argv = [PROGRAM, "-socket", str(self._socket)]
        # Its output would mix with the agent's answers on standard output otherwise, and it must
        # not read the requests.
        to_log = [(os.POSIX_SPAWN_DUP2, 2, 1), (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        started = os.posix_spawnp(argv[0], argv, os.environ, file_actions=to_log)
        self._toxiproxy = started
        if not _await(self._listens):
            return {"error": f"it did not listen within {_READY_LIMIT_S:g} s"}
        return {"pid": started}

    def do_http(self, request: dict[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("toxiproxy", timeout=request["limit_s"])
        body = None if request["body"] is None else json.dumps(request["body"])
        headers = {"Content-Type": "application/json"}
        try:
            connection.sock = self._connect(request["limit_s"])
            connection.request(request["method"].upper(), request["path"], body, headers)
            answer = connection.getresponse()
            return {"status": answer.status, "text": answer.read().decode(errors="replace")}
        except (TimeoutError, BlockingIOError):  # BlockingIOError: too many wait to connect
            return {"hung": True}
        finally:
            connection.close()

    def _connect(self, limit_s: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(limit_s)
            connection.connect(str(self._socket))
        except OSError:
            connection.close()
            raise
        return connection

    def _listens(self) -> bool:
        try:
            self._connect(1).close()
        except OSError:
            return False
        return True

    def do_probe(self, request: dict[str, Any]) -> dict[str, Any]:
        module, _, name = request["probe"].partition(":")
        try:
            probe = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as absent:
            return {"absent": f"{type(absent).__name__}: {absent}"}

        def ask(end: tuple[str, int, float, int]) -> tuple[bool, float]:
            began = time.monotonic()
            came = probe(*end)
            return came, (time.monotonic() - began) * 1000

        ends = request["ends"]
        with ThreadPoolExecutor(max(1, len(ends))) as pool:
            asked = [pool.submit(ask, end) for end in ends]
        errors = [error for one in asked if (error := one.exception()) is not None]
        if errors:
            return {"raised": f"{type(errors[0]).__name__}: {errors[0]}"}
        return {"answers": [one.result() for one in asked]}

    def do_sockets(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"text": Path("/proc/net/tcp").read_text()}

    def do_state(self, request: dict[str, Any]) -> dict[str, Any]:
        """The state of the process of that name which the engine started in the pod, not of its
        children."""
        wanted = NAMED + request["process"].encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                environment = (folder / "environ").read_bytes().split(b"\0")
                # A container that joins a namespace starts its first process from outside of it: in
                # here its parent is 0. Children have the same environment, and the node's own id as
                # parent.
                if parent == "0" and wanted in environment:
                    return {"state": state}
        return {"state": ""}

    def do_write(self, request: dict[str, Any]) -> dict[str, Any]:
        folder = Path(request["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in request["files"].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {}

    def do_wipe(self, request: dict[str, Any]) -> dict[str, Any]:
        folder = Path(request["folder"])
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return {}

    def do_pack(self, request: dict[str, Any]) -> dict[str, Any]:
        """Every file is read before its length is sent, since a process may write to it
        meanwhile."""
        folder = Path(request["folder"])
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
            for path in _below(folder):
                with suppress(FileNotFoundError):  # removed meanwhile
                    entry = tar.gettarinfo(path, str(path.relative_to(folder)))
                    data = path.read_bytes() if entry.isreg() else b""
                    # The length that was listed may be another one by now; tar needs the length of
                    # what follows.
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
        return {"tar": base64.b64encode(packed.getvalue()).decode()}

    def do_unpack(self, request: dict[str, Any]) -> dict[str, Any]:
        unpack(base64.b64decode(request["tar"]), Path(request["folder"]))
        return {}


def unpack(packed: bytes, folder: Path) -> None:
    """Extracts a packed folder. If this Python's tarfile has filters, no file lands outside the
    folder."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)


def _below(folder: Path) -> Iterator[Path]:
    """Every path below a folder, each folder before its contents; a folder that vanishes counts as
    empty."""
    with suppress(FileNotFoundError):
        for path in sorted(folder.iterdir()):
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from _below(path)


def _await(holds: Any) -> bool:
    deadline = time.monotonic() + _READY_LIMIT_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)  # noqa: TID251 the kernel reports no event for it
    return True


def main() -> None:
    """Serves until the owner is gone."""
    agent = Agent()
    signal.signal(signal.SIGCHLD, agent.reap)
    agent.serve()


if __name__ == "__main__":
    main()
