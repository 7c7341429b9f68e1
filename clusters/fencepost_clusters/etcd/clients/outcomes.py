"""What an answer proves about a request: ok, failed (certainly no effect) or unknown."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from fencepost_clusters.etcd.clients.messages import NoReply, NotSent, Response, error_message
from fencepost_clusters.etcd.events import Outcome

REFUSED = frozenset(
    {
        # Refused before a proposal to raft.
        "etcdserver: key is not provided",
        "etcdserver: duplicate key given in txn request",
        "etcdserver: too many operations in txn request",
        "etcdserver: request is too large",
        "etcdserver: too many requests",
        "etcdserver: too large lease TTL",
        "etcdserver: not capable",
        # Raft accepted no proposal: it knew no leader, or its leader was handing over.
        "raft proposal dropped",
        # Refused when the request was applied, before it changed anything.
        "etcdserver: requested lease not found",
        "etcdserver: lease already exists",
    }
)
"""Messages after which the request certainly has no effect.

All other messages prove nothing. Some of them look definite:

* `context deadline exceeded` and `request timed out`: the proposal may be in a log, and commit.
* `mvcc: database space exceeded`: etcd applies a put that crosses the quota, then reports this.
* `no leader`, for a renewal: it may follow a try that took effect.
* `server stopped`, `request canceled`, `leader changed`: the wait ended, but the proposal may take
  effect.
"""

NO_LEADER = "etcdserver: no leader"
"""Except for a renewal: refused before any effect, if the request set `hasleader`."""

LEASE_GONE = "etcdserver: requested lease not found"

Reply = TypeVar("Reply", bound=Struct)


class Read(Struct, frozen=True):
    """An outcome, with etcd's message if it is not ok."""

    outcome: Outcome
    error: str = ""


def of_write(answer: Response, no_leader_refuses: bool = True) -> Read:
    """The outcome of a request that changes something.

    `no_leader_refuses`: the message "no leader" means that the member refused the request before it
    did anything.
    """
    match answer:
        case NotSent(error):
            return Read("failed", error)
        case NoReply(error):
            return Read("unknown", error)
    if answer.status == 200:
        return Read("ok")
    message = error_message(answer.body)
    refused = message in REFUSED or (no_leader_refuses and message == NO_LEADER)
    return Read("failed" if refused else "unknown", message)


def of_read(answer: Response) -> Read:
    """The outcome of a request that changes nothing: without an answer it has failed."""
    read = of_write(answer)
    return Read("failed", read.error) if read.outcome == "unknown" else read


def decoded(answer: Response, kind: type[Reply]) -> Reply | None:
    """The decoded reply of an answer 200; None if it has another status or form."""
    if isinstance(answer, NotSent | NoReply) or answer.status != 200:
        return None
    try:
        return msgspec.json.decode(answer.body, type=kind, strict=False)
    except msgspec.DecodeError:
        return None
