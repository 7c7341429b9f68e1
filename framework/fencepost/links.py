"""Links: one toxiproxy process a slot, one proxy a link; the only module that knows toxiproxy.

Requests go through toxiproxy-python's `APIConsumer`, which lacks what is added here: each request
has a time limit and ignores the environment's HTTP proxies; its server address, class-wide, is ours
only while we hold the lock and is put back afterwards; an answer of 500 is an error; and what the
package has no words for (populate, metrics) is asked of the HTTP API by its path.

toxiproxy can hang: one paused target, or one client that left a delayed connection, can block its
whole API. A server that does not answer within `API_LIMIT_S` is killed and built anew with the
links as they are wanted. That closes its slot's connections, and nobody else's; a cut link is not
open for a moment meanwhile, since it is made disabled and enabled once its toxics are on.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, final

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from fencepost.addresses import API_PORT, Addresses
from fencepost.clock import poll
from fencepost.errors import EnvironmentFailed
from fencepost.launcher import Child, Launcher, tail
from fencepost.probes import listens
from fencepost.run_folder import RunFolder
from fencepost.runtime import HEALTHY, LinkState
from fencepost.topology import Layout, Link, Slot
from fencepost.toxics import DOWNSTREAM, UPSTREAM, Toxic, toxics

API_LIMIT_S = 2.0
START_LIMIT_S = 5.0
_EXIT_LIMIT_S = 5.0
_GAVE_UP = "Server finished with error"
"""What toxiproxy logs when it cannot listen; it does not end then."""

_class_wide_address = Lock()


class _Hung(Exception):
    """A server did not answer in time."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What went into one direction of a link and came out of it, over connections now closed."""

    received: int = 0
    sent: int = 0

    def __sub__(self, earlier: Bytes) -> Bytes:
        return Bytes(self.received - earlier.received, self.sent - earlier.sent)

    @property
    def dropped(self) -> int:
        return self.received - self.sent


@final
class _Server:
    """One slot's toxiproxy process."""

    def __init__(self, slot: Slot, host: str, process: str) -> None:
        self.slot = slot
        self.host = host
        self.process = process

    def ask(self, method: str, path: str, body: object = None) -> requests.Response:
        """One request; raises _Hung without an answer in time, EnvironmentFailed on refusal."""
        asking: dict[str, Any] = {"timeout": API_LIMIT_S, "proxies": {"no_proxy": "*"}}
        if body is not None:
            asking["json"] = body
        with _class_wide_address:
            before = APIConsumer.host, APIConsumer.port
            APIConsumer.host, APIConsumer.port = self.host, API_PORT
            try:
                answer: requests.Response = getattr(APIConsumer, method)(path, **asking)
            except requests.Timeout as late:
                raise _Hung from late
            except (InvalidToxic, NotFound, ProxyExists) as refused:
                raise self._refused(method, path, refused.args[0]) from refused
            finally:
                APIConsumer.host, APIConsumer.port = before
        if not answer.ok:
            raise self._refused(method, path, answer.content)
        return answer

    def _refused(self, method: str, path: str, why: bytes) -> EnvironmentFailed:
        text = why.decode(errors="replace").strip()
        return EnvironmentFailed(
            f"the toxiproxy of {self.slot.name} refused {method} {path}: {text}"
        )


