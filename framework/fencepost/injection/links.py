"""Links: one toxiproxy per slot, one proxy per link, and the desired state of each link.

`fencepost.injection.toxiproxies` starts the toxiproxies and sends them requests.

toxiproxy can hang: one paused target, or one client that left a delayed connection, can block its
whole API. A server that does not answer within `API_LIMIT_S` is killed and replaced, and the new
one sets every link to its desired state. This closes the connections of that slot, and no others. A
cut link stays cut meanwhile: its proxy is created disabled, and enabled once its toxics are set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import msgspec

from fencepost.injection.probes import End
from fencepost.injection.toxics import (
    CUT,
    DOWNSTREAM,
    HOLD,
    UPSTREAM,
    Toxic,
    hold_attributes,
    toxics,
)
from fencepost.injection.toxiproxies import Hung, Toxiproxies
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.faults.hold import Hold, HoldCounts, check_hold
from fencepost.model.runtime import HEALTHY, LinkState
from fencepost.model.system.topology import Layout, Link, Slot
from fencepost.supervision.launcher import failed_with

_FORGOTTEN = "its toxiproxy hung and was replaced: the messages that it held are lost"
_REFUSED = 400
"""The least HTTP status that is a refusal."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that entered one direction of a link and left it, over connections that are closed
    now."""

    received: int = 0
    sent: int = 0

    def __sub__(self, earlier: Bytes) -> Bytes:
        return Bytes(self.received - earlier.received, self.sent - earlier.sent)

    @property
    def dropped(self) -> int:
        return self.received - self.sent


@dataclass(frozen=True, slots=True)
class _Server:
    """One slot's toxiproxy, by the name of its process."""

    slot: Slot
    process: str


