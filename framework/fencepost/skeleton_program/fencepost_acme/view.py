"""The state of the cluster by its events, and when it is ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import final

from fencepost import Event, Layout, View
from fencepost_acme.events import PeerChanged, ServerStarted, TakeEnded
from fencepost_acme.observer import ServerObserved

SERVER = "server"
"""The role of the servers."""


@final
class AcmeView:
    """A fold of the events; conditions, faults and `missing` read it. See `fencepost.Fold`."""

    def __init__(self) -> None:
        self.serving: set[str] = set()
        """Processes that serve."""
        self.observed: set[str] = set()
        """Servers that were observed since their last start."""
        self.answers: set[tuple[str, str]] = set()
        """(process, peer): the peer answers the process."""
        self.taken: Counter[tuple[str, str]] = Counter()
        """(client, server) -> how many tokens of the server the client has got."""

    def apply(self, view: View, event: Event) -> None:
        """Applies one event."""
        match event.body:
            case ServerStarted():
                self.serving.add(event.process)
                self.observed.discard(view.slot_of.get(event.process, ""))
            case ServerObserved(server=server):
                self.observed.add(server)
            case PeerChanged(peer=peer, answers=True):
                self.answers.add((event.process, peer))
            case PeerChanged(peer=peer):
                self.answers.discard((event.process, peer))
            case TakeEnded(outcome="ok", server=server):
                self.taken[event.process, server] += 1


def missing(view: View, layout: Layout) -> Sequence[str]:
    """A sentence for each thing that a ready cluster has and this one lacks."""
    state = view.of(AcmeView)
    lacks: list[str] = []
    servers = [slot.name for slot in layout.of(SERVER)]
    for server in servers:
        process = view.newest.get(server, "")
        if process not in view.alive or process not in state.serving:
            lacks.append(f"{server} does not serve")
        else:
            peers = [peer for peer in servers if peer != server]
            silent = [peer for peer in peers if (process, peer) not in state.answers]
            lacks += [f"{peer} does not answer {server}" for peer in silent]
            if server not in state.observed:
                lacks.append(f"{server} was not observed since it started")
    return lacks