@final
class Links:
    """Every link of a layout, and the state each is wanted in."""

    def __init__(
        self, layout: Layout, addresses: Addresses, launcher: Launcher, folder: RunFolder
    ) -> None:
        """Starts every slot's toxiproxy at once and creates all links, healthy.

        Raises EnvironmentFailed when toxiproxy-server is missing, does not start, or does not
        answer, or when a port is taken.
        """
        self._layout = layout
        self._addresses = addresses
        self._launcher = launcher
        self._folder = folder
        self._binary = find_toxiproxy(os.environ)
        self._wanted = dict.fromkeys(layout.links, HEALTHY)
        self._told: dict[Link, frozenset[Toxic]] = dict.fromkeys(layout.links, frozenset())
        self._starts = 0
        dialling = [slot for slot in layout.slots if self._links_of(slot)]
        self._servers = {slot.name: self._start(slot) for slot in dialling}
        for server in list(self._servers.values()):
            try:
                self._build(server)
            except _Hung:
                self._rebuild(server)

    @property
    def processes(self) -> frozenset[str]:
        """The names of the toxiproxy processes that should live."""
        return frozenset(server.process for server in self._servers.values())

    def state(self, link: Link) -> LinkState:
        """What the link is wanted to do."""
        return self._wanted[link]

    def end(self, link: Link) -> tuple[str, int]:
        """Where the link listens."""
        layout = self._layout
        return self._addresses.seen(layout.slot(link.source), layout.slot(link.target)), link.port

    def apply(self, wanted: Mapping[Link, LinkState]) -> Sequence[str]:
        """Brings these links into these states; says which toxiproxies had to be built anew.

        Raises UsageError, with nothing changed, for a state that makes no sense.
        """
        for state in wanted.values():
            toxics(state)
        self._wanted.update(wanted)
        rebuilt = []
        for server in list(self._servers.values()):
            links = [link for link in self._links_of(server.slot) if link in wanted]
            try:
                for link in links:
                    self._bring(server, link)
            except _Hung:
                self._rebuild(server)
                rebuilt.append(f"the toxiproxy of {server.slot.name} hung and was built anew")
        return rebuilt

    def differences(self, links: Sequence[Link]) -> Sequence[str]:
        """Where what toxiproxy says of these links differs from what is wanted."""
        found = []
        for server, theirs in self._grouped(links):
            listed = self._read(server, "/proxies").json()
            for link in theirs:
                shown = listed[_name(link)]
                have = {_read_toxic(toxic) for toxic in shown["toxics"]}
                want = {_sent(toxic) for toxic in toxics(self._wanted[link])}
                if have != want or not shown["enabled"]:
                    found.append(f"{link.source} -> {link.target} has {sorted(have)}")
        return found

    def bytes_passed(self, links: Sequence[Link]) -> Mapping[tuple[Link, str], Bytes]:
        """Byte counts of closed connections, by link and stream."""
        counts: dict[tuple[Link, str], Bytes] = {}
        for server, theirs in self._grouped(links):
            metrics = _parse_metrics(self._read(server, "/metrics").text)
            for link in theirs:
                for stream in (UPSTREAM, DOWNSTREAM):
                    counts[link, stream] = Bytes(
                        metrics.get(("received", _name(link), stream), 0),
                        metrics.get(("sent", _name(link), stream), 0),
                    )
        return counts

    def _links_of(self, slot: Slot) -> Sequence[Link]:
        return [link for link in self._layout.links if link.source == slot.name]

    def _grouped(self, links: Sequence[Link]) -> Sequence[tuple[_Server, Sequence[Link]]]:
        return [
            (self._servers[source], [link for link in links if link.source == source])
            for source in sorted({link.source for link in links})
        ]

    def _read(self, server: _Server, path: str) -> requests.Response:
        """A reading, from the server built anew if the present one hangs."""
        try:
            return self._reachable(server, "get", path)
        except _Hung:
            return self._reachable(self._rebuild(server), "get", path)

    def _reachable(
        self, server: _Server, method: str, path: str, body: object = None
    ) -> requests.Response:
        try:
            return server.ask(method, path, body)
        except requests.RequestException as failed:
            ended = self._launcher.wait(server.process, _EXIT_LIMIT_S)
            raise EnvironmentFailed(
                f"the toxiproxy of {server.slot.name} "
                + (str(ended) if ended else f"broke off a request: {failed}"),
                tail(self._folder.log_of(server.process)),
            ) from failed

    def _bring(self, server: _Server, link: Link) -> None:
        """Tells the server what is new of a link: removals first, then additions."""
        want, path = toxics(self._wanted[link]), f"/proxies/{_name(link)}/toxics"
        for toxic in sorted(self._told[link] - want):
            self._reachable(server, "delete", f"{path}/{toxic.name}")
            self._told[link] -= {toxic}
        for toxic in sorted(want - self._told[link]):
            self._reachable(server, "post", path, _described(toxic))
            self._told[link] |= {toxic}

    def _start(self, slot: Slot) -> _Server:
        self._starts += 1
        server = _Server(slot, self._addresses.api(slot), f"toxiproxy/{slot.name}#{self._starts}")
        if listens((server.host, API_PORT)):
            raise EnvironmentFailed(f"{server.host}:{API_PORT}, a toxiproxy's own, is in use")
        argv = [os.fspath(self._binary), "-host", server.host, "-port", str(API_PORT)]
        log = self._folder.log_of(server.process)
        self._launcher.start(
            Child(server.process, [*argv, "-proxy-metrics"], self._folder.work, log)
        )
        return server

    def _build(self, server: _Server) -> None:
        """Creates the slot's proxies as wanted, once the server answers."""
        self._await(server)
        links = self._links_of(server.slot)
        proxies = [
            {
                "name": _name(link),
                "listen": "{}:{}".format(*self.end(link)),
                "upstream": f"{self._addresses.own(self._layout.slot(link.target))}:{link.port}",
                "enabled": self._wanted[link] == HEALTHY,
            }
            for link in links
        ]
        self._reachable(server, "post", "/populate", proxies)  # which knows of no toxics
        for link in links:
            self._told[link] = frozenset()
            if self._wanted[link] != HEALTHY:
                self._bring(server, link)
                self._reachable(server, "post", f"/proxies/{_name(link)}", {"enabled": True})

    def _await(self, server: _Server) -> None:
        """Waits until the server's API listens; raises EnvironmentFailed when it will not.

        Listens, that is, at its own address: one that could not bind it lives on all the same, and
        somebody else's toxiproxy, listening at every address, would answer in its place.
        """
        log = self._folder.log_of(server.process)

        def failed() -> str:
            ended = self._launcher.wait(server.process, 0)
            return str(ended) if ended else "could not listen" if _GAVE_UP in tail(log) else ""

        def settled() -> bool:
            return listens((server.host, API_PORT)) or bool(failed())

        in_time = poll(settled, START_LIMIT_S)
        why = failed() or ("" if in_time else f"did not listen within {START_LIMIT_S:g} s")
        if why:
            raise EnvironmentFailed(f"{self._binary} of {server.slot.name} {why}", tail(log))

    def _rebuild(self, hung: _Server) -> _Server:
        """Kills a server and puts one in its place that does what is wanted."""
        server = self._servers.pop(hung.slot.name)
        self._launcher.signal(server.process, 9)
        if self._launcher.wait(server.process, _EXIT_LIMIT_S) is None:
            raise EnvironmentFailed(f"{server.process} did not end within {_EXIT_LIMIT_S:g} s")
        server = self._servers[hung.slot.name] = self._start(hung.slot)
        try:
            self._build(server)
        except _Hung as again:
            raise EnvironmentFailed(
                f"the toxiproxy of {server.slot.name} hung twice",
                tail(self._folder.log_of(server.process)),
            ) from again
        return server


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


