"""Where the toxiproxies of a run live and how they are asked; the only module that speaks to one.

On this host, requests go through toxiproxy-python's `APIConsumer`, which lacks what is added here:
each request has a time limit and ignores the environment's HTTP proxies; its server address,
class-wide, is ours only while we hold the lock and is put back afterwards; an answer of 500 is an
error. In pods it is `fencepost.runtimes.docker.pods` that asks.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, final

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from fencepost.history.run_folder import RunFolder
from fencepost.injection.probes import End, listens
from fencepost.model.clock import poll
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.topology import Layout, Link, Slot
from fencepost.supervision.addresses import API_PORT, Addresses
from fencepost.supervision.launcher import Child, Launcher, tail

API_LIMIT_S = 2.0
START_LIMIT_S = 20.0
_EXIT_LIMIT_S = 5.0
_GAVE_UP = "Server finished with error"
"""What toxiproxy logs when it cannot listen; it does not end then."""

_class_wide_address = Lock()


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
        """Waits until it listens; raises EnvironmentFailed, with its log's end, if it will not."""
        ...

    def ask(self, process: str, method: str, path: str, body: object = None) -> Reply:
        """One request; raises Hung without an answer in time, EnvironmentFailed if it is gone."""
        ...

    def kill(self, process: str) -> None:
        """Ends it; raises EnvironmentFailed when it is not gone in time."""
        ...

    def listen(self, link: Link) -> End:
        """Where the link's proxy listens."""
        ...

    def upstream(self, link: Link) -> End:
        """Where the link's proxy leads."""
        ...

    def log(self, process: str) -> str:
        """The last lines it logged."""
        ...


@final
class HostToxiproxies:
    """Toxiproxies as processes of this host."""

    def __init__(
        self, layout: Layout, addresses: Addresses, launcher: Launcher, folder: RunFolder
    ) -> None:
        """Raises EnvironmentFailed when toxiproxy-server is missing."""
        self._layout = layout
        self._addresses = addresses
        self._launcher = launcher
        self._folder = folder
        self._binary = find_toxiproxy(os.environ)
        self._slots: dict[str, Slot] = {}

    def start(self, wanted: Mapping[str, Slot]) -> None:
        """See `Toxiproxies.start`; raises EnvironmentFailed when a port is taken."""
        for process, slot in wanted.items():
            host = self._addresses.api(slot)
            if listens((host, API_PORT)):
                raise EnvironmentFailed(f"{host}:{API_PORT}, a toxiproxy's own, is in use")
            argv = [os.fspath(self._binary), "-host", host, "-port", str(API_PORT)]
            log = self._folder.log_of(process)
            self._launcher.start(Child(process, [*argv, "-proxy-metrics"], self._folder.work, log))
            self._slots[process] = slot

    def ready(self, process: str) -> None:
        """See `Toxiproxies.ready`.

        Listens, that is, at its own address: one that could not bind it lives on all the same, and
        another user's toxiproxy that listens at every address would answer in its place.
        """
        host = self._addresses.api(self._slots[process])

        def failed() -> str:
            ended = self._launcher.wait(process, 0)
            return (
                str(ended) if ended else "could not listen" if _GAVE_UP in self.log(process) else ""
            )

        def settled() -> bool:
            return listens((host, API_PORT)) or bool(failed())

        in_time = poll(settled, START_LIMIT_S)
        why = failed() or ("" if in_time else f"did not listen within {START_LIMIT_S:g} s")
        if why:
            name = self._slots[process].name
            raise EnvironmentFailed(f"{self._binary} of {name} {why}", self.log(process))

    def ask(self, process: str, method: str, path: str, body: object = None) -> Reply:
        """See `Toxiproxies.ask`."""
        slot = self._slots[process]
        asking: dict[str, Any] = {"timeout": API_LIMIT_S, "proxies": {"no_proxy": "*"}}
        if body is not None:
            asking["json"] = body
        with _class_wide_address:
            before = APIConsumer.host, APIConsumer.port
            APIConsumer.host, APIConsumer.port = self._addresses.api(slot), API_PORT
            try:
                answer: requests.Response = getattr(APIConsumer, method)(path, **asking)
            except requests.Timeout as late:
                raise Hung from late
            except (InvalidToxic, NotFound, ProxyExists) as refused:
                return Reply(400, refused.args[0].decode(errors="replace"))
            except requests.RequestException as failed:
                ended = self._launcher.wait(process, _EXIT_LIMIT_S)
                raise EnvironmentFailed(
                    f"the toxiproxy of {slot.name} "
                    + (str(ended) if ended else f"broke off a request: {failed}"),
                    self.log(process),
                ) from failed
            finally:
                APIConsumer.host, APIConsumer.port = before
        return Reply(answer.status_code, answer.text)

    def kill(self, process: str) -> None:
        """See `Toxiproxies.kill`."""
        self._launcher.signal(process, 9)
        if self._launcher.wait(process, _EXIT_LIMIT_S) is None:
            raise EnvironmentFailed(f"{process} did not end within {_EXIT_LIMIT_S:g} s")

    def listen(self, link: Link) -> End:
        """See `Toxiproxies.listen`."""
        layout = self._layout
        return self._addresses.seen(layout.slot(link.source), layout.slot(link.target)), link.port

    def upstream(self, link: Link) -> End:
        """See `Toxiproxies.upstream`."""
        return self._addresses.own(self._layout.slot(link.target)), link.port

    def log(self, process: str) -> str:
        """See `Toxiproxies.log`."""
        return tail(self._folder.log_of(process))


def find_toxiproxy(environment: Mapping[str, str]) -> Path:
    """toxiproxy-server: $FENCEPOST_TOXIPROXY, else beside this Python, else on the PATH.

    Raises EnvironmentFailed when there is none.
    """
    named = environment.get("FENCEPOST_TOXIPROXY")
    if named:
        if os.access(named, os.X_OK) and Path(named).is_file():
            return Path(named)
        raise EnvironmentFailed(f"FENCEPOST_TOXIPROXY names {named}, which is no program")
    beside = Path(sys.executable).with_name("toxiproxy-server")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("toxiproxy-server", path=environment.get("PATH"))
    if found:
        return Path(found)
    raise EnvironmentFailed(
        f"toxiproxy-server was found neither beside {sys.executable} nor on the PATH: "
        "run ./dev setup, or set FENCEPOST_TOXIPROXY"
    )


def toxiproxy_version(binary: Path) -> str:
    """The version a toxiproxy-server was built from, such as `v2.12.0`, or `unknown`.

    One that `go install` built calls itself `git`, so this reads what Go wrote into the program.
    """
    found = re.search(rb"github\.com/Shopify/toxiproxy/v2\t(v[0-9][^\t\n]*)", binary.read_bytes())
    return found[1].decode() if found else "unknown"
