"""The links of an attached cluster: proxies of somebody else's toxiproxy, and what we add to them.

They are the user's. So a proxy is never created, disabled, changed or deleted; toxics of ours are
added and removed, and what else the server shows must be at the end as it was found. A server that
hangs is not replaced, as one of our own is: the change fails with a sentence, and the guard
(`fencepost.runtimes.attached.guard`) removes our toxics once it answers.

A plain server has no toxic `cut`. Its `timeout` of 0 drops what is sent as well, but passes the end
of a connection on, and closes the connections that met it when it is removed.

Somebody else may change a proxy meanwhile. The watch finds that: what was judged since the last
look is unknown. Toxics of ours that are gone are added again; what was changed otherwise is the
user's, stays, and is not reported again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fencepost.injection.attached_server import ShownProxy, ShownToxic, TheirToxiproxy
from fencepost.injection.links import Bytes, parse_metrics
from fencepost.injection.probes import End
from fencepost.injection.toxics import CUT, DOWNSTREAM, UPSTREAM, Toxic, toxics
from fencepost.model.errors import EnvironmentFailed, UsageError
from fencepost.model.faults.hold import Hold, HoldCounts
from fencepost.model.runtime import HEALTHY, LinkState
from fencepost.model.system.attachment import OURS, Attachment, end_of
from fencepost.model.system.topology import Layout, Link, Slot

PLAIN_CUT = ("timeout", {"timeout": 0})
"""The toxic that cuts on a server without our own: its kind and attributes."""


def as_shown(toxic: Toxic) -> ShownToxic:
    """A toxic as somebody else's server has it, under a name of ours."""
    kind, attributes = (toxic.kind, dict(toxic.attributes))
    if kind == CUT:
        kind, attributes = PLAIN_CUT[0], dict(PLAIN_CUT[1])
    return ShownToxic(
        f"{OURS}{toxic.name}", kind, toxic.stream, 1.0, json.dumps(attributes, sort_keys=True)
    )


def changed(found: ShownProxy, now: ShownProxy | None) -> str:
    """How a proxy differs from what was found, apart from toxics of ours; empty if it does not."""
    if now is None:
        return "its proxy was removed"
    was, there = found.theirs, now.theirs
    if was.enabled != there.enabled:
        return "its proxy was enabled" if there.enabled else "its proxy was disabled"
    for what in ("listen", "upstream"):
        if getattr(was, what) != getattr(there, what):
            return f"its proxy got another {what} address, {getattr(there, what)}"
    if was.toxics != there.toxics:
        names = [one.name for one in there.toxics]
        return f"somebody changed its toxics: {', '.join(names) or 'none'} now"
    return ""


@dataclass(frozen=True, slots=True)
class _Wrong:
    """What is wrong with the proxy of a link: by others, and by the lack of toxics of ours."""

    theirs: str
    ours: str

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.theirs, self.ours)))