def _name(link: Link) -> str:
    """A proxy's name: without any character that would need quoting in a path."""
    return f"{link.target}.{link.port}"


def _described(toxic: Toxic) -> dict[str, object]:
    return {
        "name": toxic.name,
        "type": toxic.kind,
        "stream": toxic.stream,
        "toxicity": 1.0,
        "attributes": dict(toxic.attributes),
    }


def _sent(toxic: Toxic) -> str:
    return _read_toxic(_described(toxic))


def _read_toxic(shown: Mapping[str, Any]) -> str:
    """A toxic in words, such as `timeout upstream timeout=0`."""
    attributes = [f"{name}={value}" for name, value in sorted(shown["attributes"].items())]
    often = [] if shown["toxicity"] == 1 else [f"toxicity={shown['toxicity']}"]
    return " ".join([shown["type"], shown["stream"], *attributes, *often])


_METRIC = re.compile(
    r"^toxiproxy_proxy_(received|sent)_bytes_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def _parse_metrics(text: str) -> Mapping[tuple[str, str, str], int]:
    """(received or sent, proxy, stream) -> bytes."""
    counts = {}
    for what, labels, value in _METRIC.findall(text):
        named = dict(_LABEL.findall(labels))
        counts[what, named["proxy"], named["direction"]] = int(float(value))
    return counts
