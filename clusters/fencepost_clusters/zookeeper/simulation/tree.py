"""A model of ZooKeeper: the tree of nodes, sessions and one-shot watches, without I/O or a clock.

It follows the source of ZooKeeper 3.9 (PrepRequestProcessor, DataTree, SessionTrackerImpl,
ExpiryQueue), and a test compares it with the real server. Every write takes a transaction id, even
one that is refused, and so do the beginning and the end of a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from fencepost_clusters.zookeeper.client.port import (
    ANY,
    Answer,
    Check,
    Checked,
    Children,
    Create,
    Created,
    Data,
    DataSet,
    Delete,
    Deleted,
    Done,
    Exists,
    Fired,
    Found,
    GetChildren,
    GetData,
    Multi,
    Reason,
    Refused,
    Request,
    SetData,
    Stat,
    Unsent,
    Watch,
    Write,
    WriteResult,
    ZnodeChange,
    paths_are_good,
)

ROOT = "/"


@dataclass(frozen=True, slots=True)
class Watched:
    """A watch of this session fired."""

    session: int
    fired: Fired


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    creates: int = 0
    """How many children it ever had; ZooKeeper stores this as its cversion and shows another
    number."""
    owner: int = 0
    children: frozenset[str] = frozenset()

    @property
    def stat(self) -> Stat:
        """The stat as clients see it: its cversion counts deletions of children, too."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=2 * self.creates - len(self.children),
            owner=self.owner,
            length=len(self.data),
            children=len(self.children),
        )


_EMPTY = _Node(data=b"", czxid=0, mzxid=0, pzxid=0, ctime_ms=0, mtime_ms=0)
_OWN: Mapping[str, _Node] = {
    ROOT: replace(_EMPTY, children=frozenset({"zookeeper"})),
    "/zookeeper": replace(_EMPTY, children=frozenset({"config", "quota"})),
    "/zookeeper/config": _EMPTY,
    "/zookeeper/quota": _EMPTY,
}
"""ZooKeeper's own nodes, which no transaction made and no parent counts."""


@dataclass(frozen=True, slots=True)
class _Session:
    timeout_ms: int
    expires_ms: int


@dataclass(slots=True)
class _Transaction:
    """Changes of nodes that are not applied yet, and their notices to watches; None: removed."""

    base: Mapping[str, _Node]
    zxid: int
    now_ms: int
    session: int
    changed: dict[str, _Node | None] = field(default_factory=dict)
    changes: list[tuple[str, ZnodeChange]] = field(default_factory=list)

    def get(self, path: str) -> _Node | None:
        return self.changed[path] if path in self.changed else self.base.get(path)


