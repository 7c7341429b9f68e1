"""Requests to etcd's JSON gateway and its answers: values only.

The gateway writes 64-bit integers as text and leaves fields out that are zero; bytes are base64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

TOKEN_DIGITS = 20
"""Tokens are stored as digits of this width, since etcd compares values as bytes."""


class Request(Struct, frozen=True):
    """One POST; `body` is plain data.

    If `needs_leader` is set, a member that knows no leader refuses the request at once, with
    certainly no effect, instead of waiting for a leader.
    """

    path: str
    body: Mapping[str, Any]
    needs_leader: bool = True


class Replied(Struct, frozen=True):
    """The member answered."""

    status: int
    body: bytes


class NotSent(Struct, frozen=True):
    """No connection was made, so the member never got the request."""

    error: str


class NoReply(Struct, frozen=True):
    """The request may have been sent, but no whole answer came in time."""

    error: str


Response = Replied | NotSent | NoReply


class Header(Struct, frozen=True):
    member_id: int = 0
    revision: int = -1
    raft_term: int = -1


class KeyValue(Struct, frozen=True):
    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class RangeReply(Struct, frozen=True):
    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()


class PutReply(Struct, frozen=True):
    header: Header
    prev_kv: KeyValue | None = None


class TxnPart(Struct, frozen=True):
    response_range: RangeReply | None = None


class TxnReply(Struct, frozen=True):
    header: Header
    succeeded: bool = False
    responses: tuple[TxnPart, ...] = ()

    def found(self) -> KeyValue | None:
        """The key that the first range of the transaction read, if it exists."""
        for part in self.responses:
            if part.response_range is not None and part.response_range.kvs:
                return part.response_range.kvs[0]
        return None


class LeaseReply(Struct, frozen=True):
    header: Header
    TTL: int = 0


class RenewReply(Struct, frozen=True):
    """Renewing is a stream of gRPC, whose elements the gateway wraps."""

    result: LeaseReply


class StatusReply(Struct, frozen=True):
    header: Header
    leader: int = 0
    raftTerm: int = -1  # noqa: N815 etcd's name
    raftIndex: int = -1  # noqa: N815 etcd's name


class _Error(Struct, frozen=True):
    message: str = ""
    error: Any = None


def error_message(body: bytes) -> str:
    """etcd's message in an answer other than 200; the body itself if it has another form."""
    try:
        read = msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        return body.decode(errors="replace").strip()
    if isinstance(read.error, dict):
        return str(read.error.get("message", ""))
    return read.message or str(read.error or "")


def _range(key: str, serializable: bool = False) -> dict[str, Any]:
    return {"key": key.encode(), "serializable": serializable}


def get(key: str, serializable: bool) -> Request:
    """Reads a key: linearizably, or from the asked member's own state."""
    return Request("/v3/kv/range", _range(key, serializable), not serializable)


def put(key: str, value: str) -> Request:
    """Writes a key; the answer contains its previous value."""
    return Request("/v3/kv/put", {"key": key.encode(), "value": value.encode(), "prev_kv": True})


def swap(key: str, expected: int, value: str) -> Request:
    """Writes a key if its mod_revision is `expected` (0: if it does not exist), else reads it."""
    compare = {"key": key.encode(), "target": "MOD", "result": "EQUAL",
               "mod_revision": str(expected)}  # fmt: skip
    return _transaction([compare], [_put(key, value)], [key])


def grant(lease: int, ttl_s: int) -> Request:
    """Makes a lease with an id that the client chose."""
    return Request("/v3/lease/grant", {"ID": str(lease), "TTL": str(ttl_s)})


def renew(lease: int) -> Request:
    """Renews a lease for its TTL from now on; the answer's TTL is 0 if the lease is gone."""
    return Request("/v3/lease/keepalive", {"ID": str(lease)})


def revoke(lease: int) -> Request:
    """Ends a lease, and deletes the keys attached to it."""
    return Request("/v3/lease/revoke", {"ID": str(lease)})


def take(lock: str, lease: int, value: str) -> Request:
    """Creates the lock's key, attached to the lease, if it does not exist; else reads it."""
    compare = {"key": lock.encode(), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
    return _transaction([compare], [_put(lock, value, lease)], [lock])


def release(lock: str, token: int) -> Request:
    """Deletes the lock's key if it is still the one of that token; else reads it."""
    compare = {"key": lock.encode(), "target": "CREATE", "result": "EQUAL",
               "create_revision": str(token)}  # fmt: skip
    delete = {"request_delete_range": {"key": lock.encode()}}
    return _transaction([compare], [delete], [lock])


def token_key(store: str) -> str:
    """The key that holds the greatest token a store has seen."""
    return f"{store}/token"


def make_store(store: str) -> Request:
    """Creates the token's key with token 0 if it does not exist: a compare needs a value."""
    key = token_key(store)
    compare = {"key": key.encode(), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
    return _transaction([compare], [_put(key, padded(0))], [key])


def write_store(store: str, token: int, value: str, checked: bool) -> Request:
    """Writes a store with the token of the lock's holder.

    The store takes the write if the greatest token it has seen is no greater than this one. Without
    the check it takes any write.
    """
    key = token_key(store)
    compare = {"key": key.encode(), "target": "VALUE", "result": "LESS",
               "value": padded(token + 1).encode()}  # fmt: skip
    puts = [_put(key, padded(token)), _put(store, value)]
    return _transaction([compare] if checked else [], puts, [key])


def status() -> Request:
    """The member's own view: the leader and the term."""
    return Request("/v3/maintenance/status", {}, needs_leader=False)


def padded(token: int) -> str:
    """A token as a store keeps it."""
    return f"{token:0{TOKEN_DIGITS}}"


def _put(key: str, value: str, lease: int = 0) -> dict[str, Any]:
    put = {"key": key.encode(), "value": value.encode()}
    return {"request_put": {**put, "lease": str(lease)} if lease else put}


def _transaction(
    compare: list[dict[str, Any]], success: list[dict[str, Any]], read: list[str]
) -> Request:
    failure = [{"request_range": _range(key)} for key in read]
    return Request("/v3/kv/txn", {"compare": compare, "success": success, "failure": failure})
