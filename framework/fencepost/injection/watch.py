"""Watches every link of a run, whether a fault changed it or not.

A toxiproxy may stop, or another program may remove or change a proxy. No fault explains that, so it
is an event of the run: what was judged since the link was last seen as desired is unknown.

See docs/decisions/18-link-watch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, final

from fencepost.events import LinkFailed
from fencepost.model.clock import SECOND
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.system.topology import Link

EVERY_NS = SECOND
"""How often the links of each slot are checked."""


class Watched(Protocol):
    """Links that can be checked and repaired, by the slot that dials them."""

    @property
    def sources(self) -> Sequence[str]:
        """The slots whose links exist."""
        ...

    def repaired(self, source: str) -> Mapping[str, str]:
        """What was wrong with the links of a slot, by link; each is as desired again."""
        ...


@final
class LinkWatch:
    """Checks the links of one slot after the other, so that each check is short."""

    def __init__(self, links: Watched, silent: Callable[[], Sequence[Link]], now_ns: int) -> None:
        """`silent` probes the links that should be healthy: those that do not answer."""
        self._links = links
        self._silent = silent
        self._since_ns = now_ns
        self._seen: dict[str, int] = {}
        """slot -> when its links were last seen as desired."""
        self._due_ns = now_ns + EVERY_NS

    def check(self, now_ns: int) -> Sequence[LinkFailed]:
        """Checks the slot whose turn it is, if it is time."""
        sources = self._links.sources
        if now_ns < self._due_ns or not sources:
            return ()
        # Each slot has its turn once in `EVERY_NS`. A check asks one toxiproxy only, since the
        # harness reads no events meanwhile.
        self._due_ns = now_ns + EVERY_NS // len(sources)
        return self._check(min(sources, key=lambda one: self._seen.get(one, 0)), now_ns)

    def at_end(
        self, now_ns: int, ready: bool, lives: Callable[[str], bool]
    ) -> Sequence[LinkFailed]:
        """Checks every slot; and if the cluster is ready, that every link carries an answer.

        When a link last did is not known. A link has not failed if, by now, no process `lives` in
        the slot at one of its ends.
        """
        # The proxies first: this repairs what differs, and the probe below then finds links in
        # their states.
        found = [one for source in self._links.sources for one in self._check(source, now_ns)]
        for link in self._silent() if ready else ():
            # Asked after the probe: a node that ended during it did not answer, and its end is an
            # event already.
            if lives(link.source) and lives(link.target):
                what = "nothing answered through it"
                # Since the beginning of the run: a link that carries nothing, while its proxy is as
                # desired, may never have carried anything.
                found.append(LinkFailed(link=str(link), what=what, since_ns=0))
        return found

    def _check(self, source: str, now_ns: int) -> Sequence[LinkFailed]:
        # The interval of doubt begins when the links were last seen as desired, not when the
        # difference was found: the link may have failed just after that look.
        since_ns = self._seen.get(source, self._since_ns)
        self._seen[source] = now_ns
        try:
            wrong = self._links.repaired(source)
        except EnvironmentFailed as failed:  # if it is gone, the runtime learns of its end, too
            wrong = {f"every link of {source}": str(failed)}
        return [LinkFailed(link=link, what=what, since_ns=since_ns) for link, what in wrong.items()]
