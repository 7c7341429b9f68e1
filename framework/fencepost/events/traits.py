"""What the framework may know of any system's events: authority, operations, and where they came
from.

*Authority over something is held in an epoch, and a fence takes it away.* An event kind that has
one of these methods says so in its system's own terms, and the explainer, the page and the Spark
job use nothing else. Each is a protocol of one method: a kind has those that fit it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from fencepost.events.envelope import Event


class Change(StrEnum):
    """What happened to an authority."""

    GAINED = "gained"
    LOST = "lost"
    REFUSED = "refused"
    NOTED = "noted"
    """It bears on the authority and does not change it (a log was truncated by a new leader)."""


OWN = "own state"
"""The scope of what a process knows or stores itself; it concerns violations of its own slot."""


@dataclass(frozen=True, slots=True)
class Authority:
    """One change of authority.

    `scope` is what the authority is over, in words that are the same for all events about it
    (`partition orders-0`, `controller`, `lease 7`, `broker 2`); `holder` the process that gained,
    lost or was refused it (empty: the process that wrote the event; None: not known); `node` the
    holder in the words of a scope (`broker 2`), where only that is known; `epoch` orders the
    holders of one scope (-1: not told). `state` names the state that the holder is in
    from now on (`active`, `leader`), for a band on a page. `wide`: whatever happens in the cluster
    may depend on it, as on the controller. Of changes in a row with one `matter` an explanation
    shows the newest (renewals of a lease); without a matter each is shown.
    """

    scope: str
    change: Change
    epoch: int = -1
    holder: str | None = ""
    node: str = ""
    state: str = ""
    wide: bool = False
    matter: str = ""


@runtime_checkable
class AuthorityChange(Protocol):
    """A kind that tells of changes of authority."""

    def authority(self) -> Sequence[Authority]: ...


@runtime_checkable
class Concerning(Protocol):
    """A kind that is about scopes without changing who holds them.

    `concerns` lists them in the words of `Authority.scope`, `process NAME` for a process that it
    names, and `slot NAME` for a slot, of which its writer may not know the process. An explanation
    of a violation found at such an event looks for authority over these, and for faults that struck
    these slots.
    """

    def concerns(self) -> Sequence[str]: ...


class Outcome(StrEnum):
    """What became of a client's operation: certainly done, certainly not done, or open."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Operation:
    """One end of a client's operation.

    `name` is unique in a run and the same at both ends; `what` is the kind of operation (`put`,
    `produce`); `subject` what it was on (`orders-0`, `key a`). `outcome` is None where it was
    invoked.
    """

    name: str
    what: str
    subject: str
    outcome: Outcome | None = None
    error: str = ""


@runtime_checkable
class OperationEvent(Protocol):
    """A kind that tells that clients' operations began or ended."""

    def client_operations(self) -> Sequence[Operation]: ...


@runtime_checkable
class Worded(Protocol):
    """A kind that has its own sentence, for a terminal, a page and an explanation."""

    def sentence(self) -> str: ...


class Nearest(StrEnum):
    """Which of several origins of one name an event came from."""

    LATEST = "latest"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Origin:
    """A name that two events share: one is its source, others came from there.

    For what `Event.cause` cannot name, because the writer does not know which event it was: the
    answer that granted a lease (`("answer", client)`, the latest before it), or the record that a
    node replayed (`("record", 17)`, by the process that told of it first).
    """

    name: Hashable
    nearest: Nearest = Nearest.LATEST


@runtime_checkable
class Sourced(Protocol):
    """A kind that says which names it is a source of, and from which it came.

    Both take the process that wrote the event.
    """

    def source_of(self, process: str) -> Sequence[Hashable]: ...
    def came_from(self, process: str) -> Sequence[Origin]: ...


def shared_record(event: Event) -> Hashable:
    """The name of what several processes tell alike, such as a record that each of them replays.

    None for an event that only its own process can tell.
    """
    if isinstance(event.body, Sourced):
        for origin in event.body.came_from(event.process):
            if origin.nearest is Nearest.FIRST:
                return origin.name
    return None