@final
class Links:
    """Every link of a layout, and its desired state."""

    def __init__(self, layout: Layout, toxiproxies: Toxiproxies) -> None:
        """The desired state of all links is healthy. The links of a slot exist once `open` was
        called."""
        self._layout = layout
        self._toxiproxies = toxiproxies
        self._wanted = dict.fromkeys(layout.links, HEALTHY)
        self._applied: dict[Link, frozenset[Toxic]] = dict.fromkeys(layout.links, frozenset())
        self._holds: dict[Link, Hold] = {}
        self._forgotten: set[Link] = set()
        """Links whose toxiproxy was replaced since their hold began: their held messages are
        lost."""
        self._starts = 0
        self._servers: dict[str, _Server] = {}
        self._begun: dict[str, _Server] = {}
        """The servers that have no links yet."""

    def begin(self, slots: Iterable[Slot]) -> None:
        """Starts the toxiproxies of these slots, all at once, unless they were started already.

        Returns before they answer: `open` waits for that. Raises EnvironmentFailed when a port is
        taken.
        """
        new = [s for s in slots if s.name not in self._servers and self._links_of(s)]
        servers = [self._named(slot) for slot in new]
        self._toxiproxies.start({server.process: server.slot for server in servers})
        self._servers.update({server.slot.name: server for server in servers})
        self._begun.update({server.slot.name: server for server in servers})

    def open(self, slots: Iterable[Slot]) -> None:
        """Creates the links of these slots in their desired states, unless they exist already.

        Raises EnvironmentFailed when a toxiproxy does not start or answer, or a port is taken.
        """
        wanted = list(slots)
        self.begin(wanted)
        for slot in wanted:
            server = self._begun.pop(slot.name, None)
            if server is None:
                continue
            try:
                self._build(server)
            except Hung:
                self._rebuild(server)

    @property
    def processes(self) -> frozenset[str]:
        """The names of the toxiproxy processes that should be running."""
        return frozenset(server.process for server in self._servers.values())

    def state(self, link: Link) -> LinkState:
        """The desired state of the link."""
        return self._wanted[link]

    def end(self, link: Link) -> End:
        """Where the link listens, as its source sees it."""
        return self._toxiproxies.listen(link)

    def apply(self, wanted: Mapping[Link, LinkState]) -> Sequence[str]:
        """Brings these links into these states; returns a sentence for each toxiproxy that was
        replaced.

        Raises UsageError, with nothing changed, for a state that makes no sense.
        """
        # All states are checked before any is sent. A wrong one among several would otherwise leave
        # a part of the links changed.
        for state in wanted.values():
            toxics(state)
        self._open_begun()
        # The desired states are stored before the first request. If a toxiproxy hangs half-way, its
        # replacement is built from `_wanted`, so the change is complete all the same. A slot
        # without a toxiproxy (a duplicate or a spare that was never started) gets its state when
        # its links are built.
        self._wanted.update(wanted)
        rebuilt = []
        # A copy, since `_rebuild` replaces the entry of a slot meanwhile.
        for server in list(self._servers.values()):
            links = [link for link in self._links_of(server.slot) if link in wanted]
            try:
                for link in links:
                    self._bring(server, link)
            except Hung:
                self._rebuild(server)
                rebuilt.append(f"the toxiproxy of {server.slot.name} hung and was replaced")
        return rebuilt

    @property
    def holding(self) -> Sequence[Link]:
        """The links that choose among messages."""
        return tuple(self._holds)

    def hold(self, link: Link, what: Hold) -> None:
        """See `Runtime.hold`."""
        check_hold(link, self._is_framed(link), link in self._holds)
        # Raises UsageError for values that make no sense, before anything is stored.
        self._attributes(link, what)
        self._holds[link] = what
        self._follow(link)
        # Last, since `_follow` may have replaced a toxiproxy that hung, and that marks every link
        # which holds. This hold begins only here: what an earlier one lost is not its loss.
        self._forgotten.discard(link)

    def release(self, link: Link) -> None:
        """Makes the link release what it holds; `held` shows when everything has left."""
        # The toxic stays in the link and only passes messages from here on. Removed and added again
        # later, it would come into connections in the middle of a message, and could not find where
        # the next begins.
        if self._holds.pop(link, None) is not None:
            self._follow(link)

    def held(self, link: Link) -> HoldCounts:
        """See `Runtime.held`; all counts are 0 for a link that does not exist yet."""
        if not self._is_framed(link):
            return HoldCounts()
        for server, _ in self._grouped([link]):
            shown = msgspec.json.decode(self._read(server, f"{_path(link)}/toxics/{HOLD}"))
            counts = msgspec.convert(shown["attributes"]["counts"], HoldCounts)
            # The counts of a replacement begin at 0. Without this error they would say that no
            # message waits and none was lost, and `judge_release` would give a true receipt for
            # messages that are gone.
            return replace(counts, last_error=_FORGOTTEN) if link in self._forgotten else counts
        return HoldCounts()

    def _follow(self, link: Link) -> None:
        """Sends the hold to the link's toxiproxy, if that was started."""
        for server, _ in self._grouped([link]):
            try:
                attributes = self._attributes(link, self._holds.get(link))
                path = f"{_path(link)}/toxics/{HOLD}"
                self._ask(server, "patch", path, {"attributes": attributes})
            except Hung:
                self._rebuild(server)

    def _attributes(self, link: Link, what: Hold | None) -> Mapping[str, object]:
        return hold_attributes(what, "{}:{}".format(*self._toxiproxies.upstream(link)))

    def differences(self, links: Sequence[Link]) -> Sequence[str]:
        """Differences between the actual and the desired state of these links' proxies, a sentence
        each. Links that do not exist yet are left out."""
        found = []
        for server, theirs in self._grouped(links):
            listed = msgspec.json.decode(self._read(server, "/proxies"))
            for link in theirs:
                if difference := self._difference(link, listed.get(_name(link))):
                    found.append(f"{link.source} -> {link.target} {difference}")
        return found

    def _difference(self, link: Link, shown: Mapping[str, Any] | None) -> str:
        """How a proxy, as its toxiproxy shows it, differs from the desired one; else empty."""
        if shown is None:
            return "has no proxy"
        if not shown["enabled"]:
            return "is disabled"
        for what, end in (
            ("listen", self._toxiproxies.listen(link)),
            ("upstream", self._toxiproxies.upstream(link)),
        ):
            if shown[what] != "{}:{}".format(*end):
                return f"has another {what} address, {shown[what]}"
        # Both sides go through the same words, so the order of toxics and of attributes is
        # irrelevant, and counts, which change all the time, are left out.
        have = {_read_toxic(toxic) for toxic in shown["toxics"]}
        want = {_read_toxic(toxic) for toxic in self._described(link)}
        return "" if have == want else f"has {sorted(have)}"

    @property
    def sources(self) -> Sequence[str]:
        """The slots whose links exist."""
        return [name for name in self._servers if name not in self._begun]

    def repaired(self, source: str) -> Mapping[str, str]:
        """What was wrong with the links of a slot, by link; each is in its desired state again.

        A toxiproxy that does not answer is asked twice, since the machine may have stalled. Raises
        EnvironmentFailed if it is gone, or its replacement hangs, too.
        """
        server = self._servers[source]
        links = self._links_of(server.slot)
        try:
            try:
                # `_ask`, not `_read`: that would replace a hung toxiproxy silently, and the failure
                # of its links would never become an event.
                text = self._ask(server, "get", "/proxies")
            except Hung:
                text = self._ask(server, "get", "/proxies")
        except Hung:
            wrong = dict.fromkeys(map(str, links), "its toxiproxy did not answer")
        else:
            listed = msgspec.json.decode(text)
            found = {link: self._difference(link, listed.get(_name(link))) for link in links}
            wrong = {str(link): f"it {what}" for link, what in found.items() if what}
        # The whole slot is built anew, not the one proxy that differs: whoever changed it may have
        # changed more, and `_applied` no longer says what this toxiproxy has.
        if wrong:
            self._rebuild(server)
        return wrong

    def bytes_passed(self, links: Sequence[Link]) -> Mapping[tuple[Link, str], Bytes]:
        """Byte counts of closed connections, by link and stream. Links that do not exist yet have
        none."""
        counts: dict[tuple[Link, str], Bytes] = {}
        for server, theirs in self._grouped(links):
            metrics = parse_metrics(self._read(server, "/metrics"))
            for link in theirs:
                for stream in (UPSTREAM, DOWNSTREAM):
                    counts[link, stream] = Bytes(
                        metrics.get(("received", _name(link), stream), 0),
                        metrics.get(("sent", _name(link), stream), 0),
                    )
        return counts

    def _links_of(self, slot: Slot) -> Sequence[Link]:
        return [link for link in self._layout.links if link.source == slot.name]

    def _open_begun(self) -> None:
        self.open([server.slot for server in self._begun.values()])

    def _grouped(self, links: Sequence[Link]) -> Sequence[tuple[_Server, Sequence[Link]]]:
        self._open_begun()
        return [
            (self._servers[source], [link for link in links if link.source == source])
            for source in sorted({link.source for link in links})
            if source in self._servers
        ]

    def _read(self, server: _Server, path: str) -> str:
        """The answer to a GET, from the replacement of the server if the present one hangs."""
        try:
            return self._ask(server, "get", path)
        except Hung:
            return self._ask(self._rebuild(server), "get", path)

    def _ask(self, server: _Server, method: str, path: str, body: object = None) -> str:
        """The answer to one request; raises Hung without one in time, EnvironmentFailed on
        refusal."""
        reply = self._toxiproxies.ask(server.process, method, path, body)
        if reply.status >= _REFUSED:
            raise EnvironmentFailed(
                f"the toxiproxy of {server.slot.name} refused {method} {path}: {reply.text.strip()}"
            )
        return reply.text

    def _bring(self, server: _Server, link: Link) -> None:
        """Sends the server the changes to a link's toxics: removals first, then additions."""
        want, path = toxics(self._wanted[link]), f"{_path(link)}/toxics"
        # A toxic's name is its kind and stream, so a delay that changes from 10 ms to 20 ms is two
        # toxics of one name. The first has to go before the second can be added: toxiproxy refuses
        # a name twice.
        #
        # `_applied` follows each request. If toxiproxy hangs between two of them, `_build` clears
        # the entry and applies everything anew.
        for toxic in sorted(self._applied[link] - want):
            self._ask(server, "delete", f"{path}/{toxic.name}")
            self._applied[link] -= {toxic}
        for toxic in sorted(want - self._applied[link]):
            self._ask(server, "post", path, _described(toxic, link))
            self._applied[link] |= {toxic}

    def _named(self, slot: Slot) -> _Server:
        self._starts += 1
        return _Server(slot, f"toxiproxy/{slot.name}#{self._starts}")

    def _build(self, server: _Server) -> None:
        """Creates the slot's proxies in their desired states, once the server answers."""
        self._toxiproxies.ready(server.process)
        links = self._links_of(server.slot)
        # A proxy that needs a toxic is created disabled, gets its toxics, and is enabled last.
        # Clients reconnect within milliseconds: with the proxy enabled first, a message would pass
        # through a cut.
        proxies = [
            {
                "name": _name(link),
                "listen": "{}:{}".format(*self._toxiproxies.listen(link)),
                "upstream": "{}:{}".format(*self._toxiproxies.upstream(link)),
                "enabled": self._is_plain(link),
            }
            for link in links
        ]
        self._ask(server, "post", "/populate", proxies)  # `populate` takes no toxics
        for link in links:
            self._applied[link] = frozenset()
            if self._is_plain(link):
                continue
            if self._is_framed(link):  # first, so that it sees a connection's first byte
                self._ask(server, "post", f"{_path(link)}/toxics", self._hold_toxic(link))
            self._bring(server, link)
            # From here on the link carries connections, and each of them meets every toxic from its
            # first byte.
            self._ask(server, "patch", _path(link), {"enabled": True})

    def _is_plain(self, link: Link) -> bool:
        """Whether its proxy needs no toxic."""
        return self._wanted[link] == HEALTHY and not self._is_framed(link)

    def _is_framed(self, link: Link) -> bool:
        return link.port in self._layout.framed

    def _hold_toxic(self, link: Link) -> Mapping[str, Any]:
        attributes = self._attributes(link, self._holds.get(link))
        return _toxic(HOLD, HOLD, UPSTREAM, attributes)

    def _described(self, link: Link) -> Sequence[Mapping[str, Any]]:
        """Every toxic that the link's proxy should have."""
        held = [self._hold_toxic(link)] if self._is_framed(link) else []
        return [*held, *(_described(toxic, link) for toxic in toxics(self._wanted[link]))]

    def _rebuild(self, hung: _Server) -> _Server:
        """Kills a server and starts one in its place, with every link in its desired state."""
        # Steps in order: what the old toxiproxy held is noted as lost; it is killed, at the latest
        # by the next `start`, which frees the ports that its proxies listen on; a new one of
        # another name is started; its links are built. A name is never used twice, so the end of
        # the killed process is not taken for that of its replacement.
        del self._servers[hung.slot.name]
        self._forgotten.update(link for link in self._holds if link.source == hung.slot.name)
        self._toxiproxies.kill(hung.process)
        server = self._named(hung.slot)
        self._toxiproxies.start({server.process: server.slot})
        self._servers[hung.slot.name] = server
        try:
            self._build(server)
        except Hung as again:
            # A second hang right after a start is no accident of one connection: the machine or the
            # toxiproxy is at fault, and going on would replace toxiproxies for ever.
            raise failed_with(
                f"the toxiproxy of {server.slot.name} hung twice",
                self._toxiproxies.log(server.process),
            ) from again
        return server


