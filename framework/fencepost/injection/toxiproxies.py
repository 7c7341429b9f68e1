"""Starts the toxiproxies of a run and sends requests to their API; no other module of a host does.

A toxiproxy is our own build of it (`toxiproxy/` beside this file). Its API is on a Unix socket in a
folder of the run that only the run's user can enter, so no other user of the machine can change a
link. toxiproxy-python knows TCP only, so requests go through the standard library's HTTP client.
`fencepost.runtimes.docker.pods` sends the requests to toxiproxies in pods.

See docs/decisions/17-toxiproxy.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Protocol, final

from fencepost.history.run_folder import RunFolder
from fencepost.injection.probes import End
from fencepost.model.clock import poll
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.system.topology import Layout, Link, Slot
from fencepost.supervision.addresses import Addresses
from fencepost.supervision.launcher import Child, Launcher, failed_with

# A change holds up the harness, which has one thread. So the limit is short: a change that meets a
# hung toxiproxy takes some seconds, its replacement included.
API_LIMIT_S = 2.0
START_LIMIT_S = 20.0
_EXIT_LIMIT_S = 5.0
PROGRAM = "fencepost-toxiproxy"


class Hung(Exception):
    """A toxiproxy did not answer in time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a toxiproxy answered; it refused if `status` is 400 or above."""

    status: int
    text: str


class Toxiproxies(Protocol):
    """The toxiproxies of a run, by the names of their processes."""

    def start(self, wanted: Mapping[str, Slot]) -> None:
        """Starts one in each of these slots, all at once; see `ready`."""
        ...

    def ready(self, process: str) -> None:
        """Waits until it listens; raises EnvironmentFailed, with the end of its log, if it does
        not."""
        ...

    def ask(self, process: str, method: str, path: str, body: object = None) -> Reply:
        """The answer to one request; raises Hung without one in time, EnvironmentFailed if it is
        gone."""
        ...

    def kill(self, process: str) -> None:
        """Ends a hung one, or leaves that to its next `start`; raises EnvironmentFailed when it is
        not gone in time."""
        ...

    def listen(self, link: Link) -> End:
        """Where the link's proxy listens."""
        ...

    def upstream(self, link: Link) -> End:
        """The address that the link's proxy connects to."""
        ...

    def log(self, process: str) -> Path:
        """The file that it logs to."""
        ...


@final
class HostToxiproxies:
    """Toxiproxies as processes of this host."""

    def __init__(
        self, layout: Layout, addresses: Addresses, launcher: Launcher, folder: RunFolder
    ) -> None:
        """Raises EnvironmentFailed when `fencepost-toxiproxy` is missing."""
        self._layout = layout
        self._addresses = addresses
        self._launcher = launcher
        self._folder = folder
        self._binary = find_toxiproxy(os.environ)
        self._slots: dict[str, Slot] = {}
        # The folder protects the sockets in it: to open one needs the right to enter the folder.
        folder.sockets.mkdir(mode=0o700, exist_ok=True)

    def start(self, wanted: Mapping[str, Slot]) -> None:
        """See `Toxiproxies.start`."""
        for process, slot in wanted.items():
            # A socket's path has at most 107 bytes, so it is given from where the program starts.
            path = os.path.relpath(self._folder.socket_of(process), self._folder.work)
            argv = [os.fspath(self._binary), "-socket", path]
            log = self._folder.log_of(process)
            self._launcher.start(Child(process, argv, self._folder.work, log))
            self._slots[process] = slot

    def ready(self, process: str) -> None:
        """See `Toxiproxies.ready`."""

        # A connection that is accepted shows that it listens. A process that has ended will never,
        # so there is no reason to wait for the limit.
        def settled() -> bool:
            try:
                connect(self._folder.socket_of(process), API_LIMIT_S).close()
            except OSError:
                return self._launcher.wait(process, 0) is not None
            return True

        in_time = poll(settled, START_LIMIT_S)
        ended = self._launcher.wait(process, 0)
        if ended is not None or not in_time:
            why = str(ended) if ended else f"did not listen within {START_LIMIT_S:g} s"
            name = self._slots[process].name
            raise failed_with(f"{self._binary} of {name} {why}", self.log(process))

    def ask(self, process: str, method: str, path: str, body: object = None) -> Reply:
        """See `Toxiproxies.ask`."""
        # The socket is given, so the name is not resolved: it only fills the header `Host`.
        client = HTTPConnection("toxiproxy", timeout=API_LIMIT_S)
        try:
            client.sock = connect(self._folder.socket_of(process), API_LIMIT_S)
            text = None if body is None else json.dumps(body)
            client.request(method.upper(), path, text, {"Content-Type": "application/json"})
            answer = client.getresponse()
            return Reply(answer.status, answer.read().decode(errors="replace"))
        # Two kinds of failure. Silence is a hang, which the caller mends with a new process. A
        # connection that breaks means that the process is gone, or about to be: no replacement is
        # made, since a toxiproxy that ends by itself is an error of the environment, with the
        # reason in its log.
        except (TimeoutError, BlockingIOError) as late:  # BlockingIOError: too many wait to connect
            raise Hung from late
        except (OSError, HTTPException) as failed:
            # The connection breaks a moment before the supervisor sees the end; the message should
            # name it.
            ended = self._launcher.wait(process, _EXIT_LIMIT_S)
            why = str(ended) if ended else f"broke off a request: {failed}"
            name = self._slots[process].name
            raise failed_with(f"the toxiproxy of {name} {why}", self.log(process)) from failed
        finally:
            client.close()

    def kill(self, process: str) -> None:
        """See `Toxiproxies.kill`."""
        self._launcher.signal(process, 9)
        if self._launcher.wait(process, _EXIT_LIMIT_S) is None:
            raise EnvironmentFailed(f"{process} did not end within {_EXIT_LIMIT_S:g} s")
        # After SIGKILL the file stays. Nothing would listen behind it.
        self._folder.socket_of(process).unlink(missing_ok=True)

    def listen(self, link: Link) -> End:
        """See `Toxiproxies.listen`."""
        layout = self._layout
        return self._addresses.seen(layout.slot(link.source), layout.slot(link.target)), link.port

    def upstream(self, link: Link) -> End:
        """See `Toxiproxies.upstream`."""
        return self._addresses.own(self._layout.slot(link.target)), link.port

    def log(self, process: str) -> Path:
        """See `Toxiproxies.log`."""
        return self._folder.log_of(process)


