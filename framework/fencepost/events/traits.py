"""What the framework may know of any system's events: authority, client operations, and origins.

*Authority over something is held in an epoch, and a fence takes it away.* An event kind states such
facts by these methods, in its system's own terms. The explainer, the page and the Spark job use
nothing else. Each trait is a protocol of one method; a kind has the ones that fit it.

See docs/decisions/02-kinds.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol, TypeGuard, runtime_checkable

from msgspec import Struct

from fencepost.events.envelope import Event


class Change(StrEnum):
    """What happened to an authority. What explanations and pages make of each is in the
    documentation, "How a failure is explained"."""

    GAINED = "gained"
    """The holder has it from now on: it begins a band on the page's timeline. That another holder
    had it before is a loss that may explain a failure."""
    LOST = "lost"
    """The holder has it no more: it ends the band, and may explain a failure."""
    REFUSED = "refused"
    """The holder asked for it, or acted by it, and was refused: a mark, and no loss. It is a step
    of explanations."""
    NOTED = "noted"
    """The event bears on the authority but does not change it (a new leader made a log
    truncate): a step of explanations. Only with a `state` does it begin a band, without authority;
    no page takes it for the cause of a failure."""


OWN = "own state"
"""The scope of what a process knows or stores itself; violations of its own slot concern it."""


@dataclass(frozen=True, slots=True)
class Authority:
    """One change of authority.

    `scope` is what the authority is over, with the same words in all events about it (`partition
    orders-0`, `leader`, `lease 7`, `broker 2`). `holder` is the process that gained, lost or
    was refused it (empty: the process that wrote the event; None: not known). `node` is the
    holder in the words of a scope (`broker 2`), if only that is known: a third party reports
    the holder, such as a sentinel that promotes a server. The process that has given itself
    that name by `node.started` (its role and id) is the holder then. `epoch` orders the holders
    of one scope (-1: not recorded). `state` names the state that the holder is in from now on
    (`active`, `leader`), for a band on a page. `wide` is true if anything in the cluster may
    depend on this authority, as on the leader. Of consecutive changes with the same `matter`
    (renewals of a lease), an explanation shows the newest; without a matter each is shown.
    """

    scope: str
    change: Change
    epoch: int = -1
    holder: str | None = ""
    node: str = ""
    state: str = ""
    wide: bool = False
    matter: str = ""


@cache
def by_harness(kind: type[Struct]) -> bool:
    """Whether only the harness can know what events of this kind say: what it did, and what it saw
    of processes. Such a kind has a class variable `by_harness`. From anybody else it is damage, and
    no rule gets it: a node that says that it was struck, or names a bound, excuses itself."""
    return getattr(kind, "by_harness", False) is True


@runtime_checkable
class AuthorityChange(Protocol):
    """A kind that records changes of authority."""

    def authority(self) -> Sequence[Authority]:
        """The changes that this event records."""
        ...


@runtime_checkable
class Concerning(Protocol):
    """A kind that is about scopes without changing their holders.

    `concerns` lists the scopes in the words of `Authority.scope`; `process NAME` for a process that
    the event names; and `slot NAME` for a slot whose process the writer may not know. The
    explanation of a violation at such an event looks for authority over these scopes, and for
    faults that were injected into these slots.
    """

    def concerns(self) -> Sequence[str]:
        """The scopes, processes and slots that the event is about."""
        ...


class OperationOutcome(StrEnum):
    """The result of a client's operation: certainly done, certainly not done, or unknown."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Operation:
    """One end of a client's operation.

    `name` is unique in a run and the same at both ends; `what` is the kind of operation (`put`,
    `produce`); `subject` is its object (`orders-0`, `key a`). `outcome` is None at the invocation.
    """

    name: str
    what: str
    subject: str
    outcome: OperationOutcome | None = None
    error: str = ""


@runtime_checkable
class OperationEvent(Protocol):
    """A kind that records the beginning or the end of clients' operations."""

    def client_operations(self) -> Sequence[Operation]:
        """The operations that begin or end with this event."""
        ...


@runtime_checkable
class Answering(Protocol):
    """A kind by which a client records what became of a request that it sent to one node."""

    def answered_by(self) -> tuple[str, int] | None:
        """The slot of the node that answered, and when the request was sent; None: no answer came.

        Between that time and this event, the node's process ran.
        """
        ...


@runtime_checkable
class Worded(Protocol):
    """A kind that has its own sentence, for a terminal, a page and an explanation."""

    def sentence(self) -> str:
        """The event in words, in one line, without the process that wrote it."""
        ...


class Nearest(StrEnum):
    """Which of several origins with one name an event came from."""

    LATEST = "latest"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Origin:
    """A name that two events share: one of them is its source, the other came from it.

    It is for what `Event.cause` cannot name because the writer does not know the event: the answer
    that granted a lease (`("answer", client)`, the latest one before), or the record that a node
    replayed (`("record", 17)`, by the process that first reported it).
    """

    name: Hashable
    nearest: Nearest = Nearest.LATEST


@runtime_checkable
class Sourced(Protocol):
    """A kind that names the origins it is a source of, and the ones it came from.

    Both methods take the name of the process that wrote the event.
    """

    def source_of(self, process: str) -> Sequence[Hashable]:
        """The names of the origins that this event is."""
        ...

    def came_from(self, process: str) -> Sequence[Origin]:
        """The origins from which this event came."""
        ...


@cache
def _has(kind: type[Struct], method: str) -> bool:
    return callable(getattr(kind, method, None))


def changes_authority(body: Struct) -> TypeGuard[AuthorityChange]:
    """As `isinstance(body, AuthorityChange)`.

    It is asked of every event of a run, so the answer is found once for each kind.
    """
    return _has(type(body), "authority")


def has_concerns(body: Struct) -> TypeGuard[Concerning]:
    """As `isinstance(body, Concerning)`."""
    return _has(type(body), "concerns")


def tells_operations(body: Struct) -> TypeGuard[OperationEvent]:
    """As `isinstance(body, OperationEvent)`."""
    return _has(type(body), "client_operations")


def tells_answers(body: Struct) -> TypeGuard[Answering]:
    """As `isinstance(body, Answering)`."""
    return _has(type(body), "answered_by")


def is_worded(body: Struct) -> TypeGuard[Worded]:
    """As `isinstance(body, Worded)`."""
    return _has(type(body), "sentence")


def is_sourced(body: Struct) -> TypeGuard[Sourced]:
    """As `isinstance(body, Sourced)`."""
    kind = type(body)
    return _has(kind, "source_of") and _has(kind, "came_from")


def shared_record(event: Event) -> Hashable:
    """The name that events of several processes share because they report one fact, such as a
    record that each process replays.

    None for an event that only its own process can report.
    """
    if is_sourced(event.body):
        for origin in event.body.came_from(event.process):
            if origin.nearest is Nearest.FIRST:
                return origin.name
    return None
