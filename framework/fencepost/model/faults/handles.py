"""What a fault needs of the cluster that it breaks, where that is not Fencepost's own.

On a cluster that Fencepost started every fault has what it needs. On one that runs already
(`fencepost.model.system.attachment`) the file says what there is, and a fault without it is refused
by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

from fencepost.model.faults.fault import FaultFactory

F = TypeVar("F", bound=FaultFactory)
_NEEDS = "fencepost_needs"


class Handle(StrEnum):
    """A way to take hold of a part of a cluster."""

    LINKS = "a proxy"
    PEERS = "a proxy between two nodes"
    PROCESS = "a process"
    START = "a way to start a node again"
    DISK = "a disk"
    SECOND = "a second process with a node's id"
    FRAMES = "single messages"
    POWER = "a machine's power"


@runtime_checkable
class Limited(Protocol):
    """A runtime on which some faults may be impossible, since processes or links are somebody
    else's."""

    @property
    def lacks(self) -> Mapping[Handle, str]:
        """The kinds of handle that nothing of the run has, each with the reason."""
        ...

    def check_links(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Raises UsageError for two slots that would go on talking past any fault of links."""
        ...

    @property
    def left(self) -> Sequence[str]:
        """Once it is closed: what is not as it was before the run, a sentence each."""
        ...


def needs(*handles: Handle) -> Callable[[F], F]:
    """Says what the faults of a factory need. A factory that says nothing is tried, and the runtime
    refuses what it cannot do."""

    def said(factory: F) -> F:
        setattr(factory, _NEEDS, handles)
        return factory

    return said


def why_not(factory: FaultFactory, lacks: Mapping[Handle, str]) -> str:
    """Why the faults of a factory cannot be injected where these handles lack; else empty."""
    wanted: tuple[Handle, ...] = getattr(factory, _NEEDS, ())
    return next((lacks[one] for one in wanted if one in lacks), "")
