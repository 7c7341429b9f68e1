"""A template: a process that has imported a Python program, and forks a copy of itself whenever the
supervisor starts one.

    python -P -m fencepost.supervision.template MODULE SUPERVISOR_PID

It starts the same program as `python -m MODULE ...`, without the time that the imports take. Its
standard input is one end of a SOCK_SEQPACKET pair; `fencepost.supervision.supervisor` holds the
other end. Each packet is one JSON object.

    said       {"ready": true}, once MODULE is imported
    asked      {"argv", "environment", "folder", "name"} with two descriptors attached: those of the
               program's standard input and of its log
    answered   {"pid": 71}, by the copy itself

A copy is a child of the supervisor, leads a session of its own, and dies with the supervisor, like
a program that the supervisor executes. Importing `MODULE` (of a package, its `__main__`) must have
no effect: its program is below `if __name__ == "__main__"`. It must start no thread, since a fork
copies only the thread that forks.

See docs/decisions/10-forks.md.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import runpy
import select
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from fencepost.supervision.parents import end_with
from fencepost.supervision.supervisor import PACKET_BYTES

_PR_SET_NAME = 15


def main(arguments: list[str]) -> None:
    """Serves the supervisor until it closes its end. In a copy it returns once MODULE has ended."""
    module, supervisor = arguments[0], int(arguments[1])
    asked = socket.socket(fileno=os.dup(0))
    program = f"{module}.__main__" if _is_package(module) else module
    importlib.import_module(program)
    # A fork has only the thread that forks. A lock that another thread held would stay locked in
    # the copy for ever.
    if threading.active_count() > 1:
        print(f"{program} cannot be a template: importing it started a thread", file=sys.stderr)
        os._exit(1)  # an ordinary end would wait for that thread
    gc.collect()
    gc.freeze()  # the copies share these objects' pages with the template
    with suppress(ConnectionError):
        asked.send(json.dumps({"ready": True}).encode())
    request = _next_copy(asked)
    if request is None:
        return
    # From here on this is the copy. Its id is sent only once the supervisor is its parent: the
    # supervisor opens a descriptor of that id, and waits for it.
    _adopted_by(supervisor)
    _take_on(request)
    asked.send(json.dumps({"pid": os.getpid()}).encode())
    asked.close()
    sys.argv[1:] = request["argv"]
    del sys.modules[program]  # it runs anew, as __main__
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _is_package(module: str) -> bool:
    found = importlib.util.find_spec(module)
    return found is not None and found.submodule_search_locations is not None


def _next_copy(asked: socket.socket) -> dict[str, Any] | None:
    """Forks for each request. Returns the request in the copy, and None in the template when the
    supervisor has closed its end."""
    while True:
        try:
            packet, descriptors, _, _ = socket.recv_fds(asked, PACKET_BYTES, 2)
        except ConnectionError:
            return None
        if not packet:
            return None
        # Two forks: the process between the template and the copy ends at once, and an orphan
        # becomes the child of the nearest ancestor that has asked for orphans, which is the
        # supervisor. With one fork the copy would be the template's child: only the template could
        # wait for it, and the copy would die with the template instead of with the supervisor.
        between = os.fork()
        if between == 0:
            # The copy's parent has to end: then the kernel makes the copy the supervisor's child.
            if os.fork():
                os._exit(0)
            # What `Popen` does for a child that is executed: a session of its own, standard input
            # and log at descriptors 0 to 2, nothing else open.
            os.setsid()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            os.dup2(1, 2)
            for descriptor in descriptors:
                os.close(descriptor)
            request: dict[str, Any] = json.loads(packet)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        # Else it would stay a zombie, one for each child that was started.
        os.waitpid(between, 0)


def _adopted_by(supervisor: int) -> None:
    """Waits until the supervisor is the parent, and makes this process die with it."""
    parent = os.getppid()
    if parent != supervisor:
        with suppress(ProcessLookupError):
            # The process between has not ended yet. A descriptor of it tells when, without asking
            # again and again. If it has ended already, there is no such process, and the parent has
            # changed.
            ended = os.pidfd_open(parent)
            select.select([ended], [], [])
            os.close(ended)
    end_with(supervisor)


def _take_on(request: dict[str, Any]) -> None:
    """Enters the program's folder and environment; its name is what `ps -o comm` shows."""
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    name = request["name"].encode()[:15]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
