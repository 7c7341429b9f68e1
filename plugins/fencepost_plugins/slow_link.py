"""Links that delay or throttle data, without losing a byte.

The delay is added to every chunk of a stream: it imitates a long distance, not a queue that
overflows, packet loss or reordering. The proxy itself draws the jitter, so no seed repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import final

from fencepost import (
    HEALTHY,
    FaultFactory,
    Handle,
    Injected,
    Link,
    LinkState,
    Runtime,
    UsageError,
    hookimpl,
    needs,
)
from fencepost_plugins.targets import Names, as_names, find_slots, once_in_use

MOST_LATENCY_MS = 10_000
"""A proxy that holds bytes for much longer does not answer when the delay is to be removed."""


@final
@dataclass(frozen=True, slots=True)
class SlowLink:
    """Slows every link that a source dials to a target; both directions of it."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    state: LinkState
    name: str = "slow_link"

    def inject(self, runtime: Runtime) -> Injected:
        """The receipt is true if every link answers as late as it should, and one was in use.

        Raises UsageError if no link joins the nodes.
        """
        find_slots(runtime.layout, (*self.sources, *self.targets))
        links = [
            link
            for link in runtime.layout.links
            if link.source in self.sources and link.target in self.targets
        ]
        if not links:
            raise UsageError("the fault 'slow_link' slows nothing: no link joins those nodes")

        targets = tuple(sorted({*self.sources, *self.targets}))
        slowed = runtime.set_links(links, self.state)
        directions = frozenset(pair for link in links for pair in _both_ways(link))
        heal = partial(runtime.set_links, links, HEALTHY)
        measure = once_in_use(runtime, links, slowed)
        return Injected(targets, slowed, heal, measure, directions)

    def arguments(self) -> Mapping[str, object]:
        return {
            "sources": list(self.sources),
            "targets": list(self.targets),
            "latency_ms": self.state.latency_ms,
            "jitter_ms": self.state.jitter_ms,
            "rate_kb": self.state.rate_kb,
        }


def _both_ways(link: Link) -> tuple[tuple[str, str], tuple[str, str]]:
    return (link.source, link.target), (link.target, link.source)


@needs(Handle.LINKS)
def slow_link(
    sources: Names, targets: Names, latency_ms: int = 0, jitter_ms: int = 0, rate_kb: int = 0
) -> SlowLink:
    """Delays data by `latency_ms` each way, plus or minus `jitter_ms`, or throttles it."""
    if not 0 <= jitter_ms <= latency_ms <= MOST_LATENCY_MS or rate_kb < 0:
        raise UsageError(
            f"slow_link takes 0 <= jitter_ms <= latency_ms <= {MOST_LATENCY_MS} and a rate_kb >= 0"
        )
    if not latency_ms and not rate_kb:
        raise UsageError("slow_link needs a latency_ms or a rate_kb")
    state = LinkState(latency_ms=latency_ms, jitter_ms=jitter_ms, rate_kb=rate_kb)
    return SlowLink(as_names(sources), as_names(targets), state)


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {"slow_link": slow_link}
