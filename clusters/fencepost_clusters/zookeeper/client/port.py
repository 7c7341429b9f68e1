"""A node's requests to ZooKeeper, and the answers, as values.

A node has one session at a time. Each request in the session has a number, and its answer has the
same number. A session begins, may be suspended and resumed, and ends once. A request belongs to its
session: it is never sent again in another. Answers, watch events and changes of the session come in
the order in which the connection brought them.

A watch fires once. A suspended session has no watches: set them again once it is connected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

ANY = -1
"""In place of a version: any version."""


@dataclass(frozen=True, slots=True)
class Create:
    """Makes a node. An ephemeral one ends with its session.

    The name of a sequential one ends in ten digits, the number of nodes that its parent ever had.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a node without children, if it has this version of its data."""

    path: str
    version: int = ANY


@dataclass(frozen=True, slots=True)
class SetData:
    """Replaces a node's data, if they have this version."""

    path: str
    data: bytes
    version: int = ANY


@dataclass(frozen=True, slots=True)
class Check:
    """Checks a node's version; in a `Multi` only."""

    path: str
    version: int = ANY


Write = Create | Delete | SetData | Check


@dataclass(frozen=True, slots=True)
class Multi:
    """Writes that are carried out together, in one transaction, or not at all."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """Asks for a node's stat; a watch is set on a node that is missing, too."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetData:
    """Reads a node's data; a watch is set only if the node exists."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetChildren:
    """Lists a node's children; a watch is set only if the node exists."""

    path: str
    watch: bool = False


Request = Create | Delete | SetData | Multi | Exists | GetData | GetChildren


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """ZooKeeper's metadata of a node.

    `czxid`, `mzxid` and `pzxid` are the transactions that made it, set its data, and changed the
    list of its children. `version` counts changes of the data, `cversion` changes of that list.
    `owner` is the session of an ephemeral node, otherwise 0.
    """

    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    owner: int
    length: int
    children: int


@dataclass(frozen=True, slots=True)
class Created:
    """The node's full path; no stat comes from within a `Multi`."""

    path: str
    stat: Stat | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The node is gone."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """The data are replaced."""

    stat: Stat


@dataclass(frozen=True, slots=True)
class Checked:
    """The node had that version."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of `Exists`; None: no node."""

    stat: Stat | None


@dataclass(frozen=True, slots=True)
class Data:
    """The result of `GetData`."""

    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Children:
    """The result of `GetChildren`: the children's names."""

    names: tuple[str, ...]
    stat: Stat


class Reason(StrEnum):
    """Why ZooKeeper refuses a request."""

    NO_NODE = "no such node"
    NODE_EXISTS = "the node exists"
    BAD_VERSION = "the data have another version"
    NOT_EMPTY = "the node has children"
    NO_CHILDREN_FOR_EPHEMERALS = "an ephemeral node can have no children"
    BAD_ARGUMENTS = "that is no path"
    ROLLED_BACK = "a later write of the multi was refused"
    AFTER_REFUSED = "an earlier write of the multi was refused"
    OTHER = "another error"


@dataclass(frozen=True, slots=True)
class Refused:
    """The request changed nothing; `said` is the client library's text for any other error."""

    why: Reason
    said: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The connection was lost before the answer: the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class Unsent:
    """There was no connection: the request is not carried out, now or later."""


WriteResult = Created | Deleted | DataSet | Checked | Refused


@dataclass(frozen=True, slots=True)
class Done:
    """The results of a `Multi`, one per write; if one write is refused, all are."""

    results: tuple[WriteResult, ...]


Answer = (
    Created | Deleted | DataSet | Found | Data | Children | Done | Refused | Unknown | Unsent
)  # fmt: skip


class Watch(StrEnum):
    """The object of a watch: `Exists` and `GetData` watch a node, `GetChildren` its children."""

    NODE = "node"
    CHILDREN = "children"


class ZnodeChange(StrEnum):
    """The change that fired a watch."""

    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the request with this number."""

    number: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Fired:
    """A watch fired; it is set no longer."""

    path: str
    watch: Watch
    change: ZnodeChange


@dataclass(frozen=True, slots=True)
class Connected:
    """The session exists, or is resumed: with the same `session` as before its suspension."""

    session: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection is lost, and with it all watches. The server may have ended the session
    already, or may end it at any time."""


class End(StrEnum):
    """How a session ended, as its client saw it."""

    CLOSED = "closed"
    EXPIRED = "expired by the server"
    GIVEN_UP = "given up: no connection for as long as its timeout"
    NEVER_MADE = "never made: no server answered"


@dataclass(frozen=True, slots=True)
class Ended:
    """The session is over. Its ephemeral nodes are deleted, or will be by its timeout."""

    how: End


SessionEvent = Answered | Fired | Connected | Suspended | Ended
Deliver = Callable[[SessionEvent], None]


class Session(Protocol):
    """One session; its answers and changes are delivered as `SessionEvent`, in order, `Ended`
    last."""

    def ask(self, number: int, request: Request) -> None:
        """Sends a request; every number is answered once, before `Ended` at the latest."""
        ...

    def close(self) -> None:
        """Ends the session, and its ephemeral nodes if a server can be reached."""
        ...


def is_path(path: str) -> bool:
    """Whether a server accepts this as the path of a node.

    A server accepts a sequential node whose name is its number alone, by a path that ends in a
    slash. This refuses it, since within a multi kazoo removes the slash, and the node would get
    another parent.
    """
    if path == "/":
        return True
    root, *names = path.split("/")
    printable = all(" " <= letter < "\x7f" or letter > "\x9f" for letter in path)
    return not root and bool(names) and printable and not {"", ".", ".."} & {*names}


def paths_are_good(request: Request) -> bool:
    """Whether a server accepts all paths of a request; the root is never deleted."""
    asked = request.writes if isinstance(request, Multi) else (request,)
    return all(
        is_path(one.path) and not (isinstance(one, Delete) and one.path == "/") for one in asked
    )