@final
class Tree:
    """One ZooKeeper; times are milliseconds of any one clock.

    `tick_ms` is the server's tick: sessions end at multiples of it. `zxid` is the last transaction
    before its start.
    """

    def __init__(self, tick_ms: int = 500, zxid: int = 0) -> None:
        self._tick_ms = tick_ms
        self.zxid = zxid
        self._nodes: dict[str, _Node] = dict(_OWN)
        self._sessions: dict[int, _Session] = {}
        self._watches: dict[tuple[Watch, str], set[int]] = {}

    @property
    def sessions(self) -> Mapping[int, int]:
        """The sessions that have not ended, in order, each with its timeout in milliseconds."""
        return {session: known.timeout_ms for session, known in sorted(self._sessions.items())}

    def begin(self, session: int, timeout_ms: int, now_ms: int) -> None:
        """Begins a session with an id that no session ever had."""
        self.zxid += 1
        self._sessions[session] = _Session(timeout_ms, self._expiry(timeout_ms, now_ms))

    def hear(self, session: int, now_ms: int) -> bool:
        """A sign of life: a ping, or a new connection; False if the session has ended."""
        known = self._sessions.get(session)
        if known is None:
            return False
        self._sessions[session] = replace(known, expires_ms=self._expiry(known.timeout_ms, now_ms))
        return True

    def disconnect(self, session: int) -> None:
        """The session's connection is lost, and its watches with it."""
        for watchers in self._watches.values():
            watchers.discard(session)

    def next_expiry_ms(self) -> int | None:
        """When the next session ends without a further sign of life; None without a session."""
        return min((known.expires_ms for known in self._sessions.values()), default=None)

    def expire(self, now_ms: int) -> Sequence[Watched]:
        """Ends each session that was silent for its timeout, in a transaction of its own."""
        due = sorted(
            (known.expires_ms, session)
            for session, known in self._sessions.items()
            if known.expires_ms <= now_ms
        )
        return [fired for _, session in due for fired in self.end(session)]

    def end(self, session: int) -> Sequence[Watched]:
        """Ends a session: deletes its ephemeral nodes in one transaction, and its watches."""
        if self._sessions.pop(session, None) is None:
            return ()
        self.disconnect(session)
        self.zxid += 1
        made = _Transaction(self._nodes, self.zxid, 0, session)
        for path in sorted(path for path, node in self._nodes.items() if node.owner == session):
            _remove(made, path)
        return self._commit(made)

    def request(
        self, session: int, request: Request, now_ms: int
    ) -> tuple[Answer, Sequence[Watched]]:
        """Carries out a request; returns the answer, and the watches that it fired.

        `Unsent` if the session has ended.
        """
        if not paths_are_good(request):
            return Refused(Reason.BAD_ARGUMENTS), ()
        if not self.hear(session, now_ms):
            return Unsent(), ()
        match request:
            case Exists() | GetData() | GetChildren():
                return self._read(session, request), ()
            case Multi(writes):
                self.zxid += 1
                return self._multi(writes, session, now_ms)
            case _:
                self.zxid += 1
                made = _Transaction(self._nodes, self.zxid, now_ms, session)
                result = _write(made, request)
                assert not isinstance(result, Checked)
                return result, () if isinstance(result, Refused) else self._commit(made)

    def _multi(
        self, writes: Sequence[Write], session: int, now_ms: int
    ) -> tuple[Answer, Sequence[Watched]]:
        made = _Transaction(self._nodes, self.zxid, now_ms, session)
        results: list[WriteResult] = []
        for write in writes:
            results.append(_write(made, write))
            if isinstance(results[-1], Refused):
                before = [Refused(Reason.ROLLED_BACK)] * (len(results) - 1)
                after = [Refused(Reason.AFTER_REFUSED)] * (len(writes) - len(results))
                return Done((*before, results[-1], *after)), ()
        # An answer to a multi has no stat of created nodes.
        without = (Created(one.path, None) if isinstance(one, Created) else one for one in results)
        return Done(tuple(without)), self._commit(made)

    def _read(self, session: int, request: Exists | GetData | GetChildren) -> Answer:
        node = self._nodes.get(request.path)
        watch = Watch.CHILDREN if isinstance(request, GetChildren) else Watch.NODE
        if request.watch and (node is not None or isinstance(request, Exists)):
            self._watches.setdefault((watch, request.path), set()).add(session)
        match request:
            case Exists():
                return Found(node.stat if node else None)
            case _ if node is None:
                return Refused(Reason.NO_NODE)
            case GetData():
                return Data(node.data, node.stat)
            case GetChildren():
                return Children(tuple(sorted(node.children)), node.stat)

    def _commit(self, made: _Transaction) -> Sequence[Watched]:
        for path, node in made.changed.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node
        return [fired for path, change in made.changes for fired in self._fire(path, change)]

    def _fire(self, path: str, change: ZnodeChange) -> Iterable[Watched]:
        """A deletion fires both kinds of watch, other changes one."""
        kinds = (Watch.NODE, Watch.CHILDREN) if change is ZnodeChange.DELETED else (
            (Watch.CHILDREN,) if change is ZnodeChange.CHILDREN else (Watch.NODE,)
        )  # fmt: skip
        for watch in kinds:
            for session in sorted(self._watches.pop((watch, path), ())):
                yield Watched(session, Fired(path, watch, change))

    def _expiry(self, timeout_ms: int, now_ms: int) -> int:
        """The first tick after the timeout (ExpiryQueue.roundToNextInterval)."""
        return ((now_ms + timeout_ms) // self._tick_ms + 1) * self._tick_ms


def _write(made: _Transaction, write: Write) -> WriteResult:
    match write:
        case Create():
            return _create(made, write)
        case Delete(path, version):
            return _delete(made, path, version)
        case SetData(path, data, version):
            return _set(made, path, data, version)
        case Check(path, version):
            return _check(made, path, version) or Checked()


def _create(made: _Transaction, create: Create) -> WriteResult:
    """Checks in this order: the parent exists, the node does not, the parent is not ephemeral."""
    parent_path = _parent(create.path)
    parent = made.get(parent_path)
    if parent is None:
        return Refused(Reason.NO_NODE)
    path = f"{create.path}{parent.creates:010d}" if create.sequential else create.path
    if made.get(path) is not None:
        return Refused(Reason.NODE_EXISTS)
    if parent.owner:
        return Refused(Reason.NO_CHILDREN_FOR_EPHEMERALS)
    node = _Node(
        data=create.data,
        czxid=made.zxid,
        mzxid=made.zxid,
        pzxid=made.zxid,
        ctime_ms=made.now_ms,
        mtime_ms=made.now_ms,
        owner=made.session if create.ephemeral else 0,
    )
    made.changed[path] = node
    made.changed[parent_path] = replace(
        parent,
        creates=parent.creates + 1,
        pzxid=made.zxid,
        children=parent.children | {_name(path)},
    )
    made.changes += [(path, ZnodeChange.CREATED), (parent_path, ZnodeChange.CHILDREN)]
    return Created(path, node.stat)


def _delete(made: _Transaction, path: str, version: int) -> WriteResult:
    """Checks in this order: the node exists, it has that version, it has no children."""
    refused = _check(made, path, version)
    if refused:
        return refused
    node = made.get(path)
    if node is not None and node.children:
        return Refused(Reason.NOT_EMPTY)
    _remove(made, path)
    return Deleted()


def _remove(made: _Transaction, path: str) -> None:
    parent_path = _parent(path)
    parent = made.get(parent_path)
    assert parent is not None
    made.changed[path] = None
    made.changed[parent_path] = replace(
        parent, pzxid=made.zxid, children=parent.children - {_name(path)}
    )
    made.changes += [(path, ZnodeChange.DELETED), (parent_path, ZnodeChange.CHILDREN)]


def _set(made: _Transaction, path: str, data: bytes, version: int) -> WriteResult:
    node = made.get(path)
    refused = _check(made, path, version)
    if refused or node is None:
        return refused or Refused(Reason.NO_NODE)
    changed = replace(
        node, data=data, mzxid=made.zxid, mtime_ms=made.now_ms, version=node.version + 1
    )
    made.changed[path] = changed
    made.changes.append((path, ZnodeChange.DATA))
    return DataSet(changed.stat)


def _check(made: _Transaction, path: str, version: int) -> Refused | None:
    node = made.get(path)
    if node is None:
        return Refused(Reason.NO_NODE)
    if version not in {ANY, node.version}:
        return Refused(Reason.BAD_VERSION)
    return None


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def _name(path: str) -> str:
    return path.rpartition("/")[2]