def connect(path: Path, limit_s: float) -> socket.socket:
    """A connection to a Unix socket; raises OSError, TimeoutError among it.

    The path may be longer than an address of a socket: the folder is opened first.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        # An address has room for 107 bytes, and a run's folder may lie deeper. Its descriptor's
        # name in /proc is short, whatever the path is.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            connection.settimeout(limit_s)
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except OSError:
        connection.close()
        raise
    return connection


def find_toxiproxy(environment: Mapping[str, str]) -> Path:
    """Our build of toxiproxy: $FENCEPOST_TOXIPROXY, else beside this Python, else on the PATH.

    Raises EnvironmentFailed when there is none.
    """
    named = environment.get("FENCEPOST_TOXIPROXY")
    if named:
        if os.access(named, os.X_OK) and Path(named).is_file():
            return Path(named)
        raise EnvironmentFailed(f"FENCEPOST_TOXIPROXY names {named}, which is no program")
    beside = Path(sys.executable).with_name(PROGRAM)
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(PROGRAM, path=environment.get("PATH"))
    if found:
        return Path(found)
    raise EnvironmentFailed(
        f"{PROGRAM} was found neither beside {sys.executable} nor on the PATH: "
        "run `fencepost setup`, or set FENCEPOST_TOXIPROXY"
    )


_OURS = (b"fencepost/toxiproxy/cut", b"fencepost/toxiproxy/hold")
"""The packages of our toxics, as Go names them in a program."""


def present_toxiproxy(environment: Mapping[str, str]) -> Path:
    """As `find_toxiproxy`; raises EnvironmentFailed for a program that lacks a toxic of ours, too:
    an earlier version built it, and it would refuse a cut in the middle of a run."""
    found = find_toxiproxy(environment)
    content = found.read_bytes()
    if not all(name in content for name in _OURS):
        raise EnvironmentFailed(
            f"{found} was built by an earlier version of Fencepost: run `fencepost setup`"
        )
    return found


def toxiproxy_version(binary: Path) -> str:
    """The version of toxiproxy that a program holds, such as `v2.12.0`, or `unknown`.

    It is what Go wrote into the program of the modules that it is made of.
    """
    found = re.search(rb"github\.com/Shopify/toxiproxy/v2\t(v[0-9][^\t\n]*)", binary.read_bytes())
    return found[1].decode() if found else "unknown"