@final
class AttachedLinks:
    """The links of a layout, on the user's server; see `fencepost.injection.links.Links`."""

    def __init__(
        self, attachment: Attachment, layout: Layout, server: TheirToxiproxy | None
    ) -> None:
        """Without links it needs no server. Raises EnvironmentFailed if the server does not answer,
        lacks a proxy, has one disabled, or has toxics of ours."""
        self._attachment = attachment
        self._layout = layout
        self._server = server
        self._wanted = dict.fromkeys(layout.links, HEALTHY)
        self._proxy = {link: attachment.proxied(link).proxy for link in layout.links}
        self._found: dict[str, ShownProxy] = {}
        """Each proxy as it was found, and after that as others have changed it."""
        if server is not None:
            self._found = dict(usable(server, sorted(set(self._proxy.values()))))

    def begin(self, slots: Iterable[Slot]) -> None:
        """Nothing: the proxies are there."""

    def open(self, slots: Iterable[Slot]) -> None:
        """Nothing: the proxies are there."""

    @property
    def processes(self) -> frozenset[str]:
        """None: the server is no process of the run."""
        return frozenset()

    def state(self, link: Link) -> LinkState:
        """The desired state of the link."""
        return self._wanted[link]

    def end(self, link: Link) -> End:
        """Where the harness reaches the link's proxy."""
        return end_of(self._attachment.proxied(link).listen)

    def accepted_at(self, link: Link) -> int:
        """The port at which the link's proxy listens, where the server is."""
        return int(self._found[self._proxy[link]].listen.rpartition(":")[2])

    def apply(self, wanted: Mapping[Link, LinkState]) -> Sequence[str]:
        """See `LinkControl.apply`; nothing is ever repaired on the way."""
        for state in wanted.values():
            toxics(state)
        # All pairs before the first request: a part of a partition is another fault.
        self._wanted.update(wanted)
        shown = self._shown()
        for link in wanted:
            proxy = shown.get(self._proxy[link])
            if proxy is None:
                raise EnvironmentFailed(f"the proxy {self._proxy[link]} of {link} was removed")
            self._bring(link, proxy)
        return ()

    def differences(self, links: Sequence[Link]) -> Sequence[str]:
        """See `LinkControl.differences`."""
        shown = self._shown()
        wrong = {link: self._wrong(link, shown) for link in links}
        return [f"{link.source} -> {link.target}: {one}" for link, one in wrong.items() if str(one)]

    def bytes_passed(self, links: Sequence[Link]) -> Mapping[tuple[Link, str], Bytes]:
        """See `LinkControl.bytes_passed`: none from a server that was started without
        `-proxy-metrics`."""
        text = self._server.metrics() if self._server is not None and links else ""
        metrics = parse_metrics(text)
        if not metrics:
            return {}
        return {
            (link, stream): Bytes(
                metrics.get(("received", self._proxy[link], stream), 0),
                metrics.get(("sent", self._proxy[link], stream), 0),
            )
            for link in links
            for stream in (UPSTREAM, DOWNSTREAM)
        }

    @property
    def holding(self) -> Sequence[Link]:
        """None: these links hold no messages."""
        return ()

    def hold(self, link: Link, what: Hold) -> None:
        """Raises UsageError: see `Attachment.lacks`."""
        raise UsageError(f"{link} holds no messages: its toxiproxy is not Fencepost's own")

    def release(self, link: Link) -> None:
        """Nothing: nothing is held."""

    def held(self, link: Link) -> HoldCounts:
        """No message."""
        return HoldCounts()

    @property
    def sources(self) -> Sequence[str]:
        """The slots that dial through proxies."""
        return sorted({link.source for link in self._layout.links})

    def repaired(self, source: str) -> Mapping[str, str]:
        """See `Watched.repaired`; what others changed stays as they want it."""
        shown, said = self._shown(), {}
        for link in (one for one in self._layout.links if one.source == source):
            wrong = self._wrong(link, shown)
            if not str(wrong):
                continue
            said[str(link)] = str(wrong)
            now = shown.get(self._proxy[link])
            if now is not None:
                self._found[now.name] = now.theirs
                self._bring(link, now)
        return said

    def _shown(self) -> Mapping[str, ShownProxy]:
        return self._server.proxies() if self._server is not None else {}

    def _want(self, link: Link) -> frozenset[ShownToxic]:
        return frozenset(as_shown(one) for one in toxics(self._wanted[link]))

    def _wrong(self, link: Link, shown: Mapping[str, ShownProxy]) -> _Wrong:
        name = self._proxy[link]
        now = shown.get(name)
        # One that was removed is reported each time: nothing of it is left to get used to.
        theirs = changed(self._found[name], now)
        have = frozenset(one for one in (now.toxics if now else ()) if one.ours)
        lacks = self._want(link) - have if now else ()
        more = have - self._want(link) if now else ()
        ours = [f"it lacks {one.name}" for one in sorted(lacks)]
        ours += [f"it has {one.name} still" for one in sorted(more)]
        return _Wrong(theirs, "; ".join(ours))

    def _bring(self, link: Link, proxy: ShownProxy) -> None:
        """Removes and adds toxics of ours until the link is in its desired state."""
        assert self._server is not None
        have = frozenset(one for one in proxy.toxics if one.ours)
        want = self._want(link)
        for toxic in sorted(have - want):
            self._server.remove(proxy.name, toxic.name)
        for toxic in sorted(want - have):
            self._server.add(proxy.name, toxic)


def usable(server: TheirToxiproxy, names: Sequence[str]) -> Mapping[str, ShownProxy]:
    """These proxies as they are now.

    Raises EnvironmentFailed if one is missing or disabled, or has a toxic of ours, which another
    run has added.
    """
    shown = server.proxies()
    for name in names:
        if name not in shown:
            known = ", ".join(shown) or "none"
            raise EnvironmentFailed(
                f"the toxiproxy at {server.url} has no proxy {name}; it has: {known}"
            )
        if not shown[name].enabled:
            raise EnvironmentFailed(f"the proxy {name} is disabled: the cluster is cut already")
        if left := [one.name for one in shown[name].toxics if one.ours]:
            raise EnvironmentFailed(
                f"the proxy {name} has {', '.join(left)} of another run: it goes on, or "
                f"`fencepost doctor --toxiproxy {server.url} --reap` removes it"
            )
    return {name: shown[name].theirs for name in names}
