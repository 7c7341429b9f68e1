"""Kinds of events about processes: nodes and clients of any system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from fencepost.events.traits import Operation, OperationOutcome
from fencepost.events.words import because, span


class ProcessSpawned(Struct, frozen=True, gc=False, tag="process.spawned", kw_only=True):
    """The harness started a process. `role` is the slot's."""

    by_harness: ClassVar[bool] = True

    started: str
    slot: str
    role: str
    node_id: int
    pid: int

    def sentence(self) -> str:
        return f"started {self.started} as {self.role} {self.node_id}"

    def concerns(self) -> Sequence[str]:
        return (f"process {self.started}",)


class ProcessAsked(Struct, frozen=True, gc=False, tag="process.asked", kw_only=True):
    """The harness asked a process to end in order, by SIGTERM or SIGINT (`signal`), and the process
    ran."""

    by_harness: ClassVar[bool] = True

    asked: str
    signal: str

    def sentence(self) -> str:
        return f"asked {self.asked} to end, by {self.signal}"

    def concerns(self) -> Sequence[str]:
        return (f"process {self.asked}",)


class ProcessExited(Struct, frozen=True, gc=False, tag="process.exited", kw_only=True):
    """The harness saw a process end. `signal` is 0 if it exited; `expected` if the run caused the
    end, or if it was that of a client that was done, with code 0."""

    by_harness: ClassVar[bool] = True

    ended: str
    exit_code: int
    signal: int
    expected: bool
    said: str = ""
    """Of an end that was not expected: the last line of the program's log that tells something."""
    lacked: str = ""
    """What the machine lacked just then, such as space on its disk; empty: nothing is known."""

    def sentence(self) -> str:
        how = f"by signal {self.signal}" if self.signal else f"with code {self.exit_code}"
        if self.expected:
            return f"{self.ended} ended {how}"
        said = f', and last said "{self.said}"' if self.said else ""
        return f"{self.ended} ended {how}, unexpectedly{said}"

    def concerns(self) -> Sequence[str]:
        return (f"process {self.ended}",)


class ProcessLeft(Struct, frozen=True, gc=False, tag="process.left", kw_only=True):
    """The run ends, and the process `left` goes on: it was there before the run (`attached`)."""

    by_harness: ClassVar[bool] = True

    left: str

    def sentence(self) -> str:
        return f"left {self.left} to its owner: it goes on"

    def concerns(self) -> Sequence[str]:
        return (f"process {self.left}",)


class NodeStarted(Struct, frozen=True, gc=False, tag="node.started", kw_only=True):
    """A node's first event: its role and id.

    `incarnation` is the process's own uuid, `log_end` the end of the log on its disk; a system
    without them leaves them out.
    """

    role: str
    node_id: int
    incarnation: str = ""
    log_end: int = -1

    def sentence(self) -> str:
        known = [f"began as {self.role} {self.node_id}"]
        if self.incarnation:
            known.append(f"incarnation {self.incarnation[:8]}")
        if self.log_end >= 0:
            known.append(f"with a log up to {self.log_end}")
        return ", ".join(known)


class NodeStopped(Struct, frozen=True, gc=False, tag="node.stopped", kw_only=True):
    """A node's last event when it ends by itself. Without it, its last events may be missing."""

    reason: str
    """Why, as free text of the node: a request to stop, the end of its work, or an error."""

    def sentence(self) -> str:
        return f"stopped{because(self.reason)}"


class Stalled(Struct, frozen=True, gc=False, tag="process.stalled", kw_only=True):
    """A process did not run for `stalled_ns`, until this event. It noticed so itself when its loop
    woke that much too late; or, if `of` names one, that process never woke: from its last event on
    it did nothing, not even what the harness asked it for."""

    stalled_ns: int
    of: str = ""
    """The process that stalled, if another one noticed."""

    def sentence(self) -> str:
        if self.of:
            return f"{self.of} did nothing for {span(self.stalled_ns)}, and did not answer"
        return f"stalled for {span(self.stalled_ns)}"


class ProcessResumed(Struct, frozen=True, gc=False, tag="process.resumed", kw_only=True):
    """A process that a fault had stopped ran from `from_ns` until this event: the harness let it,
    while it changed and measured its links, and then stopped it again. A stopped process answers no
    probe, and may make a proxy wait for it."""

    resumed: str
    from_ns: int
    ran_ns: int

    def sentence(self) -> str:
        return f"{self.resumed} was resumed for {span(self.ran_ns)}, while its links were changed"

    def concerns(self) -> Sequence[str]:
        return (f"process {self.resumed}",)


class ConnectionClosed(Struct, frozen=True, gc=False, tag="node.connection_closed", kw_only=True):
    """A node closed a connection for a reason of its own (malformed bytes, an unknown request)."""

    listener: str
    peer: str
    reason: str
    """Why, as free text of the node."""

    def sentence(self) -> str:
        return f"closed a connection of {self.peer}{because(self.reason)}"


class ClientStarted(Struct, frozen=True, gc=False, tag="client.started", kw_only=True):
    """A client session began: its kind, in the words of its workload, and its library."""

    kind: str
    library: str

    def sentence(self) -> str:
        return f"a {self.kind} began, with {self.library}"


class ClientFailed(Struct, frozen=True, gc=False, tag="client.failed", kw_only=True):
    """The client library reported a fatal error, or the client's worker died."""

    error: str
    """What the library or the process said, as free text."""
    fatal: bool

    def sentence(self) -> str:
        return f"the client {'died' if self.fatal else 'reports'}{because(self.error)}"

    def client_operations(self) -> Sequence[Operation]:
        return (Operation("", "client library", "", OperationOutcome.FAILED, self.error),)
