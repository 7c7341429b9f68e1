"""The inputs and the effects of a node: two closed unions.

A node is `handle(input, now) -> tuple[Effect, ...]`. Effects are carried out in their order, and
one that persists (`Append`, `Truncate`, `Delete`, `Sync`, `StoreVote`, `StoreSnapshot`,
`Checkpoint`) is a barrier: it is stored before the next effect is carried out. Stored means that it
outlives the process; data that must survive a loss of power is synced (`Sync`; a vote and a
snapshot always are). A node has a Tick at its `deadline`.

A node of a plane over ZooKeeper has one session with it at a time, which it opens itself. Each
answer or event of a session is an input of its own, after the step that asked for it, in the
session's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from fencepost import Cause
from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.zookeeper.client import port as zk

Address = tuple[str, int]
"""Host name and port, as the cluster names them; the shell resolves the name."""

EXIT_UNREADABLE: Final = 4
"""The exit code of a process that cannot read its disk or the metadata log."""

Chance = Callable[[int, int], int]
"""Draws a whole number between two bounds, both included."""


NEVER_NS: Final = 1 << 62
"""Later than any moment of a monotonic clock."""
LONGEST_WAIT_MS: Final = 30_000
"""No fetch waits longer than this, even if it asks for more: its sender may have gone."""


class Instant(Struct, frozen=True, gc=False):
    """The time by this node's clocks: a monotonic clock in ns and the wall clock in ms."""

    monotonic_ns: int
    wall_ms: int


# ----------------------------------------------------------------------------------------- inputs


class Received(Struct, frozen=True, gc=False):
    """A request arrived on a listener; `request_id` is the shell's name for it.

    `principal` is the user that its connection has proved to be; empty without a proof.
    """

    request_id: int
    listener: str
    client: str
    correlation: int
    message: m.Request
    principal: str = ""


class Answered(Struct, frozen=True, gc=False):
    """A call was answered."""

    call_id: int
    message: m.Response


class CallFailed(Struct, frozen=True, gc=False):
    """A call got no answer: refused, closed, timed out, or malformed."""

    call_id: int
    reason: str


class Recovered(Struct, frozen=True, gc=False):
    """The disk's logs are recovered: the index of each, and the checkpoints, by log."""

    logs: Mapping[str, tuple[Entry, ...]]
    high_watermarks: Mapping[str, int]


class Tick(Struct, frozen=True, gc=False):
    """The node's deadline has come, or it starts."""


class ShutdownAsked(Struct, frozen=True, gc=False):
    """The process was asked to end in order (SIGTERM, SIGINT)."""


class ZooKeeperAnswer(Struct, frozen=True, gc=False):
    """A request to ZooKeeper was answered; `Unknown` and `Unsent` are answers too."""

    request_id: int
    answer: zk.Answer


class ZooKeeperEvent(Struct, frozen=True, gc=False):
    """The session began, was suspended, resumed or ended, or one of its watches fired."""

    event: zk.Connected | zk.Suspended | zk.Ended | zk.Fired


FromZooKeeper = ZooKeeperAnswer | ZooKeeperEvent
Input = Received | Answered | CallFailed | Recovered | Tick | ShutdownAsked | FromZooKeeper


def from_zookeeper(event: zk.SessionEvent) -> FromZooKeeper:
    """The input for an event of a session."""
    if isinstance(event, zk.Answered):
        return ZooKeeperAnswer(event.number, event.answer)
    return ZooKeeperEvent(event)


# ---------------------------------------------------------------------------------------- effects


class Call(Struct, frozen=True, gc=False):
    """Send a request to another node; ends in exactly one Answered or CallFailed.

    Calls of one channel to one address share a connection and are answered in order. So calls that
    may wait (a fetch) and calls that must not (a heartbeat) use different channels. `call_id` is
    sent as the correlation id.
    """

    call_id: int
    address: Address
    channel: str
    message: m.Request
    timeout_ms: int


class Reply(Struct, frozen=True, gc=False):
    """Answer a request; None: it expects no answer (acks=0)."""

    request_id: int
    message: m.Response | None


class Close(Struct, frozen=True, gc=False):
    """Close the connection that a request came on, without an answer."""

    request_id: int
    reason: str


class Recover(Struct, frozen=True, gc=False):
    """Recover every log on the disk but the metadata's; ends in one Recovered, not in this step."""


class Append(Struct, frozen=True, gc=False):
    """Append one whole record batch to a log, which is created if it does not exist."""

    log: str
    base_offset: int
    data: bytes


class Truncate(Struct, frozen=True, gc=False):
    """Drop everything in a log from this offset on."""

    log: str
    to_offset: int


class Sync(Struct, frozen=True, gc=False):
    """Sync all of a log to the disk, so that it survives the loss of the page cache (RP-26)."""

    log: str


class Delete(Struct, frozen=True, gc=False):
    """Remove a log and its data."""

    log: str


class StoreVote(Struct, frozen=True, gc=False):
    """Store the quorum epoch and vote, and sync them to disk before the next effect."""

    epoch: int
    voted_for: int | None


class StoreSnapshot(Struct, frozen=True, gc=False):
    """Store a log's snapshot beside it, whole or not at all, and synced; then drop older ones.

    The log's records below `offset` may be dropped too.
    """

    log: str
    offset: int
    epoch: int
    data: bytes


class Checkpoint(Struct, frozen=True, gc=False):
    """Store the high watermarks, and the offsets below which logs were synced, by log."""

    high_watermarks: dict[str, int]
    flushed: dict[str, int]


DiskEffect = Append | Truncate | Sync | Delete | StoreVote | StoreSnapshot | Checkpoint
"""The effects that a disk carries out; each is a barrier."""


class OpenSession(Struct, frozen=True, gc=False):
    """Begin a session with ZooKeeper; the one before it has ended.

    It ends in exactly one `Ended`: after `limit_ms` if no server has answered. Every path is below
    `chroot`, which must exist.
    """

    servers: tuple[Address, ...]
    timeout_ms: int
    chroot: str = ""
    limit_ms: int = 10_000


class CloseSession(Struct, frozen=True, gc=False):
    """End the session, and with it its ephemeral nodes if a server can be reached.

    A process that exits without this leaves its session to its timeout.
    """


class ToZooKeeper(Struct, frozen=True, gc=False):
    """Ask ZooKeeper in the session that is open; ends in exactly one ZooKeeperAnswer."""

    request_id: int
    request: zk.Request


ZooKeeperEffect = OpenSession | CloseSession | ToZooKeeper


class Note(Struct, frozen=True, gc=False):
    """Record an event (before the effects that follow)."""

    body: Struct
    cause: Cause | None = None


class Exit(Struct, frozen=True, gc=False):
    """End the process; a `code` other than 0 says why it cannot go on."""

    reason: str
    code: int = 0


Effect = DiskEffect | ZooKeeperEffect | Call | Reply | Close | Recover | Note | Exit