def _name(link: Link) -> str:
    """A proxy's name: without any character that would need quoting in a path."""
    # The source is left out, since each source has a toxiproxy of its own.
    return f"{link.target}.{link.port}"


def _path(link: Link) -> str:
    return f"/proxies/{_name(link)}"


def _described(toxic: Toxic, link: Link) -> Mapping[str, Any]:
    attributes: dict[str, object] = dict(toxic.attributes)
    if toxic.kind == CUT:
        attributes["link"] = _name(link)
    return _toxic(toxic.name, toxic.kind, toxic.stream, attributes)


def _toxic(
    name: str, kind: str, stream: str, attributes: Mapping[str, object]
) -> Mapping[str, Any]:
    return {
        "name": name, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes
    }  # fmt: skip


def _read_toxic(shown: Mapping[str, Any]) -> str:
    """A toxic in words, such as `bandwidth upstream rate=5`."""
    attributes = [
        f"{name}={value}" for name, value in sorted(shown["attributes"].items()) if name != "counts"
    ]
    often = [] if shown["toxicity"] == 1 else [f"toxicity={shown['toxicity']}"]
    return " ".join([shown["type"], shown["stream"], *attributes, *often])


_METRIC = re.compile(
    r"^toxiproxy_proxy_(received|sent)_bytes_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def parse_metrics(text: str) -> Mapping[tuple[str, str, str], int]:
    """The counts on a page of toxiproxy's metrics: (received or sent, proxy, stream) -> bytes."""
    counts = {}
    for what, labels, value in _METRIC.findall(text):
        named = dict(_LABEL.findall(labels))
        # Prometheus prints large counts as `1.5e+06`, which `int` alone refuses.
        counts[what, named["proxy"], named["direction"]] = int(float(value))
    return counts
