"""The state of ZooKeeper's servers by their events: which of them serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from fencepost import Event, Layout, ProcessExited, View
from fencepost_clusters.zookeeper.events import ServerLooks, ServerServes
from fencepost_clusters.zookeeper.log_parser import ROLE


@final
class ServersView:
    """See the module; processes are named as in the events."""

    def __init__(self) -> None:
        self.serving: dict[str, ServerServes] = {}
        """process -> how it serves."""

    def apply(self, view: View, event: Event) -> None:
        """See `Fold`."""
        match event.body:
            case ServerServes() as serves:
                self.serving[event.process] = serves
            case ServerLooks():
                self.serving.pop(event.process, None)
            case ProcessExited(ended=ended):
                self.serving.pop(ended, None)


def serving(view: View, layout: Layout) -> Sequence[str]:
    """The names of the slots whose servers serve clients."""
    served = view.of(ServersView).serving
    return [slot.name for slot in layout.of(ROLE) if view.newest.get(slot.name, "") in served]


def missing(view: View, layout: Layout) -> Sequence[str]:
    """What the servers lack to be ready, a sentence each; see `System.missing`."""
    serving, lacks = view.of(ServersView).serving, []
    for slot in layout.of(ROLE):
        process = view.newest.get(slot.name, "")
        if process not in view.alive:
            lacks.append(f"{slot.name} is dead")
        elif process not in serving:
            lacks.append(f"{slot.name} serves no client")
    return lacks
